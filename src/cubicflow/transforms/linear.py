"""The base class of linear layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from cubicflow.nets.precision import widened, without_autocast
from cubicflow.nets.products import products
from cubicflow.nets.tracing import is_traced
from cubicflow.transforms.transform import Transform, check_features, check_floating

# Solving runs layer by layer, but dense inverses of all layers are made in one batch. For small matrices the inverses
# are therefore cheaper for any number of rows. For large matrices an inverse pays after a few times D rows, because
# multiplying a row is faster than solving for it.
ALWAYS_INVERTED = 48  # features; up to this size a dense inverse is always used
ROWS_WORTH_AN_INVERSE = 4  # rows per feature; a larger layer uses a dense inverse for at least this many rows


class Dense(NamedTuple):
    """One direction of a linear layer as a dense matrix."""

    weight: Tensor  # (D, D)
    log_det: Tensor  # ()


class LinearTransform(Transform):
    """A linear layer z = W x + bias. A subclass says how W follows from its parameters; ``bias`` may be None.

    :class:`Compose` makes the matrices of all layers of one class and size together, by :meth:`dense_layers` and
    :meth:`dense_inverses`. The layer computes in the precision of its weights, independent of torch's settings for
    autocast and TF32. Lower precision would make the flow inexact, and D x D products are too small to gain much.

    With gradients off, and a small D or many rows, the inverse multiplies by a dense inverse matrix instead of solving.
    The dense inverse is recomputed at every call and never cached: torch's version counters miss some changes of
    parameters, such as updates by fused optimisers, and a comparison of values would synchronise with the GPU.

    >>> class Scaling(LinearTransform):
    ...     features, bias = 2, None
    ...
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.log_scale = nn.Parameter(torch.zeros(2))
    ...
    ...     @classmethod
    ...     def dense_layers(cls, layers):
    ...         return [Dense(layer.log_scale.exp().diag(), layer.log_scale.sum()) for layer in layers]
    >>> Scaling().inverse(torch.ones(1, 2))[0]
    tensor([[1., 1.]], grad_fn=<PermuteBackward0>)
    """

    affine = True
    bias: Tensor | None

    @classmethod
    @abstractmethod
    def dense_layers(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        """Return W of several layers of one size, made by a few batched operations. Return weights that are computed
        from parameters through ``products.computed_weights``."""

    @classmethod
    def dense_inverses(cls, layers: Sequence[Self]) -> Sequence[Dense]:
        """Return the inverse of W of several layers of one size, computed in float64 and rounded once."""
        dense = cls.dense_layers(layers)
        inverses = torch.linalg.inv(torch.stack([weight for weight, _ in dense]).double())
        return [Dense(back.to(weight.dtype), -log_det) for back, (weight, log_det) in zip(inverses, dense, strict=True)]

    def log_scales(self) -> Tensor:
        """Return a vector whose sum is log|det W|."""
        return self.dense_layers([self])[0].log_det[None]

    def solve(self, z: Tensor) -> Tensor:
        """Return the rows x with W x = z, without the inverse of W."""
        weight = widened(self.dense_layers([self])[0].weight)
        with without_autocast(z.device):
            x: Tensor = torch.linalg.solve(weight, z.to(weight.dtype).T).T.to(z.dtype)
        return x

    def forward(self, x: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """Map x to z. ``dense`` is this layer's matrix, if the caller has already made it."""
        self._check(x)
        weight, log_det = dense or self.dense_layers([self])[0]
        return products.exact(x, weight, self.bias), _expanded(log_det, x)

    def inverse(self, z: Tensor, context: Tensor | None = None, *, dense: Dense | None = None) -> tuple[Tensor, Tensor]:
        """Map z to x. ``dense`` is this layer's inverse matrix, if the caller has already made it."""
        self._check(z)
        shifted = z if self.bias is None else z - self.bias
        if dense is None and not self.takes_dense_inverse(z):
            return self.solve(shifted), _expanded(-self.log_scales().sum(), z)
        weight, log_det = dense or self.dense_inverses([self])[0]
        return products.exact(shifted, weight), _expanded(log_det, z)

    def takes_dense_inverse(self, z: Tensor) -> bool:
        """Return whether a dense inverse, O(D^3), is faster for these rows than solving, O(N D^2). A graph always
        solves."""
        if torch.is_grad_enabled() or is_traced():
            return False
        return self.features <= ALWAYS_INVERTED or len(z) >= ROWS_WORTH_AN_INVERSE * self.features

    def fixed(self) -> FixedLinear:
        return FixedLinear(self)

    def _check(self, x: Tensor) -> None:
        check_features(self, x, self.features)
        check_floating(self, x)


