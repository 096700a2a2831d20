"""Uploaded and pasted rows: the least likely rows are explained and come first, and a pasted text stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.explore.pages import Page, Tab, ask, error_of
from tests.explore.tables import fit_small

from cubicflow.explore.framed import unframed
from cubicflow.explore.row_scores import EXPLAINED_ROWS
from cubicflow.tables import FittedTable, Reading, TableOptions, fit_table

Serve = Callable[[Path], Page]
QUICK: dict[str, Any] = {"steps": 20, "progress": False, "device": "cpu"}
WORDS = ["Smith, John", 'the "big" one', '5" pipe', "a; b", "plain"]


def scored(page: Page, text: str, how: str = "name=rows.csv") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    answer = ask(page, f"/api/score-rows?{how}", text.encode())
    assert answer[0] == 200, answer[1]
    header, arrays = unframed(answer[1])
    return header, dict(arrays)


@pytest.fixture(scope="module")
def gaps_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a flow whose table has gaps: incomplete rows have no score."""
    x = np.random.default_rng(0).gamma(2.0, size=(200, 3))
    frame = pd.DataFrame(x, columns=["one", "two", "three"])
    frame.loc[::20, "two"] = np.nan
    folder = tmp_path_factory.mktemp("gaps")
    frame.to_csv(folder / "table.csv", index=False)
    settings = {"hidden_features": 8, "num_layers": 2}
    options = TableOptions(missing="drop")
    fit_table(folder / "table.csv", folder / "run", options, settings, model="flow", **QUICK)
    return folder / "run"


@pytest.mark.parametrize("kind", ["gaps_run", "plane_run"])
def test_the_least_likely_rows_of_a_flow_are_explained(
    kind: str, served: Serve, request: pytest.FixtureRequest
) -> None:
    """The rows with the lowest scores are at the end of the file; each has the explanation that it has alone."""
    page = served(request.getfixturevalue(kind))
    rng, is_plane = np.random.default_rng(3), kind == "plane_run"
    x = rng.random((60, 2)) if is_plane else np.abs(rng.normal(size=(60, 3)))
    x[-7:] *= 1e-3 if is_plane else 3
    frame = pd.DataFrame(x, columns=["a", "b"] if is_plane else ["one", "two", "three"])
    if not is_plane:
        frame.loc[[0, 30], "two"] = np.nan
    found, arrays = scored(page, frame.to_csv(index=False))
    scores = arrays["scores"]
    lowest = np.argsort(scores, kind="stable")[:EXPLAINED_ROWS]
    assert not set(lowest) <= set(range(2 * EXPLAINED_ROWS))
    explained = np.isfinite(arrays["conditionals"]).all(axis=1)
    assert {row for row, has in zip(found["shown"], explained, strict=True) if has} == set(lowest.tolist())
    for row in lowest[[0, 5, -1]]:
        _, alone = scored(page, frame.iloc[[row]].to_csv(index=False))
        place = found["shown"].index(row)
        np.testing.assert_allclose(arrays["conditionals"][place], alone["conditionals"][0], rtol=1e-4, atol=1e-4)
        assert found["cells"][place] == scored(page, frame.iloc[[row]].to_csv(index=False))[0]["cells"][0]


def test_incomplete_rows_come_last_in_the_browser(served: Serve, gaps_run: Path, tab: Tab, tmp_path: Path) -> None:
    frame = pd.DataFrame({"one": [3.0, 9, 1, 2, 9, -5], "two": [1.0] * 6, "three": [1.0] * 6})
    frame.loc[[1, 4], "two"] = np.nan
    frame.to_csv(tmp_path / "new.csv", index=False)
    expected = scored(served(gaps_run), frame.to_csv(index=False))[1]["scores"]
    assert np.flatnonzero(np.isnan(expected)).tolist() == [1, 4]
    shown = tab.open(served(gaps_run), "rows")
    shown.set_input_files("#file", str(tmp_path / "new.csv"))
    tab.settled()
    order = shown.locator("tbody tr").evaluate_all("(rows) => rows.map((row) => Number(row.dataset.row))")
    assert order == np.argsort(expected, kind="stable").tolist()
    assert shown.locator("tbody tr td:nth-child(2)").all_inner_texts()[-2:] == ["incomplete", "incomplete"]
    assert shown.locator("tr.chosen").get_attribute("data-row") == str(order[0])
    assert shown.locator(".why .track").count() == 3
    shown.locator("tbody tr").last.click()
    assert shown.locator("tr.chosen").get_attribute("data-row") == str(order[-1])
    assert "There are no scores of single columns for this row" in shown.inner_text(".side article")
    assert tab.wrong == []


