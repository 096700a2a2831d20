"""The paper's flow for two-dimensional densities: coupling layers on the unit square, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from cubicflow.constructors import positive
from cubicflow.distributions import Uniform
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import RecipeConfig
from cubicflow.nets import FourierMLP
from cubicflow.transforms import Compose
from cubicflow.transforms.coupling import alternating_mask


@dataclass(frozen=True)
class PlaneConfig(RecipeConfig):
    """Settings of :func:`plane`, beside those of every recipe.

    Attributes:
        features: 2, or more for a cube.
        num_layers: coupling layers; each transforms the half that told the one before it.
        octaves: of sines and cosines of its inputs that a network sees beside them; the paper's sees the inputs alone.

    >>> PlaneConfig.paper_settings()["octaves"], PlaneConfig().octaves
    (0, 9)
    """

    features: int = 2
    num_layers: int = 2
    num_bins: int = 128
    hidden_features: int = 64
    octaves: int = 9

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        return {**super().paper_settings(), "octaves": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("num_layers", self.num_layers)
        if self.features < 2:
            raise ValueError(f"a plane flow needs at least 2 features, got {self.features}; use tabular for one")


def plane(features: int = 2, *, paper: bool = False, **settings: Any) -> Flow:
    """A density on the unit square: two coupling layers that swap halves, K = 128 bins, uniform base. Outside the
    square the log density is -inf.

    With its defaults it has 69,896 parameters, a quarter of those of a histogram of 512 x 512.

    >>> import torch
    >>> flow = plane()
    >>> flow.log_prob(torch.tensor([[0.5, 0.5], [0.5, 1.5]]))
    tensor([0., -inf], grad_fn=<ViewBackward0>)
    """
    config = PlaneConfig.make(paper, {**settings, "features": features})
    network = partial(FourierMLP, octaves=config.octaves)
    masks = [alternating_mask(features, even=i % 2 == 0) for i in range(config.num_layers)]
    layers = [config.coupling(mask, network, "unit") for mask in masks]
    return Flow(Uniform(features), config.directed(Compose(layers)))
