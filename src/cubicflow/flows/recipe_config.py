"""What the recipes share: a typed config, the paper's variant of it, and the coupling layer they all stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

from cubicflow.near_names import no_such
from cubicflow.nets.residual_net import ResidualNet
from cubicflow.transforms import Compose, Coupling, ElementMap, Inverse, Logit, Sigmoid, Transform
from cubicflow.transforms.element_map import is_spline

PAPER_CLIP = 1e-6


@dataclass(frozen=True)
class RecipeConfig:
    """Settings every recipe has. The defaults are what we found better; ``paper=True`` builds the paper's model.

    Attributes:
        family: of the element maps: ``"cubic"``, ``"quadratic"``, ``"linear"``, ``"rational_quadratic"``, ``"affine"``
            or ``"additive"``.
        slopes: of the cubic: ``"steffen"`` or ``"free"``.
        num_bins: K.
        hidden_features, num_blocks, dropout, norm: of the networks.
        context_features: C; 0 for an unconditional density.
        identity_maps: trainable maps on the half that tells the other.
        identity_start: start every layer at the identity.
        scale_logits: divide the networks' outputs by the square root of their width.
        direction: ``"data"``, or ``"noise"`` for the inverse transform; both are exact both ways, and for
            autoregressive layers this chooses which way is one network pass. Image flows have ``"data"`` alone.
        seed: of the permutations.
        backend: of the splines.
    """

    family: str = "cubic"
    slopes: str = "steffen"
    num_bins: int = 10
    hidden_features: int = 256
    num_blocks: int = 2
    dropout: float = 0.0
    norm: str | None = None
    context_features: int = 0
    identity_maps: bool = True
    identity_start: bool = True
    scale_logits: bool = True
    direction: str = "data"
    seed: int = 0
    backend: str = "auto"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """The settings in which the paper's model differs from the defaults."""
        return {"identity_start": False, "scale_logits": False}

    @classmethod
    def make(cls, paper: bool, settings: dict[str, Any]) -> Self:
        """The defaults, changed to the paper's if asked, changed by the settings given."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise TypeError(no_such(cls.__name__, "setting", name, known))
        return cls(**{**(cls.paper_settings() if paper else {}), **settings})

    def __post_init__(self) -> None:
        if self.direction not in ("data", "noise"):
            raise ValueError(f"direction must be 'data' or 'noise', got {self.direction!r}")
        if self.context_features < 0:
            raise ValueError(f"context_features must be 0 or more, got {self.context_features}")

    def element_map(self, domain: str) -> ElementMap:
        """The map of every element, on the real line or on the unit interval."""
        return ElementMap(self.family, self.num_bins, self.slopes, domain, backend=self.backend)

    def residual(self, kind: Callable[..., ResidualNet]) -> partial[ResidualNet]:
        """A factory of residual networks with these settings."""
        return partial(
            kind,
            hidden_features=self.hidden_features,
            num_blocks=self.num_blocks,
            dropout=self.dropout,
            norm=self.norm,
            identity_start=self.identity_start,
            scale_output=self.scale_logits,
        )

    def coupling(self, mask: Sequence[bool], kind: Callable[..., ResidualNet], domain: str) -> Coupling:
        """A coupling layer on the real line or on the unit interval."""
        return Coupling(
            mask,
            self.residual(kind),
            self.element_map(domain),
            context_features=self.context_features,
            transform_identity=self.identity_maps,
        )

    def on_the_real_line(self, make: Callable[[str], Transform], clip: float | None) -> Transform:
        """The layer that ``make`` makes for the real line; with ``clip``, the paper's sandwich of sigmoid, unit spline
        and logit, in which the network sees the sigmoid of its inputs, clipped wherever a logit is taken."""
        if clip is None or not is_spline(self.family):
            return make("real")
        return Compose([Sigmoid(clip), make("unit"), Logit(clip)])

    def directed(self, transform: Transform) -> Transform:
        """The transform in the direction asked for."""
        return transform if self.direction == "data" else Inverse(transform)
