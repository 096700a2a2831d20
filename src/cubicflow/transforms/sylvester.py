"""Sylvester flows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cubicflow.arguments import one_of, positive
from cubicflow.nets.precision import exact_linear
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.implicit import triangular_inverse
from cubicflow.transforms.orthogonal import householder_product
from cubicflow.transforms.transform import Transform, check_features

FORMS = ("orthogonal", "householder", "triangular")


class Sylvester(Transform):
    """A Sylvester layer (van den Berg et al. 2018, eq. 9): z = x + Q R tanh(P Q'x + b). Q has M orthonormal columns. R
    and P are upper triangular. It is a planar layer with M directions instead of one.

    **It is invertible for all parameters.** By Sylvester's identity, the determinant is that of the map of y = Q'x to
    y + R tanh(P y + b). Its Jacobian is upper triangular, with the diagonal 1 + r_i p_i (1 - t_i^2). Diagonals of R and
    P pass through tanh, so r_i p_i > -1 and every entry of the diagonal is positive (their theorem 2).

    Because the map of y is triangular, the inverse searches for y_M, ..., y_1 in turn; the component of x outside the
    columns of Q does not change. Every coordinate takes some 35 (in float64 67) products with M x M matrices.

    The three forms choose Q:

    - ``"orthogonal"``: M = ``rank`` columns of a product of M Householder reflections, which reach every Q. (The paper
      orthogonalises a matrix by iteration, its eq. 15. The product is orthogonal to rounding at once.)
    - ``"householder"``: M = D, and a product of ``num_reflections`` reflections.
    - ``"triangular"``: M = D, and the features in their order; with ``reverse``, in the reversed order.

    Args:
        features: D.
        form: as above.
        rank: M of the orthogonal form; None for D.
        num_reflections: of the Householder form; None for D.
        reverse: of the triangular form. The paper reverses every second layer.
        seed: the seed of the first reflections.

    >>> layer = Sylvester(5, rank=2)
    >>> x = torch.randn(4, 5)
    >>> torch.equal(layer(x)[0], x), layer(x)[1].shape
    (True, torch.Size([4]))
    """

    one_pass = False  # Q is used twice

    def __init__(
        self,
        features: int,
        form: str = "orthogonal",
        *,
        rank: int | None = None,
        num_reflections: int | None = None,
        reverse: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.form, self.reverse, self.seed = one_of("form", form, FORMS), reverse, seed
        self.rank = positive("rank", features if rank is None else rank)
        if self.rank > features or (self.rank < features and form != "orthogonal"):
            raise ValueError(
                f"rank must be {features}, the number of features, or in the orthogonal form less; got {rank}"
            )
        self.num_reflections = positive("num_reflections", self.rank if num_reflections is None else num_reflections)
        if form == "orthogonal" and self.num_reflections != self.rank:
            raise ValueError(f"the orthogonal form has rank={self.rank} reflections; leave out num_reflections")
        self.inverse_passes = self.rank
        # The strict upper triangle of each matrix, and its diagonal before tanh; the rest is unused. R = 0 makes the
        # layer start as the identity. P = tanh(1) I lets gradients reach R.
        self.r = nn.Parameter(torch.zeros(self.rank, self.rank))
        self.p = nn.Parameter(torch.eye(self.rank))
        self.b = nn.Parameter(torch.zeros(self.rank))
        vectors = normal_start((self.num_reflections, features), seed, self.b)
        self.vectors = None if form == "triangular" else nn.Parameter(vectors)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, self.features)
        q, r, p = self._matrices(x)
        added, log_slope = self._added(exact_linear(x, q.T), r, p)
        return x + exact_linear(added, q), log_slope.sum(-1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, self.features)
        q, r, p = self._matrices(z)

        def reversed_map(backwards: Tensor) -> tuple[Tensor, Tensor]:
            """The map of y with its coordinates in reversed order, in which it is lower triangular."""
            y = backwards.flip(-1)
            added, log_slope = self._added(y, r, p)
            return (y + added).flip(-1), log_slope.flip(-1)

        backwards, log_slope = triangular_inverse(reversed_map, exact_linear(z, q.T).flip(-1))
        added, _ = self._added(backwards.flip(-1), r, p)
        return z - exact_linear(added, q), log_slope.sum(-1)

    def _added(self, y: Tensor, r: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return R tanh(P y + b) and the log-diagonal of the Jacobian of y + R tanh(P y + b), both (N, M)."""
        t = torch.tanh(exact_linear(y, p, self.b))
        return exact_linear(t, r), torch.log1p(r.diagonal() * p.diagonal() * (1 - t) * (1 + t))

    def _matrices(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q, (D, M), and R and P, (M, M)."""
        r, p = (each.triu(1) + each.diagonal().tanh().diag_embed() for each in (self.r, self.p))
        if self.vectors is not None:
            return householder_product(self.vectors)[:, : self.rank].to(self.vectors.dtype), r, p
        q = torch.eye(self.features, dtype=r.dtype, device=x.device)
        return q.flip(1) if self.reverse else q, r, p