class FixedLinear(Transform):
    """A linear layer with fixed matrices: the weight and its inverse, which is computed in float64.

    >>> from cubicflow.transforms import LULinear
    >>> layer = LULinear(3, seed=0).requires_grad_(False)
    >>> x = torch.randn(4, 3)
    >>> fixed = FixedLinear(layer)
    >>> torch.equal(fixed(x)[0], layer(x)[0]), torch.allclose(fixed.inverse(fixed(x)[0])[0], x, atol=1e-6)
    (True, True)
    """

    affine = True

    def __init__(self, layer: LinearTransform) -> None:
        super().__init__()
        self.features = layer.features
        (forth, log_det), (back, _) = layer.dense_layers([layer])[0], layer.dense_inverses([layer])[0]
        self.weight, self.inverse_weight = nn.Buffer(forth.clone()), nn.Buffer(back.clone())
        self.log_det = nn.Buffer(log_det.clone())
        self.bias = nn.Buffer(forth.new_zeros(layer.features) if layer.bias is None else layer.bias.detach().clone())

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return nn.functional.linear(x, self.weight, self.bias), self.log_det.expand(x.shape[0])

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return nn.functional.linear(z - self.bias, self.inverse_weight), (-self.log_det).expand(z.shape[0])

    def config(self) -> dict[str, Any]:
        raise TypeError("a FixedLinear layer is for export only and cannot be saved; save the original flow")


def linear_layers(transforms: Sequence[Transform], direction: str) -> dict[int, LinearTransform]:
    """Return the linear layers by their positions. A layer with a replaced method is left out, because the method may
    do more than multiply."""
    return {
        place: part
        for place, part in enumerate(transforms)
        if isinstance(part, LinearTransform)
        and direction not in part.__dict__
        and getattr(type(part), direction) is getattr(LinearTransform, direction)
    }


def dense_matrices(layers: Mapping[int, LinearTransform], *, inverse: bool = False) -> dict[int, Dense]:
    """Return the matrices of all layers. Matrices of one class and size are made in one batch: making them one at a
    time would take longer than the products that use them."""
    dense: dict[int, Dense] = {}
    for kind, features in dict.fromkeys((type(layer), layer.features) for layer in layers.values()):
        alike = {i: layer for i, layer in layers.items() if type(layer) is kind and layer.features == features}
        make = kind.dense_inverses if inverse else kind.dense_layers
        dense.update(zip(alike, make(list(alike.values())), strict=True))
    return dense


def sum_of_log_scales(layers: Mapping[int, LinearTransform]) -> Tensor:
    """Return the sum of all log-determinants. The sum is the same for every row, so it is added once at the end. Adding
    each log-determinant in its own layer would cost a sum over rows in every layer's backward pass."""
    return torch.cat([layer.log_scales() for layer in layers.values()]).sum()


def _expanded(log_det: Tensor, x: Tensor) -> Tensor:
    """Return the log-determinant of every row, (N,), in float32 or a wider dtype."""
    return log_det.to(torch.promote_types(x.dtype, torch.float32)).expand(x.shape[0])
