"""The figures that README quotes are those of the recorded runs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def lines() -> list[list[str]]:
    """The cells of every row of every table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_speed(lines: list[list[str]]) -> None:
    recorded = {
        (row["work"], row["implementation"]): float(row["median"])
        for row in read(RESULTS / "speed" / "cpu" / "bench.csv")
        if not row["curve"]
    }
    quoted = [line for line in lines if re.match("spline |training ", line[0])]
    assert len(quoted) == 6
    for work, theirs, ours, ratio in quoted:
        mine = recorded[work, "cubicflow native" if work.startswith("spline") else "cubicflow"]
        other = recorded[work, "nflows cubic"]
        assert (theirs, ours) == (f"{other:.3g}", f"{mine:.3g}")
        assert ratio == f"{other / mine:.2g}"


def test_share_of_the_networks() -> None:
    rows = {(row["work"], row["implementation"]): float(row["median"]) for row in read(RESULTS / "speed/cpu/bench.csv")}
    works = {work for work, _ in rows if work.startswith("training")}
    shares = sorted(rows[work, "its networks alone"] / rows[work, "cubicflow"] for work in works)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"networks alone take {shares[0] * 100:.0f} to {shares[-1] * 100:.0f} %" in text


def test_inverses(lines: list[list[str]]) -> None:
    rows = read(RESULTS / "spline_robustness.csv")
    methods = {"nflows, cubic": "nflows cubic", "cubicflow, cubic": "cubic, steffen"}
    quoted = [line for line in lines if line[1] in ("float32", "float64")]
    assert len(quoted) == 4
    for name, dtype, nonfinite, outside, worst in quoted:
        mine = [row for row in rows if row["method"] == methods[name] and row["dtype"] == dtype]
        assert mine
        assert nonfinite == f"{sum(int(row['nonfinite']) for row in mine):,}"
        assert outside == f"{sum(int(row['outside']) for row in mine):,}"
        assert float(worst) == pytest.approx(max(float(row["backward"]) for row in mine), rel=0.02)
