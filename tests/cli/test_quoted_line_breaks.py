"""Quoted text with line breaks: refused with its line, accepted with --allow-multiline, which the run stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.command_line import Command

from cubicflow.tables import FittedTable, Reading, TableError

SMALL = ("--steps", 2, "--hidden-features", 4, "--device", "cpu")
ROWS = [f'{i % 7},"{("two", "lines")[i % 2]}\nof text"' for i in range(60)]


def test_a_run_stores_that_line_breaks_are_allowed(cubicflow: Command, tmp_path: Path) -> None:
    path, run = tmp_path / "t.csv", tmp_path / "run"
    path.write_text("\n".join(["a,b", *ROWS, ""]))
    refused = cubicflow("fit", path, "-o", run, *SMALL)
    assert refused.status == 2
    assert refused.errors.startswith(f"error: {path}: a quoted text goes on over several lines, first in line 2; ")
    assert refused.errors.endswith("allow them with --allow-multiline\n")
    assert not run.exists()
    done = cubicflow("fit", path, "-o", run, "--allow-multiline", *SMALL)
    assert done.status == 0, done.errors
    assert "note: 60 lines continue a quoted text of a line above" in done.errors
    assert set(FittedTable.load(run).schema["b"].levels) == {"two\nof text", "lines\nof text"}
    scored = cubicflow("score", run, path, "-o", "-")
    assert len(scored.output.splitlines()) == 61
    assert "note: 60 lines continue" in scored.errors


def test_the_option_is_kept_in_a_run_folder() -> None:
    reading = Reading(allow_multiline=True)
    assert Reading.from_json(reading.to_json()) == reading == Reading().with_options(allow_multiline=True)
    assert Reading().to_json() == {}
    with pytest.raises(TableError, match="invalid value '1' for allow_multiline"):
        Reading.from_json({"allow_multiline": 1})


def test_empty_lines_of_a_new_table_are_counted(
    cubicflow: Command, columns_run: Path, table: Path, tmp_path: Path
) -> None:
    first, *rows = table.read_text().splitlines()
    new = tmp_path / "new.csv"
    new.write_text("\n".join([first, *rows[:9], "", "", *rows[9:12], ""]))
    scored = cubicflow("score", columns_run, new, "-o", "-")
    assert len(scored.output.splitlines()) == 13
    assert scored.errors == "note: 2 lines are empty: left out\n"
    for command in (("evaluate", columns_run, new), ("impute", columns_run, new, "-o", "-")):
        assert "note: 2 lines are empty: left out\n" in cubicflow(*command).errors
