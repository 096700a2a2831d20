"""The page in a real browser: every view, numbers against enumeration, scores against the commands, and escaping."""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.explore.pages import TOKEN, Page, Tab
from tests.explore.tables import EVIL, joint, make_table

from cubicflow.cli import main
from cubicflow.explore.server import private_link
from cubicflow.tables import FittedTable
from cubicflow.tables.run.output import CsvStyle, csv_text

VIEWS = ("overview", "pairs", "what-if", "rows", "layers", "images")
Serve = Callable[[Path], Page]


@pytest.mark.parametrize("kind", ["mixed_run", "flow_run", "plane_run", "image_run"])
def test_every_view_opens(kind: str, served: Serve, tab: Tab, request: pytest.FixtureRequest) -> None:
    page = served(request.getfixturevalue(kind))
    for view in VIEWS:
        shown = tab.open(page, view)
        assert not shown.locator("main .error").count(), shown.locator("main .error").all_inner_texts()
        assert len(shown.inner_text("main")) > 40
    assert tab.wrong == []


def test_densities_after_conditions_agree_with_enumeration(served: Serve, lists_run: Path, tab: Tab) -> None:
    shown = tab.open(served(lists_run), "what-if")
    truth = joint(lists_run)
    names = [column for column in truth if column != "p"]

    def compare(given: pd.Series) -> None:
        rows = truth[given]
        for name in names:
            expected = rows.groupby(rows[name].astype(str))["p"].sum() / rows["p"].sum()
            for word, mass in tab.masses(served(lists_run), name).items():
                assert mass == pytest.approx(expected.get(word, 0.0), abs=2e-6), (name, word)

    compare(truth["p"] > -1)
    shown.get_by_label("condition on height").select_option("in")
    shown.get_by_role("group", name="values of height").get_by_role("button", name="tall").click()
    shown.get_by_label("condition on tree").select_option("in")
    group = shown.get_by_role("group", name="values of tree")
    group.get_by_role("button", name="ash").click()
    group.get_by_role("button", name="oak").click()
    tab.settled()
    assert "exact" in shown.inner_text("#asked")
    compare((truth["height"] == "tall") & truth["tree"].isin(["ash", "oak"]))
    assert tab.wrong == []


def test_a_slider_changes_the_masses_of_earlier_columns(served: Serve, counts_run: Path, tab: Tab) -> None:
    """A slider sets a number. The expected masses of words come from the scores of all six rows with this number."""
    fitted = FittedTable.load(counts_run)
    shown = tab.open(served(counts_run), "what-if")
    shown.get_by_label("condition on rings").select_option("is")
    slider = shown.get_by_label("value of rings", exact=True)
    seen = []
    for rings in (25, 38):
        slider.evaluate(f"(e) => {{ e.value = {rings}; e.dispatchEvent(new Event('input')); }}")
        assert shown.get_by_label("value of rings, as text").input_value() == str(rings)
        tab.settled()
        words = pd.DataFrame(itertools.product(["ash", "elm", "oak"], ["old", "young"]), columns=["tree", "age"])
        rows = words.assign(rings=rings)[["tree", "rings", "age"]]
        p = np.exp(fitted.score(pa.Table.from_pandas(rows, preserve_index=False)))
        expected = pd.Series(p / p.sum()).groupby(words["tree"]).sum()
        found = tab.masses(served(counts_run), "tree")
        assert shown.inner_text("#asked").startswith("exact")
        for word, wanted in expected.items():
            assert found[word] == pytest.approx(wanted, abs=1e-5)  # the page's networks are in float32
        seen.append(found["oak"])
    assert seen[1] > seen[0] + 0.05  # the second slider position gives another answer
    assert tab.wrong == []


