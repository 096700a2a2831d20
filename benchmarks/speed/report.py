"""The report of a run: a CSV file, Markdown tables with ratios of times and of memory, and pictures.

Our times are compared with nflows, with a copy of as many bytes, and with the networks alone.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.markdown import markdown_table
from benchmarks.speed.timing import Measurement, milliseconds
from benchmarks.speed.workloads import CAPTURED, FLOOR, NETWORKS_ALONE, OURS

CSV_FILE, MACHINE_FILE, PAGE_FILE = "bench.csv", "machine.json", "bench.md"

GLANCE = "Summary, with all ratios from this run:"
GROWTH = (
    "Growth of the times from the first to the last point of each curve. The exponent is computed from the last two "
    "points: 1 means that time grows in proportion, 0 that it does not grow."
)
EVERY_ROW = (
    "All rows, with the 10th and 90th percentiles. Memory is the peak of the first run minus the memory before it; a "
    "replayed graph allocates no memory. The last column is the time divided by the time of our plain call in the same "
    "run."
)

FROM_TEXT: dict[Any, Callable[[str], Any]] = {  # parser for each field type of Measurement
    "str": str,
    "float": float,
    "int": int,
    "int | None": lambda text: int(text) if text else None,
}

QUADRATIC, RATIONAL, REFERENCE = f"{OURS} quadratic", f"{OURS} rational-quadratic", f"{OURS} reference"
NFLOWS, NFLOWS_RATIONAL = "nflows cubic", "nflows rational-quadratic"
HEADS = (
    "work",
    "ours",
    "ms",
    "times faster than nflows",
    "x a copy of as many bytes",
    "x its networks alone",
    "x our quadratic",
    "memory, x (params + gradient)",
)
OURS_COLOUR, THEIR_COLOUR = "tab:blue", "tab:gray"
ALONG = {"features": "D, features", "elements": "elements, K = 10", "bins": "K, bins"}


def write(folder: Path, measurements: Sequence[Measurement], command: str) -> None:
    """Write the CSV file, the description of the machine and the tables to a folder. :func:`draw` adds the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"command": command, **machine("cuda" if any(m.device == "cuda" for m in measurements) else "cpu")}
    (folder / MACHINE_FILE).write_text(json.dumps(about, indent=2) + "\n")
    origin = {"hardware": _hardware(about), "versions": _versions(about)}  # in every row, so that CSVs can be joined
    with (folder / CSV_FILE).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*(field.name for field in fields(Measurement)), *origin])
        writer.writeheader()
        writer.writerows(asdict(measurement) | origin for measurement in measurements)
    (folder / PAGE_FILE).write_text(page(folder))


def draw(folder: Path) -> None:
    """Draw the pictures of the measurements in a folder."""
    measurements = read(folder / CSV_FILE)
    if bars := [m for m in measurements if not m.curve]:
        draw_times(folder / "bench.png", bars)
    for curve in dict.fromkeys(m.curve for m in measurements if m.curve):
        draw_curve(folder / f"{curve}.png", [m for m in measurements if m.curve == curve])


