"""The figures that README quotes are those of the recorded runs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cubicflow.bench import bench_report, multiples, start
from cubicflow.bench.timing import milliseconds

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


MACHINES = {"cpu": "on two CPU cores", "gpu": "on one NVIDIA H200"}  # what the sentence above a table of times says


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def cells(text: str) -> list[list[str]]:
    """The cells of every row of every table."""
    rows = [line.strip("| ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def times_measured(text: str, machine: str) -> list[list[str]]:
    """The rows of the one table that stands below a sentence about the machine."""
    found = re.findall(rf"{MACHINES[machine]}[^|]*?\n\n((?:\|.*\n)+)", text)
    assert len(found) <= 1
    return [row for table in found for row in cells(table)[2:]]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("machine", MACHINES)
def test_speed(machine: str, text: str) -> None:
    folder = RESULTS / "speed" / machine
    quoted = times_measured(text, machine)
    if not folder.exists():
        assert not quoted
        return
    recorded = {
        (row["work"], row["implementation"]): float(row["median"])
        for row in read(folder / "bench.csv")
        if not row["curve"]
    }
    backend = {"cpu": "cubicflow native", "gpu": "cubicflow triton"}[machine]
    assert len(quoted) >= 6
    for name, theirs, ours, ratio in quoted:
        work = name.removesuffix(", captured")
        implementation = backend + name.removeprefix(work) if work.startswith("spline") else "cubicflow"
        mine, other = recorded[work, implementation], recorded[work, "nflows cubic"]
        assert (theirs, ours) == (milliseconds(other), milliseconds(mine))
        assert ratio == (f"{other / mine:.2g}" if other < 99.5 * mine else f"{other / mine:.0f}")


def test_memory_and_cold_starts(text: str) -> None:
    flowing = " ".join(text.split())
    quoted = re.findall(r"need ([\d.]+) times the memory of params", flowing)
    quoted += re.findall(r"first training steps ([\d.]+) s after Python starts, ([\d.]+) s", flowing)
    quoted += re.findall(r"on a slower host it was ([\d.]+) s and ([\d.]+) s", flowing)
    if not (RESULTS / "speed" / "gpu").exists():
        assert not quoted
        return
    recorded, slower = (
        {(m.work, m.implementation): m for m in bench_report.read(RESULTS / "speed" / run / "bench.csv") if not m.curve}
        for run in ("gpu", "slower-host")
    )
    both = recorded["spline forward + backward, 1,048,576 elements, K = 10", "cubicflow triton"]
    (here,) = [
        m
        for m in bench_report.read(RESULTS / "speed" / "cpu" / "bench.csv")
        if (m.work.split(",")[0], m.implementation, m.curve) == ("spline forward + backward", "cubicflow native", "")
    ]
    starts = [
        tuple(f"{times['cold start, POWER model', name].median / 1e3:.1f}" for name in (start.COLD, start.WARM))
        for times in (recorded, slower)
    ]
    assert quoted == [f"{multiples.memory_ratio(both):.2f}", *starts]
    assert f"need {multiples.memory_ratio(here):.2f} times" in flowing
    assert "their gradient, there and on the CPU." in flowing


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.glob("speed/*/bench.csv")), ids=lambda f: f.name
)
def test_pages_of_times_are_made_of_the_recorded_ones(folder: Path) -> None:
    assert (folder / "bench.md").read_text(encoding="utf-8") == bench_report.page(folder)


def test_share_of_the_networks(text: str) -> None:
    rows = {(row["work"], row["implementation"]): float(row["median"]) for row in read(RESULTS / "speed/cpu/bench.csv")}
    works = {work for work, _ in rows if work.startswith("training")}
    shares = sorted(rows[work, "its networks alone"] / rows[work, "cubicflow"] for work in works)
    assert f"networks alone take {shares[0] * 100:.0f} to {shares[-1] * 100:.0f} %" in text


def test_inverses(text: str) -> None:
    rows = read(RESULTS / "spline_robustness.csv")
    methods = {"nflows, cubic": "nflows cubic", "cubicflow, cubic": "cubic, steffen"}
    quoted = [line for line in cells(text) if line[1] in ("float32", "float64")]
    assert len(quoted) == 4
    for name, dtype, nonfinite, outside, worst in quoted:
        mine = [row for row in rows if row["method"] == methods[name] and row["dtype"] == dtype]
        assert mine
        assert nonfinite == f"{sum(int(row['nonfinite']) for row in mine):,}"
        assert outside == f"{sum(int(row['outside']) for row in mine):,}"
        assert float(worst) == pytest.approx(max(float(row["backward"]) for row in mine), rel=0.02)


def test_what_mirror_images_were_worth() -> None:
    text = " ".join((ROOT / "docs" / "choosing_settings.md").read_text(encoding="utf-8").split())
    found = json.loads((ROOT / "results" / "table-1" / "table-1.json").read_text(encoding="utf-8"))["results"]
    (pair,) = [pair for pair in found["ablations"] if pair["first"] == "cubic-mirrored"]
    assert re.findall(r"mirror images, and twice the steps, were worth ([\d.]+) nats", text) == [f"{pair['mean']:.2f}"]


def test_the_papers_experiments(text: str) -> None:
    def results(name: str) -> dict[str, Any]:
        path = ROOT / "results" / name / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
        return found

    def score(dataset: str, model: str) -> str:
        rows = results("table-1")["rows"]
        (test,) = [row["test"] for row in rows if (row["dataset"], row["model"]) == (dataset, model)]
        return f"{test['mean']:.2f} ± {test['error']:.2f}"

    flowing = " ".join(text.split())
    gaussians, images = results("figure-2")["densities"][0], results("figure-3")
    assert f"learned to {gaussians['gap']:.3f} nats below the truth" in flowing
    assert f"training rows, scores {score('miniboone', 'cubic')} nats" in flowing
    published = results("table-1")["datasets"]["bsds300"]["published"]["cubic-paper"]
    assert f"redrawn, {score('bsds300', 'cubic')} (published: {published})" in flowing
    assert f"{score('bsds300', 'cubic-regularised-more')} with a base of ten normals" in flowing
    assert f"and {score('bsds300', 'cubic-mirrored')} with mirrored patches and twice the steps" in flowing
    assert f"scores {score('bsds300', 'cubic-attention-long')} there with attention" in flowing
    assert f"and {score('bsds300', 'cubic-attention-symmetries')} with the symmetries of a patch" in flowing
    assert f"takes {images['bits_per_dim']:.3f} ± {images['error']:.3f} bits per dimension" in flowing