def test_a_row_gets_the_score_of_the_command_line(
    served: Serve, mixed_run: Path, tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(30, seed=3).to_csv(tmp_path / "new.csv", index=False)
    command = ["cubicflow", "score", str(mixed_run), str(tmp_path / "new.csv"), "-o", str(tmp_path / "scores.csv")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code in (0, None)
    expected = pd.read_csv(tmp_path / "scores.csv")["log_likelihood"]
    shown = tab.open(served(mixed_run), "rows")
    shown.set_input_files("#file", str(tmp_path / "new.csv"))
    tab.settled()
    for row in range(30):
        cell = shown.locator(f"tr[data-row='{row}'] td:nth-child(2)")
        assert float(cell.get_attribute("title")) == pytest.approx(expected[row], abs=1e-9)
    order = shown.locator("tbody tr").evaluate_all("(rows) => rows.map((row) => Number(row.dataset.row))")
    assert order == np.argsort(expected.to_numpy(), kind="stable").tolist()
    # The page explains the least likely row: the log probabilities of its columns sum to its score.
    parts = [text.split("·")[0] for text in shown.locator(".why .quiet").all_inner_texts()]
    assert len(parts) == 5
    assert sum(map(float, parts)) == pytest.approx(expected.min(), abs=0.1)
    assert tab.wrong == []


def test_a_pasted_row_and_one_with_other_columns(served: Serve, lists_run: Path, tab: Tab) -> None:
    shown = tab.open(served(lists_run), "rows")
    shown.fill("textarea", "oak,three,old,tall")
    shown.click("text=Score the pasted rows")
    shown.wait_for_selector("tr[data-row='0']")
    rows = pa.table({"tree": ["oak"], "rings": ["three"], "age": ["old"], "height": ["tall"]})
    expected = FittedTable.load(lists_run).score(rows)[0]
    score = shown.locator("tr[data-row='0'] td:nth-child(2)").get_attribute("title")
    assert float(score) == pytest.approx(expected, abs=1e-9)
    shown.fill("textarea", "tree,rings,weight\noak,one,1\n")
    shown.click("text=Score the pasted rows")
    shown.wait_for_selector("section .error")
    said = shown.inner_text("section .error")
    assert "'age' is missing" in said
    assert "/" not in said


def test_the_csv_file_is_the_interfaces_rows(served: Serve, lists_run: Path, tab: Tab) -> None:
    shown = tab.open(served(lists_run), "what-if?age=old")
    with shown.expect_download() as download:
        shown.click("text=Download as CSV")
    text = Path(download.value.path()).read_bytes()
    fitted = FittedTable.load(lists_run)
    given = {"age": ["old"]}
    rows = fitted.sample(100, given, seed=0)
    assert text == csv_text(iter(rows.to_batches()), CsvStyle(fitted.decimals(given)))
    assert (pd.read_csv(io.BytesIO(text))["age"] == "old").all()


def test_names_and_words_are_text(served: Serve, mixed_run: Path, tab: Tab) -> None:
    for view in VIEWS:
        shown = tab.open(served(mixed_run), view)
        if view == "what-if":
            shown.wait_for_selector("[aria-label='sampled rows']")
        assert shown.evaluate("window.hurt") is None
        assert not shown.locator("main img").count()
        if view in ("overview", "what-if"):
            assert EVIL in shown.inner_text("main")
    assert tab.wrong == []


def test_a_wrong_token_is_refused(served: Serve, lists_run: Path, browser: Any) -> None:
    page = served(lists_run)
    context = browser.new_context()
    shown = context.new_page()
    for address in (page.root, f"{page.root}?token=wrong", f"{page.root}static/main.js", f"{page.root}api/run"):
        assert shown.goto(address).status == 403
    assert shown.goto(page.address).status == 200
    assert TOKEN not in shown.url
    assert re.fullmatch(rf"{page.root}", shown.url)
    context.close()


def test_a_private_file_leads_to_the_page(served: Serve, lists_run: Path, browser: Any) -> None:
    """Another site's link would not send the cookie of a redirect; the page itself loads its files with it."""
    tab = Tab(browser)
    with private_link(served(lists_run).address) as link:
        tab.page.goto(link)
        tab.page.wait_for_selector("main[data-view=overview]:not([aria-busy])")
    assert tab.page.url == f"{served(lists_run).root}"
    tab.page.reload()
    tab.page.wait_for_selector("main[data-view=overview]:not([aria-busy])")
    assert tab.wrong == []
    tab.context.close()