def read(path: Path) -> list[Measurement]:
    """Read the measurements from a CSV file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Measurement(**{f.name: FROM_TEXT[f.type](row[f.name]) for f in fields(Measurement)}) for row in rows]


def page(folder: Path) -> str:
    """Return the Markdown page of a folder: a summary, and all rows of its CSV file."""
    measurements = read(folder / CSV_FILE)
    about = json.loads((folder / MACHINE_FILE).read_text())
    lines = [f"Measured by `{about['command']}` on {_hardware(about)}, {_versions(about)}. Times are medians."]
    tables = {GLANCE: glance(measurements), GROWTH: growth(measurements), EVERY_ROW: every_row(measurements)}
    for text, table in tables.items():
        if table:
            lines += ["", text, "", table]
    return "\n".join(lines) + "\n"


def _hardware(about: Mapping[str, Any]) -> str:
    return f"{about['gpu'] or about['processor']} ({about['threads']} threads)"


def _versions(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in about["versions"].items())


def every_row(measurements: Sequence[Measurement]) -> str:
    """Return a Markdown table of all measurements."""
    rows: list[list[str]] = []
    for work in dict.fromkeys((m.work, m.device, m.curve) for m in measurements):
        group = [m for m in measurements if (m.work, m.device, m.curve) == work]
        plain = [m.median for m in ours(group) if not m.implementation.endswith(CAPTURED)]
        rows += [
            [
                f"{m.work}, {m.device.upper()}",
                m.implementation,
                milliseconds(m.median),
                f"{milliseconds(m.p10)} – {milliseconds(m.p90)}",
                "" if m.peak_memory is None else f"{m.peak_memory / 1e6:.0f}",
                f"{m.median / min(plain):.2f}" if plain else "",
            ]
            for m in group
        ]
    return _table(["work", "implementation", "ms", "10 % – 90 %", "memory, MB", "x ours"], rows)


def ours(group: Sequence[Measurement]) -> list[Measurement]:
    """Return our measurements of a cubic flow or spline. The plain PyTorch reference is left out if there are
    others."""
    mine = [
        m for m in group if m.implementation.startswith(OURS) and not m.implementation.startswith((QUADRATIC, RATIONAL))
    ]
    return [m for m in mine if m.implementation != REFERENCE] or mine


def memory_ratio(measurement: Measurement) -> float | None:
    """Return the peak memory of forward and backward divided by the memory of params and their gradient.

    No implementation can use less than params and their gradient. The measured peak does not include params, because
    params exist before the run, so they are added here.
    """
    size = re.search(r"forward \+ backward, ([\d,]+) elements, K = (\d+)", measurement.work)
    if measurement.peak_memory is None or size is None:
        return None
    params = int(size[1].replace(",", "")) * (2 * int(size[2]) + 2) * 4
    return (params + measurement.peak_memory) / (2 * params)


def glance(measurements: Sequence[Measurement]) -> str:
    """Return a Markdown table of all workloads that are not points of a curve and not parts of a cold start.

    Our rational-quadratic spline is compared with that of nflows only. It has more params than the cubic spline, so the
    ratios to numbers of bytes do not apply.
    """
    lines = []
    for work in dict.fromkeys(m.work for m in measurements if not m.curve and not m.work.startswith("cold start:")):
        group = [m for m in measurements if m.work == work and not m.curve]
        times = {m.implementation: m.median for m in group}
        for m in ours(group):
            quadratic = QUADRATIC + (CAPTURED if m.implementation.endswith(CAPTURED) else "")
            ratios = [m.median / times[n] if n in times else None for n in (FLOOR, NETWORKS_ALONE, quadratic)]
            shown = ["" if ratio is None else f"{ratio:.2f}" for ratio in (*ratios, memory_ratio(m))]
            lines.append([*_against(m, NFLOWS, times), *shown])
        lines += [
            [*_against(m, NFLOWS_RATIONAL, times), "", "", "", ""]
            for m in group
            if m.implementation.startswith(RATIONAL)
        ]
    kept = [i for i in range(len(HEADS)) if any(line[i] for line in lines)]
    return _table([HEADS[i] for i in kept], [[line[i] for i in kept] for line in lines])


def _against(m: Measurement, rival: str, times: Mapping[str, float]) -> list[str]:
    faster = f"{times[rival] / m.median:.3g}" if rival in times else ""
    return [m.work, m.implementation, milliseconds(m.median), faster]


def growth(measurements: Sequence[Measurement]) -> str:
    """Return a Markdown table of times that were measured at several sizes, one line per curve.

    A line has the times at the first and at the last size, and the exponent between the last two sizes.
    """
    curves: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for m in measurements:
        if m.at is not None and m.implementation != FLOOR:
            curves.setdefault((m.curve, m.work.split(",")[0], m.implementation), []).append((m.at, m.median))
    lines = []
    for (curve, kind, implementation), points in curves.items():
        if len(points) < 2:
            continue
        (first, begin), *_, (before, nearly), (last, end) = [points[0], *sorted(points)]
        exponent = math.log(end / nearly) / math.log(last / before)
        ends = f"{milliseconds(begin)} → {milliseconds(end)}"
        lines.append([f"{kind}, {curve} {first:,} → {last:,}", implementation, ends, f"{exponent:.2f}"])
    return _table(["work", "implementation", "ms", "exponent at the end"], lines)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return markdown_table(heads, lines) if lines else ""


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
