"""Records of cells: files that other processes read, the precision of scores, and times on a shared machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.cells import load_scores, read_cells, rounded, save_scores, table_settings
from paper.recipe_files import load_recipe
from tests.helpers.command_line import Command


def test_other_processes_never_see_half_a_record(
    paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before a file is moved to its final name, all existing records can be read."""
    out = tmp_path / "out"
    settings = table_settings(load_recipe("table-1", tiny_table))
    seen: list[int] = []
    replace = Path.replace

    def look_first(self: Path, target: Any) -> Path:
        seen.append(len(read_cells(out, settings)))
        if (out / "table-1.json").exists():
            json.loads((out / "table-1.json").read_text())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look_first)
    models = ("--model", "cubic", "--model", "affine", "--seed", 0)
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    for _ in range(2):
        seen.clear()
        done = paper("table-1", "-o", out, *common, *models, "--overwrite")
        assert done.status == 0, done.errors
        recorded = seen[seen.index(0) :]  # earlier records are removed first, one after the other
        assert recorded == sorted(recorded)
        assert set(seen) == {0, 1, 2}
    assert not list(out.glob("**/.*"))  # no temporary file remains


def test_scores_are_kept_to_a_64th_of_a_nat_in_half_the_space(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(150, 60, 250_000).astype(np.float32)
    scores[:3] = np.nan, -np.inf, -1e6
    save_scores(tmp_path / "scores.npz", rounded(scores))
    again = load_scores(tmp_path / "scores.npz")
    assert again.dtype == np.float32
    np.testing.assert_array_equal(again, rounded(scores))
    np.testing.assert_allclose(again, scores, rtol=0, atol=1 / 128)
    assert again[3:].mean(dtype=float) == pytest.approx(scores[3:].mean(dtype=float), abs=1e-4)
    assert (tmp_path / "scores.npz").stat().st_size < scores.nbytes / 1.8
    (tmp_path / "scores.npz").write_bytes((tmp_path / "scores.npz").read_bytes()[:1000])
    with pytest.raises(ValueError, match="is damaged"):
        load_scores(tmp_path / "scores.npz")


def test_times_of_parallel_runs_are_marked(
    paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results" / "table-1"
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    command = ("table-1", "-o", folder, *common, "--seed", 0)
    assert paper(*command, "--model", "cubic").status == 0
    assert "longer than they would have alone" not in (folder / "table-1.md").read_text()
    monkeypatch.setenv("CUBICFLOW_LANES", "7")
    assert paper(*command, "--model", "affine", "--seconds", 900).status == 0
    record = json.loads((folder / "cells" / "miniboone" / "affine" / "seed-0" / "record.json").read_text())
    assert record["machine"]["lanes"] == 7
    monkeypatch.delenv("CUBICFLOW_LANES")
    assert paper("table-1", "-o", folder, *common, "--seconds", 0).status == 75
    page = (folder / "table-1.md").read_text()
    header, _, *lines = page[page.index("| dataset | model | seeds | parameters") :].split("\n\n")[0].splitlines()
    columns = [name.strip() for name in header.split("|")]
    rows = [dict(zip(columns, map(str.strip, line.split("|")), strict=True)) for line in lines]
    assert [(row["model"], row["on"], row["processes at once"]) for row in rows] == [
        ("cubic coupling, ours", "CPU", "1"),
        ("affine coupling", "CPU", "7"),
    ]
    assert "longer than they would have alone" in page
    assert ", shared by up to 7 processes" in page
    assert "--seconds 900" not in page  # the time limit of a call is not part of the recorded command
    monkeypatch.setenv("CUBICFLOW_LANES", "many")
    done = paper("figure-1", "--quick", "-o", tmp_path / "figure-1")
    assert done.status == 2
    assert "CUBICFLOW_LANES must be a whole number" in done.errors
