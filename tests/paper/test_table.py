"""Table 1 on a small synthetic table: records, paired differences, continuing after a stop, and errors."""

from __future__ import annotations

import ast
import csv
import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from paper.cells import Cell, CellRecord, load_scores, table_settings
from paper.recipe_files import load_recipe
from paper.table_1_report import table_markdown
from paper.table_1_summary import CONTROL, summarise
from tests.helpers.command_line import Command

import cubicflow as cf
from cubicflow.training import NonFiniteLossError
from cubicflow.training.step import Step
from paper.data import Benchmark

from .tiny_table import ROWS


def read(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "table-1.json").read_text())
    return record


def scores(folder: Path, model: str) -> np.ndarray:
    """Return the recorded test scores, (seeds, rows)."""
    paths = [folder / "cells" / "miniboone" / model / f"seed-{seed}" / "test_scores.npz" for seed in (0, 1)]
    return np.stack([load_scores(path).astype(float) for path in paths])


def test_the_table_agrees_with_the_scores(
    paper: Command, command: tuple[object, ...], table_data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = paper(*command, "-o", out)
    assert done.status == 0, done.errors
    results = read(out)["results"]
    cubic, quadratic = scores(out, "cubic"), scores(out, "quadratic")
    difference = cubic - quadratic
    (pair,) = [pair for pair in results["comparisons"] if pair["first"] == "cubic"]
    of_rows = difference.mean(0).std(ddof=1) / np.sqrt(ROWS["test"])
    refits = np.mean([cubic.mean(1).var(ddof=1), quadratic.mean(1).var(ddof=1)])  # two seeds may agree by chance
    of_seeds = np.sqrt(max(difference.mean(1).var(ddof=1), 2 * refits) / 2)
    assert pair["mean"] == pytest.approx(difference.mean(), rel=1e-6)
    assert pair["error"] == pytest.approx(2 * np.hypot(of_rows, of_seeds), rel=1e-6)
    assert pair["paper"] == "better"
    assert results["datasets"]["miniboone"]["provenance"] == "partial"
    assert results["datasets"]["miniboone"]["comparable"] is False
    markdown = (out / "table-1.md").read_text()
    assert f"{cubic.mean():.2f} ±" in markdown
    assert "not comparable: not its test rows" in markdown
    with (out / "table-1.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    # The saved model gives the recorded scores.
    flow = cf.load(out / "cells" / "miniboone" / "cubic" / "seed-1" / "run")
    with torch.no_grad():
        again = flow.log_prob(torch.from_numpy(np.load(table_data / "miniboone" / "test.npy"))).numpy()
    np.testing.assert_allclose(again, cubic[1], rtol=1e-5, atol=1 / 128)  # scores are rounded to 1 / 64
    row = next(row for row in results["rows"] if row["model"] == "cubic")
    assert row["mixture"]["mean"] == pytest.approx(np.log(np.exp(cubic).mean(0)).mean(), rel=1e-6)


def test_a_recorded_cell_is_not_scored_again(
    paper: Command, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out).status == 0
    before = read(out)["results"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the test rows were scored a second time")

    monkeypatch.setattr("paper.cells.score", never)
    assert paper(*command, "-o", out).status == 0
    assert read(out)["results"] == before


def test_a_model_may_have_its_own_seeds(
    paper: Command, command: tuple[object, ...], tiny_table: Path, tmp_path: Path
) -> None:
    tiny_table.write_text(tiny_table.read_text() + "\n[models.quadratic]\nseeds = [3]\n")
    out = tmp_path / "out"
    done = paper(*command, "-o", out)
    assert done.status == 0, done.errors
    assert {row["model"]: row["seeds"] for row in read(out)["results"]["rows"]} == {"cubic": [0, 1], "quadratic": [3]}
    assert done.output.index("cubic, seed 1: test") < done.output.index("quadratic, seed 3: test")
    assert paper(*command, "-o", out, "--seed", 0).status == 0
    assert read(out)["results"]["rows"][1]["seeds"] == [0, 3]


ABOUT = {  # what a report needs of the record of a cell
    "validation": -3.0,
    "parameters": 1,
    "steps": 200_000,
    "best_step": 200_000,
    "seconds": 1.0,
    "stopped": "steps",
    "weights": "raw",
    "command": "",
    "machine": {"processor": "a processor", "gpu": None},
    "comparable": True,
    "provenance": "whole",
    "note": "",
    "settings": {"training": {"steps": 200_000}},
}


def recorded(dataset: str, model: str, scores: np.ndarray, seed: int = 0, **about: Any) -> CellRecord:
    return CellRecord(Cell(dataset, model, seed), {**ABOUT, "seed": seed, **about}, scores)


def page_of(records: list[CellRecord]) -> tuple[dict[str, Any], str]:
    summary = summarise(records, table_settings(load_recipe("table-1")), {"gas": "the data is not here; it is far"})
    return summary, table_markdown(summary)


def lines_of(text: str, title: str) -> list[list[str]]:
    """Return the cells of the line with a title, and of the line below it."""
    plain = text.replace("\u00a0", " ").splitlines()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in plain]
    first = next(number for number, cells in enumerate(lines) if cells[0] == title)
    return lines[first : first + 2]


def test_several_seeds_are_shown_as_their_mean_and_as_their_mixture() -> None:
    # Each of two fits is good on rows where the other is bad: -3 nats a row on average, -1.67 as a mixture.
    low, high = np.float32(-5), np.float32(-1)
    halves = [np.repeat([low, high], 50), np.repeat([high, low], 50)]
    summary, text = page_of([recorded("miniboone", "cubic", halves[seed], seed) for seed in (0, 1)])
    (row,) = summary["rows"]
    assert row["test"]["mean"] == -3
    assert row["mixture"]["mean"] == pytest.approx(np.log((np.exp(-5) + np.exp(-1)) / 2))
    assert "| MINIBOONE | cubic coupling, ours | 2 | 0.00 | -1.67 ± 0.00 |" in text


def test_the_papers_scores_are_beside_ours() -> None:
    """Of two lengths of training, the table has the one with the better validation score, whatever its test score."""
    flat = np.full(9, -9.5, np.float32)
    records = [
        recorded("miniboone", "cubic-paper", flat),
        recorded("power", "cubic-paper", flat + 10, comparable=False),
        recorded("bsds300", "cubic-paper", flat + 170, validation=174.0),
        recorded("bsds300", "cubic-paper-long", flat + 166, validation=174.5),
    ]
    _, text = page_of(records)
    published, rerun = lines_of(text, "cubic coupling, the paper's model")
    assert published[1:] == [
        "published",
        "0.65 ± 0.01",
        "13.14 ± 0.02",
        "-14.59 ± 0.02",
        "-9.06 ± 0.44",
        "157.24 ± 0.28",
    ]
    assert rerun == ["", "**rerun**", "0.50 ± 0.00", "–", "–", "-9.50 ± 0.00", "156.50 ± 0.00"]
    assert lines_of(text, "MAF")[0][1:3] == ["published", "0.30 ± 0.01"]
    assert "- GAS: not rerun, the data is not here.\n" in text
    assert "| BSDS300 | cubic coupling, the paper's, 200,000 steps | 156.50 ± 0.00 | 157.24 ± 0.28 | -0.74 |" in text
    assert "| POWER | cubic coupling, the paper's | 0.50 ± 0.00 |" not in text, (
        "its test rows are not the published ones"
    )


def test_scores_on_redrawn_rows_are_carried_over_to_the_published_rows() -> None:
    random = np.random.default_rng(0)
    gaussian = random.normal(96.41, 60, size=4000).astype(np.float32)
    flow = (157 + 0.7 * (gaussian - 96.41) + random.normal(0, 50, size=4000)).astype(np.float32)
    redrawn = {"provenance": "redrawn", "note": "x"}
    cells = {CONTROL: gaussian, "cubic-paper-long": flow}
    records = [recorded("bsds300", model, scores, **redrawn) for model, scores in cells.items()]
    summary, text = page_of([*records, recorded("bsds300", CONTROL, gaussian, seed=3, **redrawn)])
    row = next(row for row in summary["rows"] if row["model"] == "cubic-paper-long")
    slope = np.polyfit(gaussian.astype(float), flow.astype(float), 1)[0]
    assert row["carried"]["mean"] == pytest.approx(
        flow.mean(dtype=float) + slope * (96.67 - gaussian.mean(dtype=float))
    )
    spread = np.std(flow - slope * gaussian)
    assert row["carried"]["error"] == pytest.approx(2 * spread * np.sqrt(1 / 4000 + 1 / 250_000), rel=1e-2)
    found = f"{row['carried']['mean']:.2f} ± {row['carried']['error']:.2f}"
    published, rerun = lines_of(text, "cubic coupling, the paper's model")
    assert published[-2:] == ["", "157.24 ± 0.28"]
    assert rerun[-2:] == [f"{row['test']['mean']:.2f} ± {row['test']['error']:.2f}", found]
    assert lines_of(text, "Gaussian, full covariance")[1][-1] == "", "the Gaussian is the control itself"
    assert (
        f"| {found} | 157.24 ± 0.28 | {row['carried']['mean'] - 157.24:+.2f} ± {row['carried']['error']:.2f} |" in text
    )
    assert "redrawn, so its rows are not the published rows" in text
    assert (
        summarise([recorded("bsds300", "cubic", flow, **redrawn)], table_settings(load_recipe("table-1")), {})["rows"][
            0
        ]["carried"]
        is None
    ), "there is no Gaussian"


def test_a_fit_that_the_time_limit_stopped_has_no_score() -> None:
    scores = np.full(9, -47.11, np.float32)
    about = {"stopped": "time_budget", "steps": 903, "seconds": 1204.0}
    records = [recorded("miniboone", "zuko-cnf", scores, **about), recorded("miniboone", "zuko-maf", scores + 40)]
    summary, text = page_of([*records, recorded("miniboone", "cubic", scores + 40)])
    assert [row["model"] for row in summary["rows"]] == ["cubic", "zuko-maf"]
    assert [pair["first"] for pair in summary["rivals"]] == ["zuko-maf"]
    assert "| MINIBOONE | zuko, CNF | 903 of 200,000 | 20.1 | 1333 | a processor |" in text
    assert "47.11" not in text


def test_a_stopped_and_continued_table_has_the_same_numbers(
    paper: Command, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, stopped = tmp_path / "undisturbed", tmp_path / "stopped"
    assert paper(*command, "-o", undisturbed).status == 0
    shutil.copytree(undisturbed, stopped)
    plain_step, taken = Step.__call__, 0

    def step_that_is_stopped(self: Step, batch: Any) -> None:
        nonlocal taken
        taken += 1
        plain_step(self, batch)
        if taken == 17:  # in the middle of the second cell
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Step, "__call__", step_that_is_stopped)
    done = paper(*command, "-o", stopped, "--overwrite")
    assert done.status == 130
    assert "To continue: python -m paper table-1" in done.errors
    assert "--overwrite" not in done.errors
    assert len(list(stopped.glob("cells/*/*/*/record.json"))) == 1
    (row,) = read(stopped)["results"]["rows"]  # the table shows finished cells only
    assert (row["model"], row["seeds"]) == ("cubic", [0])
    assert f"{row['test']['mean']:.2f}" in (stopped / "table-1.md").read_text()
    assert paper(*command, "-o", stopped).status == 0
    assert taken == 48  # 4 cells of 12 steps, and no step twice
    for model in ("cubic", "quadratic"):
        np.testing.assert_array_equal(scores(stopped, model), scores(undisturbed, model))


def test_after_a_failed_cell_the_other_cells_still_run(
    paper: Command, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_fit = cf.training.fit

    def fit_that_fails_once(flow: Any, *arguments: Any, run: Path, **settings: Any) -> Any:
        if run.parts[-3:-1] == ("cubic", "seed-0"):
            raise NonFiniteLossError("the loss of step 7 is not finite")
        return plain_fit(flow, *arguments, run=run, **settings)

    monkeypatch.setattr("paper.experiment.fit", fit_that_fails_once)
    out = tmp_path / "out"
    done = paper(*command, "-o", out)
    assert done.status == 2
    assert "miniboone, cubic, seed 0: failed. the loss of step 7 is not finite" in done.output
    assert "1 of 4 cells failed" in done.errors
    assert {(row["model"], *row["seeds"]) for row in read(out)["results"]["rows"]} == {
        ("cubic", 1),
        ("quadratic", 0, 1),
    }
    monkeypatch.undo()
    assert paper(*command, "-o", out).status == 0
    assert len(read(out)["results"]["rows"][0]["seeds"]) == 2


def test_without_any_time_only_the_table_is_rebuilt(
    paper: Command, command: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out).status == 0
    before = read(out)["results"]
    (out / "table-1.json").unlink()
    assert paper(*command, "-o", out, "--seconds", 0).status == 0
    assert read(out)["results"] == before
    done = paper(*command, "-o", out, "--model", "affine", "--seconds", 0)
    assert done.status == 75
    assert read(out)["results"] == before
    assert not (out / "cells" / "miniboone" / "affine").exists()


def test_a_call_keeps_its_time_limit(
    paper: Command, command: tuple[object, ...], tmp_path: Path, tiny_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still until the training has begun, so a slow start does not take the time of the fit."""
    run = tmp_path / "out" / "cells" / "miniboone" / "cubic" / "seed-0" / "run"
    clock = SimpleNamespace(monotonic=lambda: float((run / "config.json").exists()))
    monkeypatch.setattr("paper.deadline.time", clock)
    tiny_table.write_text(tiny_table.read_text().replace("steps = 12", "steps = 100_000_000"))
    done = paper(*command, "-o", tmp_path / "out", "--seconds", 0.5)
    assert done.status == 75
    expected = "not finished: the time is up, and everything is saved. To continue: python -m paper table-1"
    assert expected in done.errors
    assert (run / "checkpoint.safetensors").exists()
    assert (tmp_path / "out" / "table-1.md").exists()


def test_the_quick_form_on_one_real_table(paper: Command, real_data: Path, tmp_path: Path) -> None:
    command = ("table-1", "--quick", "-o", tmp_path, "--data", real_data, "--device", "cpu")
    done = paper(*command, "--dataset", "power", "--model", "cubic")
    assert done.status == 0, done.errors
    assert {(row["dataset"], row["model"]) for row in read(tmp_path)["results"]["rows"]} == {("power", "cubic")}


@pytest.mark.soak
def test_the_quick_form_on_real_tables(paper: Command, real_data: Path, tmp_path: Path) -> None:
    """Every model on every table takes minutes; the test before this one trains one model on one table."""
    command = ("table-1", "--quick", "-o", tmp_path, "--data", real_data, "--device", "cpu")
    done = paper(*command)
    assert done.status == 0, done.errors
    recipe = load_recipe("table-1", quick=True)
    cells = {(row["dataset"], row["model"]) for row in read(tmp_path)["results"]["rows"]}
    for dataset in {dataset for dataset, _ in cells}:
        ours = {name for name, model in recipe["models"].items() if dataset in model.get("only", [dataset])}
        assert {model for found, model in cells if found == dataset} == ours
    assert cells


@pytest.mark.parametrize(
    ("setting", "rows", "symmetries"),
    [("mirror = true", 4 * 128, None), ('symmetries = "square"', 128, "8 maps of 63 columns")],
)
def test_a_model_may_be_trained_on_images_of_patches(
    paper: Command,
    tiny_table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    rows: int,
    symmetries: str | None,
) -> None:
    """The config names the symmetries of the training rows. The test rows are scored unchanged."""
    patches = np.random.default_rng(0).normal(size=(228, 64)).astype(np.float32)
    train, validation, test = np.split((patches - patches.mean(1, keepdims=True))[:, :-1], [128, 178])
    table = Benchmark("bsds300", train, validation, test, None, "partial", "Made up.")
    monkeypatch.setattr("paper.table_1.load_rows", lambda *_: table)
    model = f'[models.mine]\ntitle = "mine"\nonly = ["bsds300"]\nseeds = [0]\n{setting}\n'
    training = "[datasets.bsds300]\ntraining = { steps = 4, batch_size = 32, validate_every = 2, log_every = 2 }\n"
    tiny_table.write_text(tiny_table.read_text() + model + training)
    command = ("table-1", "--recipe", tiny_table, "--dataset", "bsds300", "--model", "mine")
    done = paper(*command, "--device", "cpu", "-o", tmp_path / "out")
    assert done.status == 0, done.errors
    cell = tmp_path / "out" / "cells" / "bsds300" / "mine" / "seed-0"
    data = json.loads((cell / "run" / "config.json").read_text())["data"]
    assert (data["rows"], data["validation_rows"]) == (rows, 50)
    assert data.get("symmetries", "None").split(", fingerprint")[0] == str(symmetries)
    name, value = setting.replace("true", "True").split(" = ")
    assert json.loads((cell / "record.json").read_text())["settings"][name] == ast.literal_eval(value)
    with torch.no_grad():
        again = cf.load(cell / "run").log_prob(torch.from_numpy(test)).numpy()
    np.testing.assert_allclose(again, load_scores(cell / "test_scores.npz"), rtol=1e-5, atol=1 / 128)
