"""The paper's flow for images: Glow, with cubic-spline coupling layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cubicflow.constructors import positive
from cubicflow.distributions import StandardNormal
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import PAPER_CLIP, RecipeConfig
from cubicflow.nets import ResidualConv
from cubicflow.nets.draws import own_generator
from cubicflow.transforms import ActNorm, Compose, Conv1x1, Logit, MultiScale, Standardise, Transform
from cubicflow.transforms.coupling import contiguous_mask
from cubicflow.transforms.multi_scale import level_shapes

PIXEL_VALUES = 256


@dataclass(frozen=True)
class ImageConfig(RecipeConfig):
    """Settings of :func:`image`, beside those of every recipe.

    Attributes:
        shape: (C, H, W) of one image.
        num_levels: scales; each begins by a squeeze, so H and W must halve that often.
        num_layers: steps of actnorm, 1x1 convolution and coupling at each level.
        clip: None for the real line without clipping; a number for the paper's clipped sandwich.
        logit_margin: pixel values are mapped to [margin, 1 - margin] before the logit.
        direction: ``"data"`` alone: images become vectors of noise, so the two do not change places.

    >>> ImageConfig.paper_settings()["clip"], ImageConfig().clip
    (1e-06, None)
    """

    shape: tuple[int, ...] = (1, 28, 28)
    num_levels: int = 2
    num_layers: int = 8
    hidden_features: int = 96
    clip: float | None = None
    logit_margin: float = 0.05

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        return {**super().paper_settings(), "clip": PAPER_CLIP}

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("num_layers", self.num_layers)
        if self.direction != "data":
            raise ValueError(
                f"an image flow has the direction 'data' alone, got {self.direction!r}: its transform takes images and "
                "returns vectors, so it cannot be turned round; leave direction= out"
            )
        if not 0 < self.logit_margin < 0.5:
            raise ValueError(f"logit_margin must lie between 0 and 0.5, got {self.logit_margin}")


def image(shape: Sequence[int] = (1, 28, 28), *, paper: bool = False, **settings: Any) -> Flow:
    """A density of images whose pixels are 0 .. 255 plus uniform noise in [0, 1) (:func:`dequantise`): at each of the
    scales, steps of actnorm, 1x1 convolution and coupling with convolutional networks.

    The map of pixel values to the real line, and its log-det, are part of the flow: ``log_prob`` is per image in units
    of pixel values, and :func:`bits_per_dim` turns it into bits.

    28 x 28 halves twice, so there are two scales by default. Padding to 32 would allow three, but the model would then
    spend itself on 240 pixels that nobody asked for and that a likelihood has to leave out again.

    >>> flow = image((1, 8, 8), num_layers=1, hidden_features=8)
    >>> pixels = torch.randint(256, (3, 1, 8, 8), dtype=torch.uint8)
    >>> bits_per_dim(flow.log_prob(dequantise(pixels)), pixels[0].numel()).shape
    torch.Size([3])
    """
    config = ImageConfig.make(paper, {**settings, "shape": tuple(shape)})
    levels = [
        Compose(
            [part for i in range(config.num_layers) for part in _step(config, channels, level * config.num_layers + i)]
        )
        for level, (channels, _, _) in enumerate(level_shapes(config.shape, config.num_levels))
    ]
    scale = PIXEL_VALUES / (1 - 2 * config.logit_margin)
    channels = config.shape[0]
    to_unit = Standardise([-config.logit_margin * scale] * channels, [scale] * channels)
    transform = Compose([to_unit, Logit(), MultiScale(levels, config.shape)])
    return Flow(StandardNormal(math.prod(config.shape)), transform, config.shape)


def dequantise(pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Whole pixel values plus uniform noise in [0, 1): the density of the sum, at any point of a unit cell, averages to
    the probability of the cell, so its log likelihood is a lower bound on that of the whole values.

    >>> bool((dequantise(torch.zeros(4, 1, 2, 2)) < 1).all())
    True
    """
    pixels = pixels.to(torch.get_default_dtype())
    generator = own_generator(pixels.device) if generator is None else generator
    noise = torch.rand(pixels.shape, dtype=pixels.dtype, device=pixels.device, generator=generator)
    return pixels + noise


def bits_per_dim(log_prob: Tensor, num_pixels: int) -> Tensor:
    """Nats per image to bits per pixel value.

    >>> bits_per_dim(torch.tensor([-784 * math.log(256)]), 784)
    tensor([8.])
    """
    return -log_prob / (num_pixels * math.log(2))


def _step(config: ImageConfig, channels: int, i: int) -> list[Transform]:
    coupling = partial(config.coupling, contiguous_mask(channels), ResidualConv)
    convolution = Conv1x1(channels, seed=config.seed + i)
    return [ActNorm(channels), convolution, config.on_the_real_line(coupling, config.clip)]
