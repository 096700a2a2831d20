"""Flows on boxes. Each column is an interval, a circle or the real line. There is no density outside the box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cubicflow.arguments import positive
from cubicflow.distributions import ByColumn
from cubicflow.flows.flow import Flow
from cubicflow.flows.recipe_config import RecipeConfig
from cubicflow.nets import ResidualMLP
from cubicflow.transforms import Compose, Elementwise, Standardise, Transform


@dataclass(frozen=True)
class BoxConfig(RecipeConfig):
    """Settings of :func:`box`, in addition to those of :class:`~cubicflow.flows.recipe_config.RecipeConfig`.

    Attributes:
        num_layers: the number of coupling layers. None: enough layers for every column to influence every other column
            twice, but at most ten.

    >>> BoxConfig().hidden_features
    64
    """

    num_layers: int | None = None
    num_bins: int = 16
    hidden_features: int = 64


def box(bounds: Sequence[tuple[float, float]], *, circles: Sequence[int] = (), **settings: Any) -> Flow:
    """Return a flow on a box. A side may be an interval, a circle or the real line. Outside the box the log density is
    -inf, except that an angle of another turn is the same point. Samples never leave the box.

    Args:
        bounds: (low, high) for each column, or (-inf, inf) for the whole real line.
        circles: the numbers of the circular columns, such as angles. On a circle low and high are the same point, and
            the density is continuous there. Networks see the sine and cosine of a circular column.
        settings: the fields of :class:`BoxConfig`.

    >>> import torch
    >>> flow = box([(0, 10), (-math.inf, math.inf), (0, 2 * math.pi)], circles=[2])
    >>> flow.log_prob(torch.tensor([[5.0, 0.0, 1.0], [11.0, 0.0, 1.0]])).isfinite()
    tensor([ True, False])
    """
    config = BoxConfig.make(False, settings)
    ends = [_ends(i, pair) for i, pair in enumerate(bounds)]
    if not ends:
        raise ValueError("bounds is empty; give one pair (low, high) for each column")
    for i in circles:
        if i not in range(len(ends)) or math.isinf(ends[i][0]):
            raise ValueError(
                f"circles holds {i!r}, but a circle must be the number of a column with finite bounds, 0 to "
                f"{len(ends) - 1}"
            )
    lines = [math.isinf(low) for low, _ in ends]
    domains = ["real" if line else "circle" if i in circles else "unit" for i, line in enumerate(lines)]
    to_unit = Standardise(
        [0.0 if line else low for (low, _), line in zip(ends, lines, strict=True)],
        [1.0 if line else high - low for (low, high), line in zip(ends, lines, strict=True)],
    )
    layers = _layers(config, domains)
    # The scaling comes first in both directions, because the splines need columns on the unit interval.
    inner = layers if config.direction == "data" else [config.directed(Compose(layers))]
    return config.flow(ByColumn(domains), Compose([to_unit, *inner]))


def _layers(config: BoxConfig, domains: list[str]) -> list[Transform]:
    if len(domains) == 1 and not config.context_features:
        return [Elementwise(1, config.element_map(domains[0]))]
    masks = [[True]] * 2 if len(domains) == 1 else binary_masks(len(domains)) * 2
    wanted = min(10, len(masks)) if config.num_layers is None else positive("num_layers", config.num_layers)
    return [config.coupling(mask, ResidualMLP, domains) for mask in (masks * wanted)[:wanted]]


def binary_masks(features: int) -> list[list[bool]]:
    """Return masks for which every column influences every other column. For each binary digit b, one mask has the
    columns with a 1 in digit b of their number, and the next mask has the other columns.

    >>> binary_masks(4)
    [[False, True, False, True], [True, False, True, False], [False, False, True, True], [True, True, False, False]]
    """
    masks = []
    for b in range((features - 1).bit_length()):
        ones = [bool(i >> b & 1) for i in range(features)]
        masks += [ones, [not one for one in ones]]
    return masks


def _ends(i: int, pair: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError):
        raise TypeError(f"bounds[{i}] must be a pair of numbers (low, high), got {pair!r}") from None
    if not low < high:
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}): low must be below high")
    if math.isinf(low) != math.isinf(high):
        raise ValueError(
            f"bounds[{i}] = ({low:g}, {high:g}) is infinite on one side; take the logarithm of the column and use "
            "(-inf, inf)"
        )
    return low, high
