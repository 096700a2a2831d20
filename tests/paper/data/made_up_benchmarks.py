"""Small synthetic files in the formats of the benchmark tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper.data.benchmark_table import Rows

from paper.data import power


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def power_text(n: int) -> str:
    random = np.random.default_rng(0)
    readings = "Global_active_power;Global_reactive_power;Voltage;Global_intensity"
    lines = [f"Date;Time;{readings};Sub_metering_1;Sub_metering_2;Sub_metering_3"]
    for i in range(n):
        stamp = f"{1 + i % 28}/{1 + i % 12}/2007;{i // 60 % 24:02d}:{i % 60:02d}:00"
        if i % 17 == 3:
            lines.append(f"{stamp};?;?;?;?;?;?;")
            continue
        a, r, v, w = random.random(4)
        meters = ";".join(f"{m:.3f}" for m in random.integers(40, size=3))
        lines.append(f"{stamp};{5 * a:.3f};{r:.3f};{235 + 10 * v:.3f};{20 * w:.3f};{meters}")
    return "\n".join(lines) + "\n"


def publish_power(monkeypatch: pytest.MonkeyPatch, path: Path) -> Rows:
    """Make the rows of a small file the rows of the published file."""
    rows = power.read_text(path)
    monkeypatch.setattr(power, "COMPLETE_ROWS", len(rows))
    monkeypatch.setattr(power, "FINGERPRINT", power.fingerprint(rows))
    return rows


def miniboone_rows(signal: int, background: int) -> np.ndarray:
    random = np.random.default_rng(2)
    rows = random.gamma(2.0, size=(signal + background, 50))
    for column in (5, 13, 44):
        rows[:, column] = np.where(random.random(len(rows)) < 0.1, 0.0, rows[:, column])
    rows[[7, 20], 0] = -999.0  # outliers: dropped before columns are selected
    rows[signal:, 30] = 0.0  # many equal values, in the background only
    return np.array([[float(f"{value:.6e}") for value in row] for row in rows])


def miniboone_text(rows: np.ndarray, signal: int) -> str:
    lines = "\n".join("  ".join(f"{value:.6e}" for value in row) for row in rows)
    return f" {signal} {len(rows) - signal}\n{lines}\n"


def put_miniboone_splits(folder: Path, weights: np.ndarray | None) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    splits = [random.standard_normal((n, 43)).astype(np.float32) for n in (40, 10, 10)]
    for name, rows in zip(("train", "val", "test"), splits, strict=True):
        np.save(folder / f"{name}.npy", rows)
    if weights is not None:
        np.save(folder / "train_weights.npy", weights)
    return splits
