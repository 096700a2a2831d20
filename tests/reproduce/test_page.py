"""The page of results: every number from a record, quick runs left out, every claim with a verdict."""

from __future__ import annotations

import json
from pathlib import Path

from cubicflow.reproduce.claims import CLAIMS, NOT_RUN

from .conftest import Command


def test_the_page_is_made_from_records(cubicflow: Command, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in ("figure-1", "appendix"):
        assert cubicflow("reproduce", name, "-o", results / name).status == 0
    done = cubicflow("reproduce", "page", "-o", results)
    assert done.status == 0, done.errors
    page = (results / "README.md").read_text()
    record = json.loads((results / "figure-1" / "figure-1.json").read_text())
    assert f"{record['results']['largest_slope']:.3g}" in page
    assert f"`{record['command']}`" in page
    assert "(figure-1/figure-1.png)" in page
    assert page.index("What could not be rerun") < page.index("Figure 1") < page.index("claims, one by one")
    claims = page[page.index("claims, one by one") :]
    for claim in CLAIMS:
        assert claim.text in claims
    assert claims.count(NOT_RUN) == len(CLAIMS) - 2
    assert claims.count("| holds |") == 2


def test_quick_runs_are_no_results(cubicflow: Command, tmp_path: Path) -> None:
    assert cubicflow("reproduce", "figure-1", "--quick", "-o", tmp_path / "figure-1").status == 0
    assert cubicflow("reproduce", "page", "-o", tmp_path).status == 0
    page = (tmp_path / "README.md").read_text()
    assert "Figure 1: a random cubic spline: not yet run" in page
    assert page.count("Not yet run: `cubicflow reproduce") == 5


def test_the_table_on_the_page(cubicflow: Command, table_data: Path, tiny_table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "table-1"
    models = ("--model", "cubic", "--model", "quadratic", "--model", "cubic-autoregressive")
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    assert cubicflow("reproduce", "table-1", "-o", folder, *common, *models).status == 0
    assert cubicflow("reproduce", "page", "-o", tmp_path / "results").status == 0
    page = (tmp_path / "results" / "README.md").read_text()
    found = json.loads((folder / "table-1.json").read_text())["results"]
    pair = next(pair for pair in found["comparisons"] if pair["first"] == "cubic")
    assert page.count(f"{pair['mean']:+.3f} ± {pair['error']:.3f}") == 2  # in the table and among the claims
    assert "- Table 1, GAS: the data is not here; it comes from" in page
    assert "coupling minus autoregressive, nats: MINIBOONE" in page
    assert "not comparable: not the published test rows" in page
