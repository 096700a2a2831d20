"""The paper's flow for tables: alternating LU-decomposed linear layers and cubic-spline coupling layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from cubicflow.arguments import config_of, one_of, permutation, positive
from cubicflow.distributions import NormalMixture, StandardNormal
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import PAPER_CLIP, RecipeConfig
from cubicflow.nets import CausalGRU, CausalTransformer, ConcatSquashMLP, MaskedResidualMLP, ResidualMLP
from cubicflow.transforms import (
    ActNorm,
    Autoregressive,
    BatchNorm,
    BlockNAF,
    Compose,
    Continuous,
    ElementMap,
    Elementwise,
    LULinear,
    Permutation,
    Planar,
    Radial,
    Recurrent,
    Standardise,
    Sylvester,
    Transform,
)
from cubicflow.transforms.coupling import alternating_mask, contiguous_mask
from cubicflow.transforms.element_map import SIGMOIDAL_MAPS, is_spline


@dataclass(frozen=True)
class TabularConfig(RecipeConfig):
    """Settings of :func:`tabular`, in addition to those of :class:`~cubicflow.flows.recipe_config.RecipeConfig`.

    Attributes:
        features: D.
        num_layers: the number of pairs of a linear and a nonlinear layer.
        layer: the nonlinear layer: ``"coupling"`` or ``"autoregressive"``. Autoregressive layers with family="affine"
            are MAF, and with direction="noise" IAF. ``"naf"`` is autoregressive with dense sigmoidal maps, or those of
            family="deep_sigmoidal". ``"block_naf"`` is a block neural autoregressive layer, with hidden_features / D
            units for each feature and ``depth`` hidden layers. ``"planar"``, ``"radial"`` and ``"sylvester"`` layers
            move all columns at once. ``"continuous"`` is a neural ordinary differential equation, and ``"ffjord"`` the
            same with Hutchinson's estimate of the trace in training. ``"recurrent"`` is TAN's recurrent transformation,
            with hidden_features as the size of its state, and ``"tan"`` its leaky relu, scale and recurrent shift.
        network: the network that computes parameters: ``"mlp"`` or ``"transformer"``. ``"mlp"`` is a residual network,
            masked for autoregressive layers. ``"transformer"`` is causal, needs autoregressive layers, and changes the
            defaults in :meth:`transformer_settings`.
        num_heads: the number of attention heads of a transformer.
        affine_first: shift and scale before the spline; see :class:`~cubicflow.transforms.ElementMap`.
        order: the order of the features in autoregressive layers, a permutation of 0 .. D - 1. Needs linear=False. The
            default is the order of the columns. Every second layer uses the reversed order.
        activation: of the networks of continuous layers: ``"tanh"`` or ``"softplus"``.
        adjacency: for autoregressive layers and NAF, which columns a column may depend on in each layer, D rows of D
            truth values: row i has the parents of column i. Needs linear=False; see
            :class:`~cubicflow.nets.MaskedResidualMLP`.
        mask: the half that a coupling layer transforms: ``"alternating"`` (even, odd, even ...) or ``"contiguous"``.
        clip: None for splines on the real line without clipping. A number builds the paper's clipped splines, between a
            sigmoid and a logit.
        linear: use linear layers.
        linear_bias: give linear layers a trainable shift.
        final_linear: add one more linear layer at the end.
        normalise: ``"act"``: an actnorm before each pair of layers, as in Glow. ``"batch"``: batch norm after it, as in
            MAF.
        base_components: 1 for a standard normal base, more for a mixture of normals. For other bases, see ``base``.

    >>> for name, value in TabularConfig.paper_settings().items():
    ...     print(f"{name} = {value}, by default {getattr(TabularConfig(), name)}")
    identity_start = False, by default True
    scale_logits = False, by default True
    mask = contiguous, by default alternating
    clip = 1e-06, by default None
    linear_bias = False, by default True
    final_linear = False, by default True

    A transformer reads a row feature by feature, so two layers replace many. The second layer reads the features
    backwards, and there are no linear layers that mix the features:

    >>> for name, value in TabularConfig.transformer_settings().items():
    ...     print(f"{name} = {value}")
    num_layers = 2
    linear = False
    num_blocks = 4
    num_bins = 12
    affine_first = True
    scale_logits = False
    """

    features: int = 2
    num_layers: int = 10
    layer: str = "coupling"
    network: str = "mlp"
    num_heads: int = 4
    affine_first: bool = False
    order: Sequence[int] | None = None
    activation: str = "tanh"
    adjacency: Sequence[Sequence[bool]] | None = None
    mask: str = "alternating"
    clip: float | None = None
    linear: bool = True
    linear_bias: bool = True
    final_linear: bool = True
    normalise: str | None = None
    base_components: int = 1

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        settings = super().paper_settings()
        return {**settings, "mask": "contiguous", "clip": PAPER_CLIP, "linear_bias": False, "final_linear": False}

    @classmethod
    def transformer_settings(cls) -> dict[str, Any]:
        """Return the defaults that network="transformer" changes. Families that are not splines keep affine_first."""
        counts = {"num_layers": 2, "linear": False, "num_blocks": 4, "num_bins": 12}
        return {**counts, "affine_first": True, "scale_logits": False}

    @classmethod
    def make(cls, paper: bool, settings: dict[str, Any]) -> Self:
        transformer = cls.transformer_settings() if settings.get("network") == "transformer" else {}
        if transformer and not is_spline(settings.get("family", cls.family)):
            del transformer["affine_first"]  # the shift and scale are only for splines
        return super().make(paper, {**transformer, **settings})

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("features", self.features)
        positive("num_layers", self.num_layers)
        one_of("layer", self.layer, LAYERS)
        one_of("network", self.network, ("mlp", "transformer"))
        one_of("mask", self.mask, ("alternating", "contiguous"))
        one_of("normalise", self.normalise, (None, "act", "batch"))
        if self.layer in OWN_NETWORKS and (self.dropout or self.norm is not None):
            raise ValueError(f"layer={self.layer!r} has no residual network; leave out dropout= and norm=")
        if self.layer in WHOLE_ROWS and (self.clip is not None or self.family != "cubic"):
            raise ValueError(f"layer={self.layer!r} has no maps of single numbers; leave out clip= and family=")
        if self.layer == "sylvester" and self.context_features:
            raise ValueError("Sylvester layers take no context; leave out context_features=, or choose another layer=")
        if self.network == "transformer" and self.layer != "autoregressive":
            raise ValueError("network='transformer' needs layer='autoregressive'; coupling layers need network='mlp'")
        if self.network == "transformer" and self.norm is not None:
            raise ValueError(f"network='transformer' has layer norms of its own; leave out norm={self.norm!r}")
        if self.network == "transformer" and not self.residual:
            raise ValueError("network='transformer' is residual; leave out residual=False")
        if self.base is not None and self.base_components != 1:
            raise ValueError(f"give base= or base_components={self.base_components}, not both")
        if self.order is not None and (self.layer != "autoregressive" or self.linear):
            raise ValueError(
                "order needs layer='autoregressive' and linear=False, because linear layers mix the features; set "
                "both, or leave out order="
            )
        masked = self.layer in ("autoregressive", "naf") and self.network == "mlp" and not self.linear
        if self.adjacency is not None and (not masked or self.order is not None):
            raise ValueError(
                "adjacency needs layer='autoregressive' or 'naf', network='mlp', linear=False, and no order=, because "
                "only masked networks keep to a graph of the columns"
            )

    def element_map(self, domain: str | Sequence[str]) -> ElementMap:
        return replace(super().element_map(domain), affine_first=self.affine_first and domain == "real")


def tabular(features: int, *, paper: bool = False, **settings: Any) -> Flow:
    """Return a flow on ``features`` real columns. By default it has ten pairs of an LU linear layer and a cubic-spline
    coupling layer with K = 10 bins, and a standard normal base.

    Args:
        features: D.
        paper: build the paper's model as written; :meth:`TabularConfig.paper_settings` returns the differences.
        settings: the fields of :class:`TabularConfig`.

    >>> import torch
    >>> tabular(6).log_prob(torch.zeros(3, 6)).shape
    torch.Size([3])
    >>> maf = tabular(6, layer="autoregressive", family="affine")
    >>> attention = tabular(6, layer="autoregressive", network="transformer", hidden_features=64)
    """
    config = TabularConfig.make(paper, {**settings, "features": features})
    layers: list[Transform] = []
    if config.network == "transformer" and not config.linear:
        layers.append(Standardise([0.0] * features, [1.0] * features))  # the identity, until whiten sets it
    for i in range(config.num_layers):
        if config.normalise == "act":
            layers.append(ActNorm(features))
        if config.linear:
            layers.append(_linear(config, i))
        layers.append(config.on_the_real_line(partial(LAYERS[config.layer], config, i), config.clip))
        if config.normalise == "batch":
            layers.append(BatchNorm(features))
    if config.linear and config.final_linear:
        layers.append(_linear(config, config.num_layers))
    components = config.base_components
    base = StandardNormal(features) if components == 1 else NormalMixture(features, components, seed=config.seed)
    return config.flow(base, config.directed(Compose(layers)))


def _linear(config: TabularConfig, i: int) -> Transform:
    return LULinear(config.features, bias=config.linear_bias, seed=config.seed + i)


def _autoregressive(config: TabularConfig, i: int, domain: str) -> Transform:
    causal: Any = MaskedResidualMLP
    if config.adjacency is not None:
        causal = partial(MaskedResidualMLP, adjacency=config.adjacency)
    if config.network == "transformer":
        causal = partial(CausalTransformer, num_heads=config.num_heads)
    return Autoregressive(
        config.features,
        config.network_factory(causal),
        config.element_map(domain),
        context_features=config.context_features,
        order=_order(config, i),
    )


def _coupling(config: TabularConfig, i: int, domain: str) -> Transform:
    if config.features == 1 and not config.context_features:  # a coupling network would have no inputs
        return Elementwise(1, config.element_map(domain))
    if config.features == 1:
        mask = [True]
    elif config.mask == "alternating":
        mask = alternating_mask(config.features, even=i % 2 == 0)
    else:
        mask = contiguous_mask(config.features, second=i % 2 == 0)
    return config.coupling(mask, ResidualMLP, domain)


def _naf(config: TabularConfig, i: int, domain: str) -> Transform:
    family = config.family if config.family in SIGMOIDAL_MAPS else "dense_sigmoidal"
    return _autoregressive(replace(config, family=family), i, domain)


def _planar(config: TabularConfig, i: int, _domain: str) -> Transform:
    kind = Planar if config.layer == "planar" else Radial
    network, seed = config.network_factory(ResidualMLP), config.seed + i
    return kind(config.features, context_features=config.context_features, network=network, seed=seed)


def _sylvester(config: TabularConfig, i: int, _domain: str) -> Transform:
    return Sylvester(config.features, seed=config.seed + i)


def _block_naf(config: TabularConfig, i: int, _: str) -> Transform:
    units = max(1, config.hidden_features // config.features)
    sizes = {"depth": config.depth, "context_features": config.context_features, "seed": config.seed + i}
    return _turned(config, i, BlockNAF(config.features, units, **sizes))


def _continuous(config: TabularConfig, _i: int, _domain: str, *, trace: str) -> Transform:
    sizes = config_of(config, "hidden_features", "num_blocks", "activation", "identity_start")
    network = partial(ConcatSquashMLP, **sizes)
    return Continuous(config.features, network, context_features=config.context_features, trace=trace)


def _recurrent(config: TabularConfig, i: int, _domain: str) -> Transform:
    sizes = {"context_features": config.context_features, "seed": config.seed + i}
    return _turned(config, i, Recurrent(config.features, config.hidden_features, **sizes))


def _tan(config: TabularConfig, _i: int, _domain: str) -> Transform:
    features, shift = config.features, ElementMap("additive")
    maps = [Elementwise(features, ElementMap(family)) for family in ("leaky_relu", "affine")]
    network = partial(CausalGRU, **config_of(config, "hidden_features", "num_blocks", "identity_start"))
    recurrent_shift = Autoregressive(features, network, shift, context_features=config.context_features)
    return Compose([*maps, recurrent_shift, Permutation.reversing(features)])


def _turned(config: TabularConfig, i: int, layer: Transform) -> Transform:
    """Return the layer. Without linear layers, each layer but the first sees the features in the reversed order of the
    layer before."""
    return layer if config.linear or i == 0 else Compose([Permutation.reversing(config.features), layer])


def _order(config: TabularConfig, i: int) -> Sequence[int] | None:
    """Return the order of the features in layer i. No order is set with linear layers, which mix the features, and
    with a graph of features, which has its own."""
    if config.linear or config.adjacency is not None or (config.order is None and i % 2 == 0):
        return None
    order = list(range(config.features))
    if config.order is not None:
        order = permutation("order", config.order, config.features)
    return order if i % 2 == 0 else order[::-1]


# The nonlinear layers by name. A function makes layer i of a config on a domain.
LAYERS: dict[str, Callable[[TabularConfig, int, str], Transform]] = {
    "coupling": _coupling,
    "autoregressive": _autoregressive,
    "naf": _naf,
    "planar": _planar,
    "radial": _planar,
    "sylvester": _sylvester,
    "block_naf": _block_naf,
    "continuous": partial(_continuous, trace="exact"),
    "ffjord": partial(_continuous, trace="hutchinson"),
    "recurrent": _recurrent,
    "tan": _tan,
}
# The layers that never have a residual network, and all those without a choice of maps of single numbers.
OWN_NETWORKS = ("block_naf", "continuous", "ffjord", "recurrent", "tan")
WHOLE_ROWS = (*OWN_NETWORKS, "planar", "radial", "sylvester")
