"""Linear layers as a product of a permutation and two triangular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cubicflow.constructors import positive
from cubicflow.nets.products import products
from cubicflow.transforms.transform import Transform, check_features, check_floating

# Triangular solves run layer by layer, but dense inverses of all layers are made in one batch. For small matrices the
# inverses are therefore cheaper for any number of rows. For large matrices an inverse pays after a few times D rows,
# because multiplying a row is faster than solving for it.
ALWAYS_INVERTED = 48  # features; up to this size a dense inverse is always used
ROWS_WORTH_AN_INVERSE = 4  # rows per feature; a larger layer uses a dense inverse for at least this many rows


class Dense(NamedTuple):
    """One direction of a linear layer as a dense matrix."""

    weight: Tensor  # (D, D)
    log_det: Tensor  # ()


class LULinear(Transform):
    """A linear layer z = P L U x + bias. P is a fixed random permutation, L is unit lower triangular, and U is upper
    triangular with a positive diagonal.

    log|det| is the sum of U's log-diagonal, O(D). The layer starts as the permutation alone. The inverse solves two
    triangular systems for every row. With gradients off, and a small D or many rows, the inverse multiplies by a dense
    inverse matrix instead. The dense inverse is recomputed at every call and never cached: torch's version counters
    miss some changes of parameters, such as updates by fused optimisers, and a comparison of values would synchronise
    with the GPU.

    The layer computes in the precision of its weights, independent of torch's settings for autocast and TF32. Lower
    precision would make the flow inexact, and D x D products are too small to gain much from it.

    Args:
        features: D.
        bias: add a trainable shift.
        permute: start from a random permutation; otherwise from the identity.
        seed: the seed of the permutation; None draws from torch's global generator.

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
        # The strict lower triangle of `factors` belongs to L, the strict upper triangle to U. The diagonal is unused.
        self.factors = nn.Parameter(torch.zeros(features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def _draw_permutation(self) -> Tensor:
        device = torch.empty(0).device
        if not self.permute or device.type == "meta":  # meta tensors have a shape but no values to draw
            return torch.arange(self.features, device=device)
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.features, generator=generator, device="cpu").to(device)

    def config(self) -> dict[str, Any]:
        # The permutation itself is saved as a buffer. The seed is only information for a reader of the config.
        return {"features": self.features, "bias": self.bias is not None, "permute": self.permute, "seed": self.seed}

    def forward(self, x: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """Map x to z. ``dense`` is this layer's matrix, if the caller has already made it."""
        check_features(self, x, self.features)
        check_floating(self, x)
        weight, log_det = dense or dense_layers([self])[0]
        return products.exact(x, weight, self.bias), _expanded(log_det, x)

    def inverse(self, z: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """Map z to x. ``dense`` is this layer's inverse matrix, if the caller has already made it."""
        check_features(self, z, self.features)
        check_floating(self, z)
        shifted = z if self.bias is None else z - self.bias
        if dense is None and not self.takes_dense_inverse(z):
            return self._solve(shifted), _expanded(-self.log_diagonal.sum(), z)
        weight, log_det = dense or dense_inverses([self])[0]
        return products.exact(shifted, weight), _expanded(log_det, z)

    def takes_dense_inverse(self, z: Tensor) -> bool:
        """Return whether a dense inverse, O(D^3), is faster for these rows than triangular solves, O(N D^2). Compiled
        code always solves, so that it does not depend on the number of rows."""
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
    """Return the matrices of several layers of one size, made by a few batched operations."""
    factors = _widen(torch.stack([layer.factors for layer in layers]))  # (layers, D, D)
    log_diagonals = torch.stack([layer.log_diagonal for layer in layers])  # (layers, D)
    lower, upper = _triangles(factors, _widen(log_diagonals))
    with _full_precision(lower):
        lu = lower @ upper
    orders = torch.stack([layer.permutation for layer in layers])
    weights = lu.gather(1, orders[:, :, None].expand_as(lu)).to(log_diagonals.dtype)
    return list(map(Dense, products.computed_weights(weights.unbind(0)), log_diagonals.sum(1).unbind(0)))


def dense_inverses(layers: Sequence[LULinear]) -> Sequence[Dense]:
    """Return the inverse matrices of several layers of one size. They are computed in float64 and rounded once."""
    log_diagonals = torch.stack([layer.log_diagonal for layer in layers])
    lower, upper = _triangles(torch.stack([layer.factors for layer in layers]).double(), log_diagonals.double())
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    inverses = torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)
    inverses = torch.linalg.solve_triangular(upper, inverses, upper=True)
    orders = torch.stack([layer.permutation for layer in layers])
    weights = inverses.gather(2, orders[:, None, :].expand_as(inverses)).to(log_diagonals.dtype)
    return list(map(Dense, weights.unbind(0), (-log_diagonals.sum(1)).unbind(0)))


def _expanded(log_det: Tensor, x: Tensor) -> Tensor:
    """Return the log-determinant of every row, (N,), in float32 or a wider dtype."""
    return log_det.to(torch.promote_types(x.dtype, torch.float32)).expand(x.shape[0])


def _triangles(factors: Tensor, log_diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and U of one layer, or of a stack of layers."""
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    return factors.tril(-1) + eye, factors.triu(1) + eye * log_diagonal.exp()[..., None, :]


def _widen(x: Tensor) -> Tensor:
    """Return x, on a GPU in float64: settings such as TF32 do not affect float64 products and solves."""
    return x.double() if x.is_cuda else x


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(x.device.type, enabled=False)
