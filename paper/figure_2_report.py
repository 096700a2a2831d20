"""The report of figure 2: a table of the densities, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
        *("density", "log likelihood, nats", "truth", "gap", "gap on training points", "cost of the points"),
        *("blocks, pixels", "gap of a histogram (blocks, pixels)", "parameters", "steps", "minutes of training"),
    ]
    lines = [
        [
            row["density"],
            f"{row['score']:.3f}",
            f"{row['truth']:.3f}",
            f"{row['gap']:.4f} ± {row['gap_error']:.4f}",
            f"{row['training_gap']:.4f} ± {row['training_gap_error']:.4f}",
            _cost_of_points(row),
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


def how_to_read(settings: Mapping[str, Any]) -> str:
    """Return a paragraph on the columns of the table."""
    points, pixels, unseen = settings["points"], settings["pixels"], settings["test_points"]
    return (
        f"The gap is the distance from the true density's log likelihood, in nats, on {unseen:,} unseen points. Half "
        "the difference of the gaps on unseen and on training points is about the cost of a finite number of points: "
        f"{points:,} points on {pixels} x {pixels} pixels are {points / pixels**2:.1f} points a pixel. The rest is "
        "what the flow cannot express or did not learn. The true density, averaged over square blocks with a side of "
        "this many pixels, has the gap of the flow (in brackets: that gap minus and plus two standard errors). The "
        "histogram has the same points; its blocks, and the constant added to every count, are chosen by leave-one-out "
        "cross-validation."
    )


def _cost_of_points(row: Row) -> str:
    cost = cost_of_points(row["gap"], row["training_gap"])
    error = cost_of_points(math.hypot(row["gap_error"], row["training_gap_error"]), 0)  # both errors are independent
    return f"{cost:.4f} ± {error:.4f}"


def _pixels(size: float) -> str:
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"
