"""The paper's flow for tables: LU-decomposed linear layers and cubic-spline coupling layers, in turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from cubicflow.constructors import positive
from cubicflow.distributions import NormalMixture, StandardNormal
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import PAPER_CLIP, RecipeConfig
from cubicflow.nets import MaskedResidualMLP, ResidualMLP
from cubicflow.transforms import Autoregressive, Compose, Elementwise, LULinear, Transform
from cubicflow.transforms.coupling import alternating_mask, contiguous_mask


@dataclass(frozen=True)
class TabularConfig(RecipeConfig):
    """Settings of :func:`tabular`, beside those of every recipe.

    Attributes:
        features: D.
        num_layers: pairs of a linear and a nonlinear layer.
        layer: ``"coupling"``, or ``"autoregressive"`` (with family="affine" that is MAF; with direction="noise", IAF).
        mask: which half a coupling layer transforms: ``"alternating"`` (even, odd, even ...) or ``"contiguous"``.
        clip: None for the real line without clipping; a number for the paper's clipped sandwich.
        linear: have linear layers at all.
        linear_bias: with a trainable shift.
        final_linear: one more linear layer at the end.
        base_components: 1 for a standard normal base, more for a mixture of normals.

    >>> for name, value in TabularConfig.paper_settings().items():
    ...     print(f"{name} = {value}, by default {getattr(TabularConfig(), name)}")
    identity_start = False, by default True
    scale_logits = False, by default True
    mask = contiguous, by default alternating
    clip = 1e-06, by default None
    linear_bias = False, by default True
    final_linear = False, by default True
    """

    features: int = 2
    num_layers: int = 10
    layer: str = "coupling"
    mask: str = "alternating"
    clip: float | None = None
    linear: bool = True
    linear_bias: bool = True
    final_linear: bool = True
    base_components: int = 1

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        settings = super().paper_settings()
        return {**settings, "mask": "contiguous", "clip": PAPER_CLIP, "linear_bias": False, "final_linear": False}

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("features", self.features)
        positive("num_layers", self.num_layers)
        if self.layer not in ("coupling", "autoregressive"):
            raise ValueError(f"layer must be 'coupling' or 'autoregressive', got {self.layer!r}")
        if self.mask not in ("alternating", "contiguous"):
            raise ValueError(f"mask must be 'alternating' or 'contiguous', got {self.mask!r}")


def tabular(features: int, *, paper: bool = False, **settings: Any) -> Flow:
    """A density of ``features`` real columns: by default ten times an LU linear layer and a cubic-spline coupling layer
    with K = 10 bins, on a standard normal base.

    Args:
        features: D.
        paper: build the paper's model as written; see :class:`TabularConfig` for the single differences.
        settings: of :class:`TabularConfig`.

    >>> import torch
    >>> tabular(6).log_prob(torch.zeros(3, 6)).shape
    torch.Size([3])
    >>> maf = tabular(6, layer="autoregressive", family="affine")
    """
    config = TabularConfig.make(paper, {**settings, "features": features})
    layers: list[Transform] = []
    for i in range(config.num_layers):
        if config.linear:
            layers.append(_linear(config, i))
        layers.append(config.on_the_real_line(partial(_nonlinear, config, i), config.clip))
    if config.linear and config.final_linear:
        layers.append(_linear(config, config.num_layers))
    components = config.base_components
    base = StandardNormal(features) if components == 1 else NormalMixture(features, components, seed=config.seed)
    return Flow(base, config.directed(Compose(layers)))


def _linear(config: TabularConfig, i: int) -> Transform:
    return LULinear(config.features, bias=config.linear_bias, seed=config.seed + i)


def _nonlinear(config: TabularConfig, i: int, domain: str) -> Transform:
    maps = config.element_map(domain)
    if config.layer == "autoregressive":
        network = config.network(MaskedResidualMLP)
        return Autoregressive(config.features, network, maps, context_features=config.context_features)
    if config.features == 1 and not config.context_features:  # there is no other half, and nothing to tell it
        return Elementwise(1, maps)
    if config.features == 1:
        mask = [True]
    elif config.mask == "alternating":
        mask = alternating_mask(config.features, even=i % 2 == 0)
    else:
        mask = contiguous_mask(config.features, second=i % 2 == 0)
    return config.coupling(mask, ResidualMLP, domain)
