"""The summary of a benchmark run: time ratios, memory ratios, and the growth of times along curves.

Our times are compared with nflows, with a copy of as many bytes, and with the networks alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from cubicflow.bench.timing import Measurement, milliseconds
from cubicflow.bench.workloads import CAPTURED, FLOOR, NETWORKS_ALONE, OURS

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


def glance(measurements: Sequence[Measurement]) -> list[str]:
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
    return markdown([HEADS[i] for i in kept], [[line[i] for i in kept] for line in lines])


def _against(m: Measurement, rival: str, times: Mapping[str, float]) -> list[str]:
    faster = f"{times[rival] / m.median:.3g}" if rival in times else ""
    return [m.work, m.implementation, milliseconds(m.median), faster]


def growth(measurements: Sequence[Measurement]) -> list[str]:
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
    return markdown(["work", "implementation", "ms", "exponent at the end"], lines)


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; an empty list for a table without lines."""
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)] if lines else []
