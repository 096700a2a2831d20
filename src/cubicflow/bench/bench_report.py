"""The output of a benchmark run: a CSV file, Markdown tables and pictures."""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from cubicflow.bench import peers
from cubicflow.bench.multiples import glance, growth, markdown, ours
from cubicflow.bench.pictures import draw_curve, draw_times
from cubicflow.bench.timing import Measurement, milliseconds
from cubicflow.bench.workloads import CAPTURED

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


def machine(device: str) -> dict[str, Any]:
    """Return the versions and the hardware of this run."""
    versions = {"python": platform.python_version()}
    for name in ("cubicflow", "torch", "triton", "numpy", *peers.NAMES):
        if version := _version(name):
            versions[name] = version
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"versions": versions, "processor": _processor(), "threads": torch.get_num_threads(), "gpu": gpu}


def _version(name: str) -> str | None:
    """Return the version of an installed package, or the ``__version__`` of a package that is only on the path."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    for module in (name, f"{name}.version"):
        with suppress(ImportError, AttributeError):
            return str(importlib.import_module(module).__version__)
    return None


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
    tables = {GLANCE: glance(measurements), GROWTH: growth(measurements), EVERY_ROW: _table(measurements)}
    for text, table in tables.items():
        if table:
            lines += ["", text, "", *table]
    return "\n".join(lines) + "\n"


def _hardware(about: Mapping[str, Any]) -> str:
    return f"{about['gpu'] or about['processor']} ({about['threads']} threads)"


def _versions(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in about["versions"].items())


def _table(measurements: Sequence[Measurement]) -> list[str]:
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
    return markdown(["work", "implementation", "ms", "10 % – 90 %", "memory, MB", "x ours"], rows)


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
