"""The report of figure 2: a table of the densities, and a paragraph on what limits their sharpness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.markdown import markdown_table

from paper.sharpness import cost_of_points

Row = Mapping[str, Any]


def density_table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each density.

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
    """Format the block size, in pixels, and its range at two standard errors of the gap below and above.

    The true density, averaged over blocks of this size, has the same gap as the flow. The block size is "none" if the
    flow is farther from the truth than the uniform density.

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
    """Return the paragraph on the sharpness of the densities; empty for an old record without these measurements.

    >>> what_limits({"results": {"densities": [{"density": "Gauss", "gap": 0.01}]}, "settings": {}})
    ''
    """
    rows, settings = record["results"]["densities"], record["settings"]
    if not all("blocks" in row for row in rows):
        return ""
    points, pixels = settings["points"], settings["pixels"]

    def each(describe: Callable[[Row], str]) -> str:
        return "; ".join(f"{row['density']} {describe(row)}" for row in rows)

    return (
        f"What limits the sharpness: {points:,} points on {pixels} x {pixels} pixels are {points / pixels**2:.1f} "
        "points a pixel. The true density, averaged over square blocks, has the same gap as the flow for blocks with a "
        "side of this many pixels (in brackets: for the gap minus and plus two standard errors): "
        f"{each(block_range)}. A histogram of the same points has a gap on unseen points of "
        f"{each(lambda row: '{histogram_gap:.4f} with blocks of {histogram_blocks} pixels'.format(**row))}. The block "
        "size, and the constant added to every count, are chosen by leave-one-out cross-validation. On the training "
        "points, the flow's gap is "
        f"{each(lambda row: '{training_gap:.4f} ± {training_gap_error:.4f}'.format(**row))}. Half the difference of a "
        "flow's two gaps is approximately the cost of a finite number of points. The rest is what the flow cannot "
        f"express or did not learn. By this estimate, the points cost {each(_cost_of_points)}."
    )


def _cost_of_points(row: Row) -> str:
    cost = cost_of_points(row["gap"], row["training_gap"])
    error = cost_of_points(math.hypot(row["gap_error"], row["training_gap_error"]), 0)  # both errors are independent
    return f"{cost:.4f} ± {error:.4f} of {row['gap']:.4f}"


def _pixels(size: float) -> str:
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"
