"""Figure 2 at a small size: its files, its gap, its bound on parameters, and its pictures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from paper.figure_2_report import block_range
from PIL import Image
from tests.helpers.command_line import Command

import cubicflow as cf
from cubicflow.data.plane import GaussianGrid

TINY = """
points = 2_000
test_points = 500
pixels = 32

[training]
steps = 10
batch_size = 256
validate_every = 5
log_every = 5
"""
SMALL_FLOW = """
[flow]
num_bins = 16
hidden_features = 16
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUBICFLOW_DATA", str(tmp_path / "no-data"))
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + SMALL_FLOW)
    return path


def draw(path: Path) -> Path:
    Image.fromarray(np.tile(np.arange(64, dtype=np.uint8), (64, 1))).save(path)
    return path


def test_a_picture_and_the_gaussians(paper: Command, recipe: Path, tmp_path: Path) -> None:
    drawing = draw(tmp_path / "my_drawing.png")
    out = tmp_path / "out"
    figures = plt.get_fignums()
    done = paper("figure-2", "-o", out, "--recipe", recipe, "--image", drawing, "--device", "cpu")
    assert done.status == 0, done.errors
    assert plt.get_fignums() == figures  # no figure stays open
    record = json.loads((out / "figure-2.json").read_text())
    rows = {row["density"]: row for row in record["results"]["densities"]}
    assert list(rows) == ["225 Gaussians", "My Drawing"]
    for row in rows.values():
        assert np.isfinite(row["gap"])
        assert row["parameters"] < 78_643
        assert (out / row["picture"]).exists()
        assert row["blocks"] is None or row["blocks_low"] <= row["blocks"]
        assert row["histogram_gap"] > 0
    assert (out / "figure-2.png").exists()
    assert record["results"]["panels"] == ["data", "true density", "model density", "model samples"]
    header, _, first, _ = (out / "figure-2.md").read_text().splitlines()
    cells = dict(zip(header.split(" | "), first.split(" | "), strict=True))
    gaussian_histogram = rows["225 Gaussians"]["histogram_gap"], rows["225 Gaussians"]["histogram_blocks"]
    assert cells["gap of a histogram (blocks, pixels)"] == "{:.4f} ({})".format(*gaussian_histogram)
    assert cells["blocks, pixels"] == block_range(rows["225 Gaussians"])
    with (out / "figure-2.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line, row in zip(lines, rows.values(), strict=True):
        assert float(line["histogram_gap"]) == row["histogram_gap"]
        assert line["blocks"] == ("" if row["blocks"] is None else str(row["blocks"]))
    # The saved model gives the recorded score on the same test points.
    flow = cf.load(out / "runs" / "225-gaussians")
    points = GaussianGrid().sample(500, 1)
    with torch.no_grad():
        score = flow.log_prob(torch.from_numpy(points)).double().mean().item()
        fitted_to = GaussianGrid().sample(2_000, 0)
        training_score = flow.log_prob(torch.from_numpy(fitted_to)).double().mean().item()
    gaussians = rows["225 Gaussians"]
    assert gaussians["score"] == pytest.approx(score, abs=1e-6)
    assert gaussians["gap"] == pytest.approx(GaussianGrid().log_prob(points).mean() - score, abs=1e-6)
    training_gap = GaussianGrid().log_prob(fitted_to).mean() - training_score
    assert gaussians["training_gap"] == pytest.approx(training_gap, abs=1e-6)


def test_the_model_of_the_paper(paper: Command, recipe: Path, tmp_path: Path) -> None:
    """The paper's network sees no sines and cosines of its inputs. The page has a section for it."""
    options = ("--recipe", recipe, "--image", draw(tmp_path / "drawing.png"), "--device", "cpu")
    results = tmp_path / "results"
    assert paper("figure-2", "-o", results / "figure-2", *options).status == 0
    page = results / "README.md"
    assert paper("page", "-o", results).status == 0
    assert "This model has no recorded run. To run it: `python -m paper figure-2 --paper -o " in page.read_text()
    done = paper("figure-2", "--paper", "-o", results / "figure-2-paper", *options)
    assert done.status == 0, done.errors
    ours, theirs = (
        json.loads((results / name / "figure-2.json").read_text()) for name in ("figure-2", "figure-2-paper")
    )
    assert theirs["settings"]["flow"]["paper"] is True
    flow = cf.flows.plane(paper=True, num_bins=16, hidden_features=16)
    parameters = sum(parameter.numel() for parameter in flow.parameters())
    assert theirs["results"]["densities"][0]["parameters"] == parameters
    assert ours["results"]["densities"][0]["parameters"] > parameters
    assert paper("page", "-o", results).status == 0
    assert "(figure-2-paper/figure-2-225-gaussians.png)" in page.read_text()
    done = paper("figure-1", "--paper", "-o", tmp_path / "none")
    assert done.status == 2
    assert "--paper belongs to figure-2 and figure-3, not to figure-1; leave it out" in done.errors


def test_overwrite_removes_runs_and_nothing_else(paper: Command, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("figure-2", "--recipe", recipe, "--data", tmp_path, "--device", "cpu", "-o", out)
    assert paper(*command).status == 0
    run = next((out / "runs").iterdir())
    for folder in (out, run, out / "somebody's model"):
        folder.mkdir(exist_ok=True)
        (folder / "thesis.txt").write_text("mine")
    for folder in (out, out / "somebody's model"):
        (folder / "config.json").write_text('{"model_type": "bert"}')
    first = (run / "model.safetensors").stat().st_mtime_ns
    done = paper(*command, "--overwrite", "--seconds", 0)
    assert done.status == 75
    assert (run / "model.safetensors").stat().st_mtime_ns == first  # without time no run begins, and no run is removed
    (run / "thesis.txt").unlink()
    assert paper(*command, "--overwrite").status == 0
    assert (run / "model.safetensors").stat().st_mtime_ns > first
    for folder in (out, out / "somebody's model"):
        assert (folder / "thesis.txt").read_text() == "mine"
        assert json.loads((folder / "config.json").read_text()) == {"model_type": "bert"}


def test_without_pictures_the_built_in_one_is_used_and_missing_ones_are_named(
    paper: Command, recipe: Path, tmp_path: Path
) -> None:
    done = paper("figure-2", "-o", tmp_path / "out", "--recipe", recipe, "--device", "cpu")
    assert done.status == 0, done.errors
    assert "plane/einstein.jpg is not in the data folder" in done.output
    record = json.loads((tmp_path / "out" / "figure-2.json").read_text())
    assert [row["density"] for row in record["results"]["densities"]] == ["225 Gaussians", "Grace Hopper"]
    assert len(record["notes"]) == 2
    assert str(tmp_path) not in json.dumps(record["notes"])


def test_the_built_in_picture_is_added_to_the_pictures_found(paper: Command, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "plane").mkdir(parents=True)
    draw(tmp_path / "data" / "plane" / "gauss.jpg")
    command = ("figure-2", "-o", tmp_path / "out", "--recipe", recipe, "--device", "cpu")
    done = paper(*command, "--data", tmp_path / "data")
    assert done.status == 0, done.errors
    record = json.loads((tmp_path / "out" / "figure-2.json").read_text())
    assert [row["density"] for row in record["results"]["densities"]] == ["225 Gaussians", "Gauss", "Grace Hopper"]
    assert (tmp_path / "out" / "figure-2-grace-hopper.png").exists()


def test_a_short_training_is_better_than_a_uniform_density(paper: Command, recipe: Path, tmp_path: Path) -> None:
    drawing = draw(tmp_path / "drawing.png")
    out = tmp_path / "out"
    recipe.write_text(TINY.replace("steps = 10", "steps = 120\nlearning_rate = 1e-2") + SMALL_FLOW)
    command = ("figure-2", "--quick", "-o", out, "--image", drawing, "--device", "cpu")
    done = paper(*command, "--recipe", recipe)
    assert done.status == 0, done.errors
    record = json.loads((out / "figure-2.json").read_text())
    assert record["quick"]
    gaps = {row["density"]: row["gap"] for row in record["results"]["densities"]}
    # A uniform density is 1.769 nats below the Gaussians and 0.193 nats below this ramp of grey.
    assert 0 < gaps["225 Gaussians"] < 1.6
    assert 0 < gaps["Drawing"] < 0.15


@pytest.mark.soak
def test_the_quick_form(paper: Command, tmp_path: Path) -> None:
    """Soak only: 600 steps of the full model take half a minute. The test above trains a small model."""
    drawing = draw(tmp_path / "drawing.png")
    out = tmp_path / "out"
    done = paper("figure-2", "--quick", "-o", out, "--image", drawing, "--device", "cpu")
    assert done.status == 0, done.errors
    record = json.loads((out / "figure-2.json").read_text())
    gaps = {row["density"]: row["gap"] for row in record["results"]["densities"]}
    assert gaps.keys() == {"225 Gaussians", "Drawing"}
    # A uniform density is 1.769 nats below the Gaussians and 0.193 nats below this ramp of grey.
    assert 0 < gaps["225 Gaussians"] < 1
    assert 0 < gaps["Drawing"] < 0.1


@pytest.mark.parametrize("names", [["---.png"], ["a b.png", "a-b.png"], ["225-gaussians.png"]])
def test_pictures_whose_files_would_have_one_name_are_refused(
    paper: Command, recipe: Path, tmp_path: Path, names: list[str]
) -> None:
    images = [part for name in names for part in ("--image", draw(tmp_path / name))]
    done = paper("figure-2", "-o", tmp_path / "out", "--recipe", recipe, "--device", "cpu", *images)
    assert done.status == 2
    assert f"{names[-1]} needs a name with letters or digits that no other picture has; rename it" in done.errors
    assert not (tmp_path / "out" / "runs").exists()  # the error comes before any training


def test_a_picture_may_have_a_name_in_another_script(paper: Command, recipe: Path, tmp_path: Path) -> None:
    image = draw(tmp_path / "Гаусс.png")
    out = tmp_path / "out"
    done = paper("figure-2", "-o", out, "--recipe", recipe, "--device", "cpu", "--image", image)
    assert done.status == 0, done.errors
    assert (out / "figure-2-гаусс.png").exists()


def test_a_flow_above_the_bound_is_refused(paper: Command, recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(f"{TINY}\n[flow]\nhidden_features = 96\n")
    done = paper("figure-2", "-o", tmp_path / "out", "--recipe", recipe, "--device", "cpu")
    assert done.status == 2
    assert "more than most_parameters = 78,643" in done.errors
