"""Linear layers made of rotations: orthogonal, QR and SVD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cubicflow.arguments import config_of, positive
from cubicflow.nets.precision import widened, without_autocast
from cubicflow.nets.products import products
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.linear import Dense, LinearTransform


def householder_product(vectors: Tensor) -> Tensor:
    """Return the orthogonal matrix H_1 H_2 ... H_n of the reflections H_i = I - 2 v_i v_i' / |v_i|^2.

    The product is I - V' inv(S) V. The rows of V are the vectors. S is upper triangular, with v_i'v_j above the
    diagonal and |v_i|^2 / 2 on it (Joffrain et al. 2006, "Accumulating Householder transformations, revisited"). So one
    triangular solve replaces n products, and the gradient is that of the solve.

    Args:
        vectors: (..., n, D), none of them 0.

    Returns:
        (..., D, D). On a GPU in float64, which settings of TF32 do not affect.

    >>> householder_product(torch.tensor([[0.0, 2.0]]))
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    """
    v = widened(vectors)
    with without_autocast(v.device):
        inner = v @ v.mT  # (..., n, n)
        upper = inner.triu(1) + torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1) / 2)
        eye = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
        product: Tensor = eye - v.mT @ torch.linalg.solve_triangular(upper, v, upper=True)
    return product


class _Rotated(LinearTransform):
    """A linear layer with ``rotations`` products of Householder reflections. The arguments are as in
    :class:`Orthogonal`."""

    rotations: ClassVar[int] = 1

    def __init__(self, features: int, *, num_reflections: int | None = None, bias: bool = True, seed: int = 0) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.num_reflections = positive("num_reflections", features if num_reflections is None else num_reflections)
        self.seed = seed
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None
        shape = (self.rotations, self.num_reflections, features)
        self.vectors = nn.Parameter(normal_start(shape, seed, torch.zeros(0)))

    def config(self) -> dict[str, Any]:
        return {**config_of(self, "features", "num_reflections", "seed"), "bias": self.bias is not None}


class Orthogonal(_Rotated):
    """An orthogonal linear layer z = Q x + bias: a product of Householder reflections (Tomczak and Welling 2016). The
    log-determinant is 0, and the inverse of Q is Q'.

    Args:
        features: D.
        num_reflections: the number of reflections; None for D. D reflections reach every orthogonal matrix whose
            determinant is (-1)^D, and fewer reflections a part of them.
        bias: add a trainable shift.
        seed: the seed of the first vectors. They give a random rotation, which mixes all features.

    >>> layer = Orthogonal(3)
    >>> x = torch.randn(4, 3)
    >>> torch.allclose(layer(x)[0].norm(dim=1), x.norm(dim=1))
    True
    """

    @classmethod
    def dense_layers(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        (rotations,) = _rotations(layers)
        return _computed(rotations, [layer.vectors.new_zeros(()) for layer in layers], layers[0].vectors.dtype)

    @classmethod
    def dense_inverses(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        return [Dense(weight.T, log_det) for weight, log_det in cls.dense_layers(layers)]

    def log_scales(self) -> Tensor:
        return self.vectors.new_zeros(1)

    def solve(self, z: Tensor) -> Tensor:
        (rotation,) = _rotations([self])
        return _times(z, rotation[0])  # the rows of z Q are Q'z


class QRLinear(_Rotated):
    """A linear layer z = Q R x + bias. Q is a product of Householder reflections, and R is upper triangular with a
    positive diagonal. Every invertible matrix has such a factorisation, up to the sign of its determinant.

    log|det| is the sum of R's log-diagonal, O(D). The layer starts as the rotation Q; R is the identity. The arguments
    are those of :class:`Orthogonal`.

    >>> layer = QRLinear(3)
    >>> z, log_det = layer(torch.randn(4, 3))
    >>> z.shape, log_det
    (torch.Size([4, 3]), tensor([0., 0., 0., 0.], grad_fn=<ExpandBackward0>))
    """

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.log_diagonal = nn.Parameter(torch.zeros(features))
        self.factor = nn.Parameter(torch.zeros(features, features))  # the strict upper triangle of R

    @classmethod
    def dense_layers(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        log_diagonals = torch.stack([layer.log_diagonal for layer in layers])
        (rotations,) = _rotations(layers)
        weights = _times(rotations, _upper(torch.stack([layer.factor for layer in layers]), log_diagonals))
        return _computed(weights, log_diagonals.sum(1).unbind(0), log_diagonals.dtype)

    def log_scales(self) -> Tensor:
        return self.log_diagonal

    def solve(self, z: Tensor) -> Tensor:
        (rotation,) = _rotations([self])
        rotated, upper = widened(_times(z, rotation[0])), _upper(self.factor, self.log_diagonal)
        with without_autocast(z.device):
            x: Tensor = torch.linalg.solve_triangular(upper, rotated.T, upper=True).T.to(z.dtype)
        return x

    @torch.no_grad()
    def whiten_(self, mean: NDArray[np.float64], scale: NDArray[np.float64], correlations: NDArray[np.float64]) -> None:
        """Set R and the bias so that rows with this mean (D,), scale (D,) and correlations (D, D) become white. Q stays
        as it is. Without a bias the mean remains."""
        # The inverse of the covariance is R'R with R upper triangular, so R (x - mean) is white, and so is its image
        # under the rotation Q.
        upper = np.linalg.cholesky(np.linalg.inv(correlations)).T / scale
        self.log_diagonal.copy_(torch.from_numpy(np.log(np.diag(upper))))
        self.factor.copy_(torch.from_numpy(np.triu(upper, 1)))
        if self.bias is not None:
            shift = torch.from_numpy(-(upper @ mean))
            self.bias.copy_(householder_product(self.vectors[0].double().cpu()) @ shift)


class SVDLinear(_Rotated):
    """A linear layer z = U diag(s) V x + bias with positive s: a singular value decomposition. U and V are products of
    Householder reflections (Zhang et al. 2018).

    log|det| is the sum of log s, O(D), and the singular values are the exponentials of a parameter. The layer starts as
    the rotation U V, with s = 1. The arguments are those of :class:`Orthogonal`, for each of U and V.

    >>> SVDLinear(3).log_scale
    Parameter containing:
    tensor([0., 0., 0.], requires_grad=True)
    """

    rotations = 2

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.log_scale = nn.Parameter(torch.zeros(features))

    @classmethod
    def dense_layers(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        log_scales = torch.stack([layer.log_scale for layer in layers])
        u, v = _rotations(layers)
        weights = _times(u * log_scales.exp()[:, None, :], v)
        return _computed(weights, log_scales.sum(1).unbind(0), log_scales.dtype)

    def log_scales(self) -> Tensor:
        return self.log_scale

    def solve(self, z: Tensor) -> Tensor:
        u, v = _rotations([self])
        return _times(_times(z, u[0]) * torch.exp(-self.log_scale), v[0])


def _rotations(layers: Sequence[_Rotated]) -> Sequence[Tensor]:
    """Return each rotation of several layers, (layers, D, D), if possible made in one batch."""
    vectors: list[Tensor] = [layer.vectors for layer in layers]
    if len({each.shape for each in vectors}) == 1:
        return householder_product(torch.stack(vectors)).unbind(1)
    return torch.stack([householder_product(each) for each in vectors]).unbind(1)


def _upper(factor: Tensor, log_diagonal: Tensor) -> Tensor:
    """Return R of one layer, or of a stack of layers."""
    return widened(factor).triu(1) + torch.diag_embed(widened(log_diagonal).exp())


def _computed(weights: Tensor, log_dets: Sequence[Tensor], dtype: torch.dtype) -> list[Dense]:
    return list(map(Dense, products.computed_weights(weights.to(dtype).unbind(0)), log_dets))


def _times(first: Tensor, second: Tensor) -> Tensor:
    """Return the product in the dtype of the second factor, a computed matrix, and then in the dtype of the first."""
    with without_autocast(first.device):
        product: Tensor = (first.to(second.dtype) @ second).to(first.dtype)
    return product
