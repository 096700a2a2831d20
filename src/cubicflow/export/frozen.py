"""A copy of a model for export: of one precision, on the CPU, in evaluation mode, with LU factors multiplied out.

An exported graph is never trained. So values that depend only on parameters are computed once, here. This also keeps
triangular solves out of the graph; ONNX has no operator for them.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cubicflow.distributions import Base, NormalMixture
from cubicflow.transforms import LULinear, Transform
from cubicflow.transforms.lu_linear import dense_inverses, dense_layers

Model = TypeVar("Model", bound=nn.Module)


class FixedLinear(Transform):
    """A linear layer with fixed matrices: the weight and its inverse, which is computed in float64.

    >>> layer = LULinear(3, seed=0).requires_grad_(False)
    >>> x = torch.randn(4, 3)
    >>> fixed = FixedLinear(layer)
    >>> torch.equal(fixed(x)[0], layer(x)[0]), torch.allclose(fixed.inverse(fixed(x)[0])[0], x, atol=1e-6)
    (True, True)
    """

    def __init__(self, layer: LULinear) -> None:
        super().__init__()
        (forth, log_det), (back, _) = dense_layers([layer])[0], dense_inverses([layer])[0]
        self.weight, self.inverse_weight = nn.Buffer(forth.clone()), nn.Buffer(back.clone())
        self.log_det = nn.Buffer(log_det.clone())
        self.bias = nn.Buffer(forth.new_zeros(layer.features) if layer.bias is None else layer.bias.detach().clone())

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return nn.functional.linear(x, self.weight, self.bias), self.log_det.expand(x.shape[0])

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return nn.functional.linear(z - self.bias, self.inverse_weight), (-self.log_det).expand(z.shape[0])

    def config(self) -> dict[str, Any]:
        raise TypeError("a FixedLinear layer is for export only and cannot be saved; save the original flow")


class FixedMixture(Base):
    """A mixture of normals whose samples are a function of given noise.

    ``noise`` has shape (N, features + 1): standard normal numbers, and in the last column a uniform number that selects
    the component.

    >>> base = FixedMixture(NormalMixture(2, components=3))
    >>> base.drawn(torch.tensor([[0.0, 0.0, 0.1]])).shape
    torch.Size([1, 2])
    """

    def __init__(self, mixture: NormalMixture) -> None:
        super().__init__(mixture.features)
        self.mixture = mixture
        weights = mixture.logits.detach().double().softmax(0)
        self.ends = nn.Buffer(weights.cumsum(0)[:-1].to(mixture.means.dtype))  # cumulative weights without the last
        scales = mixture.log_scales.detach().double().exp()  # (K, D)
        whiten = torch.eye(mixture.features, dtype=torch.float64).expand(len(scales), -1, -1)
        if mixture.shears is not None:
            whiten = whiten + mixture.shears.detach().double().tril(-1)
        self.factors = nn.Buffer((torch.linalg.inv(whiten) * scales[:, None, :]).to(mixture.means.dtype))  # (K, D, D)

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return self.mixture.log_prob(z, temperature)

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        return self.mixture.sample(n, temperature, generator)

    def drawn(self, noise: Tensor) -> Tensor:
        """Map noise to samples: (N, features + 1) -> (N, features)."""
        picks = (noise[:, -1:] >= self.ends).long().sum(1)  # (N,)
        offsets = (self.factors[picks] * noise[:, None, :-1]).sum(2)
        return self.mixture.means[picks] + offsets


@torch.no_grad()
def frozen(model: Model, dtype: torch.dtype = torch.float32) -> Model:
    """Return a copy of a model for export. The given model does not change.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, num_layers=2, hidden_features=8).double()
    >>> copy = frozen(flow)
    >>> [type(part).__name__ for part in copy.transform.transforms][0], copy.base.anchor.dtype
    ('FixedLinear', torch.float32)
    """
    copy = deepcopy(model).to("cpu", dtype).eval().requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in list(module.named_children()):
            if type(child) is LULinear:
                setattr(module, name, FixedLinear(child))
            elif type(child) is NormalMixture and not isinstance(module, FixedMixture):
                setattr(module, name, FixedMixture(child))
    return copy


def sizes_of(model: nn.Module) -> set[int]:
    """Return the axis sizes and the element counts of all tensors in a model."""
    state = model.state_dict().values()
    return {size for value in state for size in (*value.shape, math.prod(value.shape))}
