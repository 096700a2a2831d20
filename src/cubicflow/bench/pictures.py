"""Pictures of measurements: times side by side, and curves of time against size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cubicflow.bench.timing import Measurement, milliseconds
from cubicflow.bench.workloads import OURS

OURS_COLOUR, THEIR_COLOUR = "tab:blue", "tab:gray"
ALONG = {"features": "D, features", "elements": "elements, K = 10", "bins": "K, bins"}


def draw_times(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw times on a logarithmic axis, with one panel for each workload. Times can differ by a factor of hundreds."""
    from matplotlib.figure import Figure

    works = list(dict.fromkeys((m.work, m.device) for m in measurements))
    groups = [[m for m in measurements if (m.work, m.device) == work] for work in works]
    heights = [0.18 * len(group) + 0.7 for group in groups]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    axes = figure.subplots(len(works), 1, squeeze=False, height_ratios=heights)
    for (work, device), group, axis in zip(works, groups, axes[:, 0], strict=True):
        colours = [OURS_COLOUR if m.implementation.startswith(OURS) else THEIR_COLOUR for m in group]
        axis.scatter([m.median for m in group], [m.implementation for m in group], color=colours, s=18, zorder=2)
        for m in group:
            where = (m.median, m.implementation)
            axis.annotate(f"{milliseconds(m.median)} ms", where, (5, -3), textcoords="offset points", fontsize=8)
        axis.set(title=f"{work}, {device.upper()}", xscale="log")
        axis.set_xlim(min(m.median for m in group) / 1.5, max(m.median for m in group) * 2.5)
        axis.grid(axis="y", alpha=0.3)
        axis.title.set_fontsize(9)
        axis.tick_params(labelsize=8)
        axis.minorticks_off()
        axis.margins(y=0.1)
        axis.invert_yaxis()
    figure.savefig(path, dpi=110)


def draw_curve(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw time against size, with one panel for each kind of workload. A line of slope 1 means linear growth."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(m.work.split(",")[0] for m in measurements))
    names = list(dict.fromkeys(m.implementation for m in measurements))
    figure = Figure(figsize=(4.2 * len(kinds), 4.4), layout="constrained")
    axes = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for kind, axis in zip(kinds, axes, strict=True):
        group = [m for m in measurements if m.work.split(",")[0] == kind]
        for i, name in enumerate(names):  # a name has the same colour in all panels, even if a panel lacks it
            points = sorted((m.at, m.median) for m in group if m.implementation == name and m.at is not None)
            if points:
                width = 2.2 if name.startswith(OURS) else 1.2
                axis.plot(*zip(*points, strict=True), marker=".", color=f"C{i}", lw=width, label=name)
        axis.set_xscale("log", base=2)
        if max(m.at for m in group if m.at is not None) < 1000:
            axis.xaxis.set_major_formatter("{x:.0f}")
        axis.set(yscale="log", title=kind, xlabel=ALONG[measurements[0].curve])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"ms, {measurements[0].device.upper()}")
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
