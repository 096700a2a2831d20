"""What figure 2 says in words: the table of its densities, and what limits their sharpness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cubicflow.reproduce.experiment import markdown_table
from cubicflow.reproduce.sharpness import cost_of_points

Row = Mapping[str, Any]


def density_table(rows: Sequence[Row]) -> str:
    """Return a table in Markdown, a line for each density.

    >>> density_table([]).splitlines()[0][:41]
    '| density | log likelihood, nats | truth '
    """
    header = [
        *("density", "log likelihood, nats", "truth", "gap", "gap on training points", "blocks, pixels"),
        *("gap of a histogram (blocks, pixels)", "parameters", "steps", "minutes of training"),
    ]
    lines = [
        [
            row["density"],
            f"{row['score']:.3f}",
            f"{row['truth']:.3f}",
            f"{row['gap']:.4f} ± {row['gap_error']:.4f}",
            f"{row['training_gap']:.4f} ± {row['training_gap_error']:.4f}",
            block_range(row),
            f"{row['histogram_gap']:.4f} ({row['histogram_blocks']})",
            f"{row['parameters']:,}",
            f"{row['steps']:,}",
            f"{row['seconds'] / 60:.1f}",
        ]
        for row in rows
    ]
    return markdown_table(header, lines) + "\n"


def block_range(row: Row) -> str:
    """Return the block size whose averages of the truth are as far from it as the flow, with those at two standard errors less
    and more. A flow that is further from the truth than the uniform density has none.

    >>> block_range({"blocks": 8.84, "blocks_low": 7.9, "blocks_high": 9.71})
    '8.8 (7.9 to 9.7)'
    >>> block_range({"blocks": 0.934, "blocks_low": 0.91, "blocks_high": None})
    '0.93 (0.91 to the whole square)'
    """
    if row["blocks"] is None:
        return "none"
    low, high = _pixels(row["blocks_low"]), row["blocks_high"]
    return f"{_pixels(row['blocks'])} ({low} to {'the whole square' if high is None else _pixels(high)})"


def what_limits(record: Mapping[str, Any]) -> str:
    """What the record says on the sharpness of the densities; nothing if it was made before that was measured.

    >>> what_limits({"results": {"densities": [{"density": "Gauss", "gap": 0.01}]}, "settings": {}})
    ''
    """
    rows, settings = record["results"]["densities"], record["settings"]
    if not all("blocks" in row for row in rows):
        return ""
    points, pixels = settings["points"], settings["pixels"]

    def each(tell: Callable[[Row], str]) -> str:
        return "; ".join(f"{row['density']} {tell(row)}" for row in rows)

    return (
        f"What limits the sharpness: {points:,} points on {pixels} x {pixels} pixels are {points / pixels**2:.1f} "
        "points a pixel. The flow is as close to the truth as the truth averaged over square blocks of so many pixels "
        f"a side, in brackets at two standard errors of the gap less and more: {each(block_range)}. A histogram of "
        "the same points, with the block size and the constant added to every count that are best when each point in "
        "turn is left out, has a gap on unseen points of "
        f"{each(lambda row: '{histogram_gap:.4f} with blocks of {histogram_blocks} pixels'.format(**row))}. On the "
        "points that it was fitted to, the flow's gap is "
        f"{each(lambda row: '{training_gap:.4f} ± {training_gap_error:.4f}'.format(**row))}. Half the difference of a "
        "flow's two gaps is about what the number of points costs, and the rest is what the flow does not express or "
        f"did not learn: the points cost {each(_cost_of_points)}."
    )


def _cost_of_points(row: Row) -> str:
    cost = cost_of_points(row["gap"], row["training_gap"])
    error = cost_of_points(math.hypot(row["gap_error"], row["training_gap_error"]), 0)  # the two are independent
    return f"{cost:.4f} ± {error:.4f} of {row['gap']:.4f}"


def _pixels(size: float) -> str:
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"