# --- pasted text ---


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Return a run of a table whose names and words have commas, semicolons and quotes, and its first rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who, where": rng.choice(WORDS, 200), "size": rng.integers(0, 9, 200)})
    run = fit_small(frame, tmp_path_factory.mktemp("people"), steps=20)
    return run, frame.drop_duplicates("who, where").reset_index(drop=True)


def pasted(frame: pd.DataFrame, delimiter: str, *, header: bool) -> str:
    return frame.to_csv(index=False, sep=delimiter, header=header)


def table_of(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
def test_a_pasted_text_is_read_as_written(
    delimiter: str, header: bool, served: Serve, people: tuple[Path, pd.DataFrame]
) -> None:
    run, rows = people
    expected = FittedTable.load(run).score(table_of(rows))
    text = pasted(rows, delimiter, header=header)
    found, arrays = scored(served(run), text, "name=pasted.csv&pasted=1")
    np.testing.assert_allclose(arrays["scores"], expected, atol=1e-9)
    cells = dict(zip(found["shown"], found["cells"], strict=True))
    assert [cells[i][0] for i in range(len(rows))] == rows["who, where"].tolist()


def test_cells_of_a_spreadsheet_are_not_quoted(served: Serve, people: tuple[Path, pd.DataFrame]) -> None:
    """A spreadsheet copies a cell with commas or quotes as it is."""
    run, _ = people
    found, _ = scored(served(run), 'Smith, John\t5\n5" pipe\t3\r\na; b\t1\n', "name=pasted.csv&pasted=1")
    cells = dict(zip(found["shown"], found["cells"], strict=True))
    assert [cells[i] for i in range(3)] == [["Smith, John", "5"], ['5" pipe', "3"], ["a; b", "1"]]


def test_a_pasted_row_with_other_cells_is_refused(served: Serve, people: tuple[Path, pd.DataFrame]) -> None:
    answer = ask(served(people[0]), "/api/score-rows?name=pasted.csv&pasted=1", b"Smith, John\t5\t6\n")
    assert answer[0] == 400
    assert "a row needs 2 values" in error_of(answer)
    assert "the first line has 3" in error_of(answer)


def test_rows_are_pasted_into_a_run_of_a_table_without_names(served: Serve, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x0": rng.integers(0, 9, 100), "x1": rng.choice(["a", "b"], 100)})
    (tmp_path / "table.csv").write_text(frame.to_csv(index=False, header=False))
    reading = Reading(header="none")
    fit_table(tmp_path / "table.csv", tmp_path / "run", None, {"hidden_features": 4}, reading=reading, **QUICK)
    expected = FittedTable.load(tmp_path / "run").score(table_of(frame.head(3)))
    for text in (pasted(frame.head(3), "\t", header=False), pasted(frame.head(3), "\t", header=True)):
        _, arrays = scored(served(tmp_path / "run"), text, "name=pasted.csv&pasted=1")
        np.testing.assert_allclose(arrays["scores"], expected, atol=1e-9)


def test_numbers_of_a_spreadsheet_are_pasted_into_a_run_of_an_array(served: Serve, plane_run: Path) -> None:
    text = "0.25\t0.5\n0.75\t0.125\n"
    _, arrays = scored(served(plane_run), text, "name=pasted.csv&pasted=1")
    _, expected = scored(served(plane_run), text.replace("\t", ","))
    np.testing.assert_array_equal(arrays["scores"], expected["scores"])
    assert len(arrays["scores"]) == 2
