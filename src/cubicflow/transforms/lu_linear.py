"""Linear layers as a permutation and two triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.nets.exact_linear import exact_linear
from cubicflow.nets.linear import waited_for
from cubicflow.transforms.transform import Transform, check_features, check_floating, no_log_det, positive

# Solves are made for each layer alone, inverses for all layers together: of small matrices these cost less whatever
# the number of rows. Solving for a row is also slower than multiplying it, so that the inverse of a large matrix pays
# for itself after a few times D rows.
ALWAYS_INVERTED = 48
ROWS_WORTH_AN_INVERSE = 4


class LULinear(Transform):
    """z = P L U x + bias: P a fixed random permutation, L unit lower triangular, U upper with a positive diagonal.

    log|det| is the sum of U's log-diagonal, O(D). The layer starts as the permutation alone. The inverse is two
    triangular solves for every row; with gradients off and many rows it is a product by a dense inverse, which is made
    anew at every call. Nothing is kept: torch does not count every change of a parameter, such as those by fused
    optimisers, and asking a GPU whether there was one would wait for it.

    The layer computes in the precision of its inputs whatever torch's settings say: TF32 or bf16 here would cost the
    flow its exactness, and D x D products are too small to be worth it.

    Args:
        features: D.
        bias: add a trainable shift.
        permute: begin from a random permutation; without, from the identity.
        seed: of that permutation; None draws from torch's global state.

    >>> layer = LULinear(3, seed=0)
    >>> z, log_det = layer(torch.randn(4, 3))
    >>> z.shape, log_det
    (torch.Size([4, 3]), tensor([0., 0., 0., 0.], grad_fn=<ExpandBackward0>))
    """

    permutation: Tensor

    def __init__(self, features: int, *, bias: bool = True, permute: bool = True, seed: int | None = None) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.permute = permute
        self.seed = seed
        self.register_buffer("permutation", self._draw_permutation())
        # The strict lower triangle holds L's, the strict upper U's; the diagonal of `factors` is not used.
        self.factors = nn.Parameter(torch.zeros(features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def _draw_permutation(self) -> Tensor:
        device = torch.get_default_device()
        if not self.permute or device.type == "meta":  # where shapes are all there is, and memory should be none
            return torch.arange(self.features, device=device)
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.features, generator=generator, device="cpu").to(device)

    def config(self) -> dict[str, Any]:
        # The permutation itself is a buffer; the seed is written for the reader.
        return {"features": self.features, "bias": self.bias is not None, "permute": self.permute, "seed": self.seed}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return self.through(x, dense_weights([self])[0]), self._log_det(x)

    def through(self, x: Tensor, weight: Tensor) -> Tensor:
        """The forward map with its dense weight, which :func:`dense_weights` makes for many layers at once."""
        check_features(self, x, self.features)
        check_floating(self, x)
        return exact_linear(x, weight, self.bias)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        inverse = dense_inverses([self])[0] if self.takes_dense_inverse(z) else None
        return self.back_through(z, inverse), -self._log_det(z)

    def takes_dense_inverse(self, z: Tensor) -> bool:
        """Whether making a dense inverse, D^3, is worth it for these rows, which would take N D^2 to solve for.
        Compiled code always solves: it should not depend on the number of rows."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return self.features <= ALWAYS_INVERTED or len(z) >= ROWS_WORTH_AN_INVERSE * self.features

    def back_through(self, z: Tensor, inverse: Tensor | None) -> Tensor:
        """The inverse map with its dense inverse, which :func:`dense_inverses` makes for many layers at once, or by
        solving."""
        check_features(self, z, self.features)
        check_floating(self, z)
        if self.bias is not None:
            z = z - self.bias
        return self._solve(z) if inverse is None else exact_linear(z, inverse)

    def _log_det(self, x: Tensor) -> Tensor:
        return self.log_diagonal.sum().to(no_log_det(x).dtype).expand(x.shape[0])

    def _solve(self, z: Tensor) -> Tensor:
        lower, upper = _triangles(_widen(self.factors), _widen(self.log_diagonal))
        rows = z.to(lower.dtype).index_select(1, self.permutation.argsort())
        with _full_precision(rows):
            columns = torch.linalg.solve_triangular(lower, rows.T, upper=False, unitriangular=True)
            columns = torch.linalg.solve_triangular(upper, columns, upper=True)
        x: Tensor = columns.T.to(z.dtype)
        return x


def dense_weights(layers: Sequence[LULinear]) -> Sequence[Tensor]:
    """P L U, (D, D), of several layers of one size, all in the same few batched operations."""
    factors = _widen(torch.stack([layer.factors for layer in layers]))  # (layers, D, D)
    log_diagonals = _widen(torch.stack([layer.log_diagonal for layer in layers]))
    lower, upper = _triangles(factors, log_diagonals)
    with _full_precision(lower):
        products = lower @ upper
    orders = torch.stack([layer.permutation for layer in layers])
    weights = products.gather(1, orders[:, :, None].expand_as(products))
    return waited_for(weights.to(layers[0].factors.dtype).unbind(0))


def dense_inverses(layers: Sequence[LULinear]) -> Sequence[Tensor]:
    """(P L U)^-1, (D, D), of several layers of one size, in float64 until they are rounded once."""
    lower, upper = _triangles(
        torch.stack([layer.factors for layer in layers]).double(),
        torch.stack([layer.log_diagonal for layer in layers]).double(),
    )
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    inverses = torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)
    inverses = torch.linalg.solve_triangular(upper, inverses, upper=True)
    orders = torch.stack([layer.permutation for layer in layers])
    inverses = inverses.gather(2, orders[:, None, :].expand_as(inverses))
    rounded: Sequence[Tensor] = inverses.to(layers[0].factors.dtype).unbind(0)
    return rounded


def _triangles(factors: Tensor, log_diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """L and U, of one layer or of a stack of them."""
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    return factors.tril(-1) + eye, factors.triu(1) + eye * log_diagonal.exp()[..., None, :]


def _widen(x: Tensor) -> Tensor:
    """float64 on a GPU: no setting of the matrix units can then reach a product or a solution."""
    return x.double() if x.is_cuda else x


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(x.device.type, enabled=False)
