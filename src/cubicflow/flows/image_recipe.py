"""The paper's flow for images: Glow with cubic-spline coupling layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cubicflow.arguments import number, positive
from cubicflow.distributions import StandardNormal
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import PAPER_CLIP, RecipeConfig
from cubicflow.nets import ResidualConv
from cubicflow.nets.rng import current_generator
from cubicflow.transforms import ActNorm, Compose, Conv1x1, Logit, MultiScale, Standardise, Transform
from cubicflow.transforms.coupling import contiguous_mask
from cubicflow.transforms.multi_scale import level_shapes

PIXEL_VALUES = 256  # number of values of a pixel


@dataclass(frozen=True)
class ImageConfig(RecipeConfig):
    """Settings of :func:`image`, in addition to those of :class:`~cubicflow.flows.recipe_config.RecipeConfig`.

    Attributes:
        shape: (C, H, W) of one image.
        num_levels: the number of scales. Each scale starts with a squeeze, so H and W must be divisible by 2 that many
            times.
        num_layers: the number of steps per level. A step is an actnorm, a 1x1 convolution and a coupling layer.
        clip: None for splines on the real line without clipping. A number builds the paper's clipped splines, between a
            sigmoid and a logit.
        logit_margin: pixel values are mapped to [margin, 1 - margin] before the logit.
        direction: only ``"data"``. The transform takes images and returns vectors, so it cannot be inverted in place.

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
                f"an image flow supports only direction='data', got {self.direction!r}: its transform takes images and "
                "returns vectors; leave out direction="
            )
        number("logit_margin", self.logit_margin, above=0, below=0.5)


def image(shape: Sequence[int] = (1, 28, 28), *, paper: bool = False, **settings: Any) -> Flow:
    """Return a flow on images. Pixels are 0 .. 255 plus uniform noise in [0, 1), see :func:`dequantise`. Each scale has
    several steps of actnorm, 1x1 convolution and coupling with convolutional networks.

    The map from pixel values to the real line is part of the flow, with its log-det. ``log_prob`` is therefore the log
    density of an image in units of pixel values. :func:`bits_per_dim` converts it to bits.

    28 is divisible by 2 twice, so the default is two scales. Padding to 32 would allow three scales. The model would
    then also have to fit 240 padded pixels, and a likelihood would have to leave these pixels out again.

    Args:
        shape: (C, H, W) of one image.
        paper: build the paper's model; see :meth:`ImageConfig.paper_settings`.
        settings: the fields of :class:`ImageConfig`.

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
    return config.flow(StandardNormal(math.prod(config.shape)), transform, config.shape)


def dequantise(pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return whole pixel values plus uniform noise in [0, 1).

    The mean density over a unit cell is the probability of the cell. The mean log density is therefore a lower bound on
    the log probability of the whole pixel values.

    >>> bool((dequantise(torch.zeros(4, 1, 2, 2)) < 1).all())
    True
    """
    pixels = pixels.to(torch.get_default_dtype())
    generator = current_generator(pixels.device) if generator is None else generator
    noise = torch.rand(pixels.shape, dtype=pixels.dtype, device=pixels.device, generator=generator)
    return pixels + noise


def bits_per_dim(log_prob: Tensor, num_pixels: int) -> Tensor:
    """Convert a log density in nats per image to bits per pixel value.

    >>> bits_per_dim(torch.tensor([-784 * math.log(256)]), 784)
    tensor([8.])
    """
    return -log_prob / (num_pixels * math.log(2))


def _step(config: ImageConfig, channels: int, i: int) -> list[Transform]:
    coupling = partial(config.coupling, contiguous_mask(channels), ResidualConv)
    convolution = Conv1x1(channels, seed=config.seed + i)
    return [ActNorm(channels), convolution, config.on_the_real_line(coupling, config.clip)]
