"""Linear layers as a product of a permutation and two triangular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.nets.precision import widened, without_autocast
from cubicflow.nets.products import products
from cubicflow.transforms.linear import Dense, LinearTransform


class LULinear(LinearTransform):
    """A linear layer z = P L U x + bias. P is a fixed random permutation, L is unit lower triangular, and U is upper
    triangular with a positive diagonal.

    log|det| is the sum of U's log-diagonal, O(D). The layer starts as the permutation alone. The inverse solves two
    triangular systems for every row, or multiplies by a dense inverse; see :class:`LinearTransform`.

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

    @classmethod
    def dense_layers(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        factors = widened(torch.stack([layer.factors for layer in layers]))  # (layers, D, D)
        log_diagonals = torch.stack([layer.log_diagonal for layer in layers])  # (layers, D)
        lower, upper = _triangles(factors, widened(log_diagonals))
        with without_autocast(lower.device):
            lu = lower @ upper
        orders = torch.stack([layer.permutation for layer in layers])
        weights = lu.gather(1, orders[:, :, None].expand_as(lu)).to(log_diagonals.dtype)
        return list(map(Dense, products.computed_weights(weights.unbind(0)), log_diagonals.sum(1).unbind(0)))

    @classmethod
    def dense_inverses(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        log_diagonals = torch.stack([layer.log_diagonal for layer in layers])
        lower, upper = _triangles(torch.stack([layer.factors for layer in layers]).double(), log_diagonals.double())
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
        inverses = torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)
        inverses = torch.linalg.solve_triangular(upper, inverses, upper=True)
        orders = torch.stack([layer.permutation for layer in layers])
        weights = inverses.gather(2, orders[:, None, :].expand_as(inverses)).to(log_diagonals.dtype)
        return list(map(Dense, weights.unbind(0), (-log_diagonals.sum(1)).unbind(0)))

    def log_scales(self) -> Tensor:
        return self.log_diagonal

    def solve(self, z: Tensor) -> Tensor:
        lower, upper = _triangles(widened(self.factors), widened(self.log_diagonal))
        rows = z.to(lower.dtype).index_select(1, self.permutation.argsort())
        with without_autocast(rows.device):
            columns = torch.linalg.solve_triangular(lower, rows.T, upper=False, unitriangular=True)
            columns = torch.linalg.solve_triangular(upper, columns, upper=True)
        x: Tensor = columns.T.to(z.dtype)
        return x

    @torch.no_grad()
    def whiten_(self, mean: NDArray[np.float64], scale: NDArray[np.float64], correlations: NDArray[np.float64]) -> None:
        """Set the layer so that rows with this mean (D,), scale (D,) and correlations (D, D) become white. Without a
        bias the mean remains."""
        # correlations = C C' with C lower triangular, so inv(C) ((x - mean) / scale) is white. The whitening matrix is
        # lower triangular: L times the diagonal of U.
        whitener = np.linalg.inv(np.linalg.cholesky(correlations)) / scale
        diagonal = np.diag(whitener)
        self.factors.copy_(torch.from_numpy(np.tril(whitener / diagonal, -1)))
        self.log_diagonal.copy_(torch.from_numpy(np.log(diagonal)))
        if self.bias is not None:
            self.bias.copy_(torch.from_numpy(-(whitener @ mean)[self.permutation.cpu().numpy()]))


def _triangles(factors: Tensor, log_diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and U of one layer, or of a stack of layers."""
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    return factors.tril(-1) + eye, factors.triu(1) + eye * log_diagonal.exp()[..., None, :]
