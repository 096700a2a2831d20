"""The shared base of the recipes: a typed config, the paper's settings, and the coupling layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import torch
from torch import nn

from cubicflow.arguments import config_of, one_of, unknown_name, whole_number
from cubicflow.distributions import Base
from cubicflow.flows.flow import Flow
from cubicflow.flows.support import data_ends
from cubicflow.transforms import Compose, Coupling, ElementMap, Inverse, Logit, Sigmoid, Transform
from cubicflow.transforms.element_map import is_spline
from cubicflow.transforms.transform import is_unbounded

PAPER_CLIP = 1e-6


@dataclass(frozen=True)
class RecipeConfig:
    """Settings of every recipe. The defaults are the settings that worked best; ``paper=True`` builds the paper's
    model.

    Attributes:
        family: the family of the element maps, as in :class:`~cubicflow.transforms.ElementMap`.
        slopes: the slopes of the cubic: ``"steffen"`` or ``"free"``.
        num_bins: K, the number of bins of the splines, or of units of sigmoidal maps.
        depth: the number of layers of sigmoidal maps, and of hidden layers of Block-NAF.
        hidden_features, num_blocks, dropout, norm, residual: settings of the networks.
        context_features: C; 0 for an unconditional density.
        context_shape, embedding_net: as in :class:`~cubicflow.flows.Flow`. ``context_features`` is then the size of the
            embedding.
        base: the density of the noise. None: the recipe's own.
        identity_maps: put trainable maps on the half of the features that the network of a coupling layer sees.
        identity_start: start every layer at the identity.
        scale_logits: divide the networks' outputs by the square root of their width.
        direction: ``"data"``, or ``"noise"`` for the inverse transform. Both are exact in both directions. For
            autoregressive layers this setting chooses the direction that takes one network pass. Image flows support
            only ``"data"``.
        seed: the seed of the permutations.
        backend: the backend of the splines.
    """

    family: str = "cubic"
    slopes: str = "steffen"
    num_bins: int = 10
    depth: int = 2
    hidden_features: int = 256
    num_blocks: int = 2
    dropout: float = 0.0
    norm: str | None = None
    residual: bool = True
    context_features: int = 0
    context_shape: Sequence[int] | None = None
    embedding_net: nn.Module | None = None
    base: Base | None = None
    identity_maps: bool = True
    identity_start: bool = True
    scale_logits: bool = True
    direction: str = "data"
    seed: int = 0
    backend: str = "auto"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the settings of the paper's model that differ from the defaults."""
        return {"identity_start": False, "scale_logits": False}

    @classmethod
    def make(cls, paper: bool, settings: dict[str, Any]) -> Self:
        """Return the default config, changed by the paper's settings if ``paper`` is true, and then by ``settings``."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise TypeError(unknown_name(cls.__name__, "setting", name, known))
        return cls(**{**(cls.paper_settings() if paper else {}), **settings})

    def __post_init__(self) -> None:
        one_of("direction", self.direction, ("data", "noise"))
        whole_number("context_features", self.context_features, 0)

    def flow(self, base: Base, transform: Transform, shape: Sequence[int] | None = None) -> Flow:
        """Return the flow with the recipe's own base, or with ``self.base``. Raise a ValueError if splines on a box
        would see noise from elsewhere."""
        parts: dict[str, Any] = {"context_shape": self.context_shape, "embedding_net": self.embedding_net}
        if self.base is None:
            return Flow(base, transform, shape, **parts)
        own, flow = data_ends(Flow(base, transform, shape)), Flow(self.base, transform, shape, **parts)
        ends = data_ends(flow)
        if own is not None and not is_unbounded(own) and (ends is None or not torch.equal(own, ends)):
            raise ValueError(
                f"the splines of this flow need noise on [0, 1] where the {type(base).__name__} base has it, and "
                f"{type(self.base).__name__} has other support; give a base with that support, or leave out base="
            )
        return flow

    def element_map(self, domain: str | Sequence[str]) -> ElementMap:
        """Return the element map on a domain, or on one domain for each column."""
        return ElementMap(self.family, self.num_bins, self.slopes, domain, backend=self.backend, depth=self.depth)

    def network_factory(self, kind: Callable[..., nn.Module]) -> partial[nn.Module]:
        """Return a factory of networks with these settings. ``kind`` is a class, or a ``partial`` of a class."""
        settings = config_of(self, "hidden_features", "num_blocks", "dropout", "identity_start")
        # A transformer has no such arguments.
        other = ({} if self.norm is None else {"norm": self.norm}) | ({} if self.residual else {"residual": False})
        return partial(kind, **settings, **other, scale_output=self.scale_logits)

    def coupling(self, mask: Sequence[bool], kind: Callable[..., nn.Module], domain: str | Sequence[str]) -> Coupling:
        """Return a coupling layer."""
        return Coupling(
            mask,
            self.network_factory(kind),
            self.element_map(domain),
            context_features=self.context_features,
            transform_identity=self.identity_maps,
        )

    def on_the_real_line(self, make: Callable[[str], Transform], clip: float | None) -> Transform:
        """Return a layer on the real line. Without ``clip`` this is ``make("real")``. With ``clip`` it is the paper's
        layer: a sigmoid, ``make("unit")`` and a logit. The network then sees the sigmoid of its inputs, and inputs of
        the logit are clipped."""
        if clip is None or not is_spline(self.family):
            return make("real")
        return Compose([Sigmoid(clip), make("unit"), Logit(clip)])

    def directed(self, transform: Transform) -> Transform:
        """Return the transform, or its inverse for ``direction="noise"``."""
        return transform if self.direction == "data" else Inverse(transform)
