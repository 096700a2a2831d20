"""The paper's flow for two-dimensional densities: coupling layers on the unit square, without linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from cubicflow.arguments import positive
from cubicflow.distributions import Uniform
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import RecipeConfig
from cubicflow.nets import FourierMLP
from cubicflow.transforms import Compose
from cubicflow.transforms.coupling import alternating_mask


@dataclass(frozen=True)
class PlaneConfig(RecipeConfig):
    """Settings of :func:`plane`, in addition to those of :class:`~cubicflow.flows.recipe_config.RecipeConfig`.

    Attributes:
        features: 2, or more for a cube.
        num_layers: the number of coupling layers. Successive layers transform opposite halves.
        octaves: the number of octaves of sines and cosines of its inputs that a network sees. The paper's network has
            0.

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
    """Return a flow on the unit square: two coupling layers that swap halves, K = 128 bins, and a uniform base. Outside
    the square the log density is -inf.

    The default flow has 69,896 parameters, a quarter as many as a histogram of 512 x 512 cells.

    Args:
        features: 2, or more for a cube.
        paper: build the paper's model; see :meth:`PlaneConfig.paper_settings`.
        settings: the fields of :class:`PlaneConfig`.

    >>> import torch
    >>> flow = plane()
    >>> flow.log_prob(torch.tensor([[0.5, 0.5], [0.5, 1.5]]))
    tensor([0., -inf], grad_fn=<ViewBackward0>)
    """
    config = PlaneConfig.make(paper, {**settings, "features": features})
    network = partial(FourierMLP, octaves=config.octaves)
    masks = [alternating_mask(features, even=i % 2 == 0) for i in range(config.num_layers)]
    layers = [config.coupling(mask, network, "unit") for mask in masks]
    return config.flow(Uniform(features), config.directed(Compose(layers)))
