"""What a run of measurements leaves behind: a CSV, a table, pictures."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from cubicflow.bench.pictures import draw_bars, draw_curve
from cubicflow.bench.timing import Measurement, milliseconds
from cubicflow.bench.workloads import OURS

CSV_FILE, MACHINE_FILE, TABLE_FILE = "bench.csv", "machine.json", "bench.md"


def machine() -> dict[str, Any]:
    """The versions and the hardware of this run."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name in ("cubicflow", "torch", "triton", "numpy", "nflows", "zuko", "normflows"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"versions": versions, "processor": _processor(), "threads": torch.get_num_threads(), "gpu": gpu}


def write(folder: Path, measurements: Sequence[Measurement], command: str) -> None:
    """Everything into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"command": command, **machine()}
    (folder / MACHINE_FILE).write_text(json.dumps(about, indent=2) + "\n")
    with (folder / CSV_FILE).open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measurement)])
        writer.writeheader()
        writer.writerows(measurement.as_dict() for measurement in measurements)
    show(folder, measurements, about)


def show(folder: Path, measurements: Sequence[Measurement], about: dict[str, Any]) -> None:
    """The table and the pictures."""
    (folder / TABLE_FILE).write_text(table(measurements, about))
    if bars := [m for m in measurements if not m.curve]:
        draw_bars(folder / "bench.png", bars)
    for curve in dict.fromkeys(m.curve for m in measurements if m.curve):
        draw_curve(folder / f"{curve}.png", [m for m in measurements if m.curve == curve])


def read(path: Path) -> list[Measurement]:
    """The measurements of a CSV."""
    with path.open(newline="") as file:
        return [
            Measurement(
                work=row["work"],
                implementation=row["implementation"],
                device=row["device"],
                median=float(row["median"]),
                p10=float(row["p10"]),
                p90=float(row["p90"]),
                repeats=int(row["repeats"]),
                peak_memory=int(row["peak_memory"]) if row["peak_memory"] else None,
                curve=row["curve"],
                at=int(row["at"]) if row["at"] else None,
            )
            for row in csv.DictReader(file)
        ]


def table(measurements: Sequence[Measurement], about: dict[str, Any]) -> str:
    """Markdown: one row for each measurement, with its ratio to our fastest on the same work."""
    lines = [
        f"Measured by `{about['command']}` on {about['gpu'] or about['processor']} ({about['threads']} threads), "
        + ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        + ". Medians, with the 10th and 90th percentile; the last column is the time over ours in the same run.",
        "",
        "| work | implementation | ms | 10 % – 90 % | memory, MB | x ours |",
        "|---|---|---|---|---|---|",
    ]
    for work in dict.fromkeys((m.work, m.device) for m in measurements):
        group = [m for m in measurements if (m.work, m.device) == work]
        ours = [m.median for m in group if m.implementation.startswith(OURS)]
        for m in group:
            memory = "" if m.peak_memory is None else f"{m.peak_memory / 1e6:.0f}"
            ratio = f"{m.median / min(ours):.2f}" if ours else ""
            lines.append(
                f"| {m.work}, {m.device.upper()} | {m.implementation} | {milliseconds(m.median)} "
                f"| {milliseconds(m.p10)} – {milliseconds(m.p90)} | {memory} | {ratio} |"
            )
    return "\n".join(lines) + "\n"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
