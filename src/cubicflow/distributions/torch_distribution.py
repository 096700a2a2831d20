"""Any distribution of torch as a base."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from cubicflow.distributions.base import Base
from cubicflow.nets.rng import drawing_from
from cubicflow.nets.tracing import constant_tensor

# The arguments of the classes whose arguments are not tensors alone, and the attributes that hold them.
NESTED = {
    "Independent": {"base_distribution": "base_dist", "reinterpreted_batch_ndims": "reinterpreted_batch_ndims"},
    "MixtureSameFamily": {
        "mixture_distribution": "mixture_distribution",
        "component_distribution": "component_distribution",
    },
}
MakeTensor = Callable[[Any], Tensor]  # from a number or nested lists of numbers


class TorchDistribution(Base):
    """A continuous distribution of ``torch.distributions`` as a base, with fixed arguments.

    The shape of a draw is (D,): a distribution of vectors, or D independent ones of numbers. The support must be a box.
    The only temperature is 1. Samples are differentiable if the distribution has ``rsample``. For trained parameters,
    use :class:`DiagonalNormal`, :class:`StudentT`, :class:`VonMises`, or a base of your own.

    Args:
        distribution: a distribution whose class is one of torch's own, with tensors as arguments, or ``Independent`` or
            ``MixtureSameFamily`` of such. Or its description, as :meth:`config` returns it: the name of the class and
            pairs of a name and a value.

    >>> base = TorchDistribution(torch.distributions.Gamma(torch.tensor([2.0, 3.0]), torch.ones(2)))
    >>> base.config()
    {'distribution': ['Gamma', ['concentration', [2.0, 3.0]], ['rate', [1.0, 1.0]]]}
    >>> base.log_prob(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
    tensor([-2.6931,    -inf])
    """

    tempered = False

    def __init__(self, distribution: Distribution | Sequence[Any]) -> None:
        given = isinstance(distribution, Distribution)
        self.description = _description(distribution) if given else list(distribution)  # type: ignore[arg-type]
        # torch.from_numpy: on the meta device, where a loaded flow is built, torch.tensor would lose the values
        checked = _made(self.description, lambda values: torch.from_numpy(np.asarray(values, dtype=np.float64)), True)
        name = self.description[0]
        if checked.support is None or checked.support.is_discrete:
            raise ValueError(f"a base needs a continuous distribution, and {name} is discrete")
        shape = tuple(checked.batch_shape + checked.event_shape)
        if len(shape) > 1:
            raise ValueError(f"a base needs draws of shape (D,), and draws of this {name} have shape {shape}")
        super().__init__(math.prod(shape))
        self.shape = shape
        self.independent = bool(checked.batch_shape)
        self.support = checked.support
        bounds = self.bounds()
        if bounds is None:
            raise ValueError(f"a base needs a density on a box, and the support of {name} is {self.support}")
        self.box = bounds

    def config(self) -> dict[str, Any]:
        return {"distribution": self.description}

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        self._check(z, temperature)
        low, high = (self._tensor(list(ends)) for ends in zip(*self.box, strict=True))
        inside = (z >= low) & (z <= high)
        within = torch.where(inside, z, self._tensor([_within(*ends) for ends in self.box]))
        log_prob = _made(self.description, self._tensor).log_prob(within.reshape(*z.shape[:-1], *self.shape))
        log_prob = log_prob.sum(-1) if self.independent else log_prob
        return torch.where(inside.all(-1), log_prob, torch.where(z.isnan().any(-1), torch.nan, -torch.inf))

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        self._check_temperature(temperature)
        found = _made(self.description, self._tensor)
        with drawing_from(generator):
            drawn = (found.rsample if found.has_rsample else found.sample)(torch.Size((n,)))
        return drawn.reshape(n, self.features)

    def _tensor(self, values: Any) -> Tensor:
        return constant_tensor([_as_tuples(values)], self.anchor.device, self.anchor.dtype)[0]


def _description(distribution: Distribution) -> list[Any]:
    """Return the name of the class and the arguments of a distribution, as plain values."""
    name = type(distribution).__name__
    if type(distribution) is not getattr(distributions, name, None):
        raise ValueError(f"{type(distribution)} is not a class of torch.distributions; write a base of your own")
    pairs = []
    for argument, attribute in _arguments(name, distribution).items():
        value = getattr(distribution, attribute)
        if isinstance(value, Distribution):
            value = _description(value)
        pairs.append([argument, value.detach().tolist() if isinstance(value, Tensor) else value])
    return [name, *pairs]


def _arguments(name: str, distribution: Distribution) -> dict[str, str]:
    """Return the arguments that make this distribution, with the attributes that hold them."""
    if name in NESTED:
        return NESTED[name]
    defaults = {argument: parameter.default for argument, parameter in signature(type(distribution)).parameters.items()}
    tensors = [argument for argument in defaults if argument in _tensors(type(distribution))]
    for argument, default in defaults.items():
        if argument not in tensors and default is Parameter.empty:
            raise ValueError(f"{name} cannot be a base: its argument {argument!r} is not a tensor of parameters")
    # Arguments such as probs and logits exclude each other. Their default is None, and one of them was given.
    optional = [argument for argument in tensors if defaults[argument] is None]
    given = [argument for argument in optional if argument in vars(distribution)][:1]
    return {argument: argument for argument in tensors if argument not in optional or argument in given}


def _tensors(cls: type[Distribution]) -> list[str]:
    """Return the arguments of a class of torch that are tensors of parameters."""
    constrained: Any = cls.arg_constraints
    if isinstance(constrained, dict):
        return list(constrained)
    return [name for name in signature(cls).parameters if name != "validate_args"]  # Uniform's are a property


def _made(description: Any, tensor: MakeTensor, validate_args: bool = False) -> Distribution:
    """Return the described distribution. Raise a ValueError for a description of anything else."""
    name = description[0] if isinstance(description, list) and description else None
    cls = getattr(distributions, name, None) if isinstance(name, str) and name in distributions.__all__ else None
    if not (isinstance(cls, type) and issubclass(cls, Distribution)):
        raise ValueError(f"{name!r} is not a class of torch.distributions")  # noqa: TRY004 - from a file
    arguments: dict[str, Any] = {}
    for argument, value in description[1:]:
        if isinstance(value, list) and value and isinstance(value[0], str):
            arguments[argument] = _made(value, tensor, validate_args)
        elif name == "Independent":
            arguments[argument] = int(value)
        elif argument in _tensors(cls):
            arguments[argument] = tensor(value)
        else:
            raise ValueError(f"{name} has no argument {argument!r}")
    made: Distribution = cls(**arguments, validate_args=validate_args)
    return made


def _as_tuples(values: Any) -> Any:
    """Return nested lists as tuples, which have a hash."""
    return tuple(map(_as_tuples, values)) if isinstance(values, list) else values


def _within(low: float, high: float) -> float:
    """Return a number inside an interval, which may be infinite."""
    if math.isinf(low) and math.isinf(high):
        return 0.0
    return high - 1 if math.isinf(low) else low + 1 if math.isinf(high) else (low + high) / 2
