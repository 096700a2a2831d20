"""Linear layers as a permutation and two triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cubicflow.constructors import positive
from cubicflow.nets.products import products
from cubicflow.transforms.transform import Transform, check_features, check_floating

# Solves are made for each layer alone, inverses for all layers together: of small matrices these cost less whatever
# the number of rows. Solving for a row is also slower than multiplying it, so that the inverse of a large matrix pays
# for itself after a few times D rows.
ALWAYS_INVERTED = 48
ROWS_WORTH_AN_INVERSE = 4


class Dense(NamedTuple):
    """One direction of a layer as a matrix."""

    weight: Tensor  # (D, D)
    log_det: Tensor  # ()


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

    def __init__(self, features: int, *, bias: bool = True, permute: bool = True, seed: int | None = None) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.permute = permute
        self.seed = seed
        self.permutation = nn.Buffer(self._draw_permutation())
        # The strict lower triangle holds L's, the strict upper U's; the diagonal of `factors` is not used.
        self.factors = nn.Parameter(torch.zeros(features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def _draw_permutation(self) -> Tensor:
        device = torch.empty(0).device
        if not self.permute or device.type == "meta":  # where shapes are all there is, and memory should be none
            return torch.arange(self.features, device=device)
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.features, generator=generator, device="cpu").to(device)

    def config(self) -> dict[str, Any]:
        # The permutation itself is a buffer; the seed is written for the reader.
        return {"features": self.features, "bias": self.bias is not None, "permute": self.permute, "seed": self.seed}

    def forward(self, x: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """``dense`` is this layer's, where it was made together with those of other layers."""
        check_features(self, x, self.features)
        check_floating(self, x)
        weight, log_det = dense or dense_layers([self])[0]
        return products.exact(x, weight, self.bias), _expanded(log_det, x)

    def inverse(self, z: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """``dense`` is this layer's inverse, where it was made together with those of other layers."""
        check_features(self, z, self.features)
        check_floating(self, z)
        shifted = z if self.bias is None else z - self.bias
        if dense is None and not self.takes_dense_inverse(z):
            return self._solve(shifted), _expanded(-self.log_diagonal.sum(), z)
        weight, log_det = dense or dense_inverses([self])[0]
        return products.exact(shifted, weight), _expanded(log_det, z)

    def takes_dense_inverse(self, z: Tensor) -> bool:
        """Whether making a dense inverse, D^3, is worth it for these rows, which would take N D^2 to solve for.
        Compiled code always solves: it should not depend on the number of rows."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return self.features <= ALWAYS_INVERTED or len(z) >= ROWS_WORTH_AN_INVERSE * self.features

    def _solve(self, z: Tensor) -> Tensor:
        lower, upper = _triangles(_widen(self.factors), _widen(self.log_diagonal))
        rows = z.to(lower.dtype).index_select(1, self.permutation.argsort())
        with _full_precision(rows):
            columns = torch.linalg.solve_triangular(lower, rows.T, upper=False, unitriangular=True)
            columns = torch.linalg.solve_triangular(upper, columns, upper=True)
        x: Tensor = columns.T.to(z.dtype)
        return x


def dense_layers(layers: Sequence[LULinear]) -> Sequence[Dense]:
    """Several layers of one size, all made by the same few batched operations."""
    factors = _widen(torch.stack([layer.factors for layer in layers]))  # (layers, D, D)
    log_diagonals = torch.stack([layer.log_diagonal for layer in layers])  # (layers, D)
    lower, upper = _triangles(factors, _widen(log_diagonals))
    with _full_precision(lower):
        lu = lower @ upper
    orders = torch.stack([layer.permutation for layer in layers])
    weights = lu.gather(1, orders[:, :, None].expand_as(lu)).to(log_diagonals.dtype)
    return list(map(Dense, products.made(weights.unbind(0)), log_diagonals.sum(1).unbind(0)))


def dense_inverses(layers: Sequence[LULinear]) -> Sequence[Dense]:
    """The inverses of several layers of one size, in float64 until they are rounded once."""
    log_diagonals = torch.stack([layer.log_diagonal for layer in layers])
    lower, upper = _triangles(torch.stack([layer.factors for layer in layers]).double(), log_diagonals.double())
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    inverses = torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)
    inverses = torch.linalg.solve_triangular(upper, inverses, upper=True)
    orders = torch.stack([layer.permutation for layer in layers])
    weights = inverses.gather(2, orders[:, None, :].expand_as(inverses)).to(log_diagonals.dtype)
    return list(map(Dense, weights.unbind(0), (-log_diagonals.sum(1)).unbind(0)))


def _expanded(log_det: Tensor, x: Tensor) -> Tensor:
    """(N,), never below float32."""
    return log_det.to(torch.promote_types(x.dtype, torch.float32)).expand(x.shape[0])


def _triangles(factors: Tensor, log_diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """L and U, of one layer or of a stack of them."""
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    return factors.tril(-1) + eye, factors.triu(1) + eye * log_diagonal.exp()[..., None, :]


def _widen(x: Tensor) -> Tensor:
    """float64 on a GPU: no setting of the matrix units can then reach a product or a solution."""
    return x.double() if x.is_cuda else x


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(x.device.type, enabled=False)
