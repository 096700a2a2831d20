"""The figures that the pages quote are those of the recorded runs."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from benchmarks.speed import report

from benchmarks import quoted_figures

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
MARKED_PAGES = [page for page in quoted_figures.pages() if "<!-- figures: " in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", MARKED_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_quote_the_records(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert quoted_figures.filled(text) == text, "run: python -m benchmarks.quoted_figures"


def test_every_figure_is_quoted_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in MARKED_PAGES)
    assert {name for _, name, *_ in quoted_figures.MARKED.findall(text)} == set(quoted_figures.FIGURES)


@pytest.mark.parametrize("folder", sorted(p.parent for p in RESULTS.glob("speed/*/bench.csv")), ids=lambda f: f.name)
def test_pages_of_times_are_made_of_the_recorded_ones(folder: Path) -> None:
    assert (folder / "bench.md").read_text(encoding="utf-8") == report.page(folder)


def test_readme_agrees_with_the_pages_of_other_generators() -> None:
    """Those pages are written from the same records by other code."""

    def rows(name: str, start: str) -> list[str]:
        text = (ROOT / name).read_text(encoding="utf-8").replace("\u00a0", " ")
        found = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
        assert found, f"{name} has no row {start}"
        return found

    table = [line.strip("| ").split(" | ") for line in quoted_figures.measured(ROOT).splitlines()]
    inverse, step, of_the_paper, patches, adult, *integrals = table[2:]
    nonfinite, outside = inverse[2].removesuffix(" (nflows, cubic)").split(" and ")
    nflows = rows("docs/results/spline_robustness.md", "nflows cubic | float32 | 20,000,000")
    assert f"| {nonfinite} | {outside} |" in nflows[0]
    for machine, milliseconds in zip(("cpu", "gpu"), step[1].split(" and "), strict=True):
        ours = rows(f"results/speed/{machine}/bench.md", "training step, D = 63, batch 512 | cubicflow")
        assert f"| cubicflow | {milliseconds} |" in ours[0]
    (attention,) = rows("results/README.md", "cubic autoregressive, trained on all symmetries of a patch")
    assert attention.endswith(f" | {patches[1]} |")
    assert any(f"| {adult[1]} |" in row for row in rows("docs/results/synthetic_tables.md", "cubicflow"))
    page = (ROOT / "results/README.md").read_text(encoding="utf-8").replace("\u00a0", " ").splitlines()
    line = next(
        i for i, line in enumerate(page) if line.startswith("| cubic coupling, the paper's model | published |")
    )
    assert page[line].endswith(f" | {of_the_paper[2].removesuffix(' (the paper)')} |")
    assert page[line + 1].endswith(f" | {of_the_paper[1]} |")
    for integral, case in zip(integrals, ("camel, D = 16", "camel, D = 4", "ring, D = 2"), strict=True):
        vegas = integral[2].split(" (vegas)")[0]
        for methods, quoted in ((["cubicflow"], integral[1]), (["vegas, beta = 0", "vegas, beta = 0.75"], vegas)):
            error, seconds = quoted.removesuffix(" s").split(" in ")
            found = [
                row for name in methods for row in rows("docs/results/integrals.md", f"{case} | 1,000,000 | {name}")
            ]
            assert any(f"| {error} |" in line and line.endswith(f"| {seconds} |") for line in found), integral


def test_scores_of_the_paper_agree_with_the_page_of_the_rerun() -> None:
    rerun = "".join(
        (ROOT / "results" / name).read_text(encoding="utf-8") for name in ("README.md", "table-1/table-1.md")
    )
    rows = [row.split(" | ")[2].removesuffix(" nats") for row in quoted_figures.paper(ROOT).splitlines()[3:-1]]
    assert len(rows) == 7
    assert all(f" {score} |" in rerun for score in rows)
    decays = [row.strip("| ").split(" | ") for row in quoted_figures.weight_decay(ROOT).splitlines()[2:5]]
    for (*_, decay, score), title in zip(decays, ("", ", weight decay 0.1", ", weight decay 0.3"), strict=True):
        assert (decay == "0") == (title == "")
        assert f"twice as wide, dropout 0.5{title}, 40,000 steps | 1 | {score} |" in rerun


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Return a folder with a copy of every record that the figures are made of."""
    left_out = shutil.ignore_patterns("*.png", "cells", "column_ablations")
    shutil.copytree(RESULTS, tmp_path / "results", ignore=left_out)
    return tmp_path


def test_a_changed_csv_record_changes_the_page(records: Path) -> None:
    path = records / "results" / "spline_robustness.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    next(row for row in rows if row["method"] == "cubic, steffen" and row["dtype"] == "float32")["nonfinite"] = "3"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = quoted_figures.filled(text, records)
    assert changed == text.replace("| 0 and 0 |", "| 3 and 0 |") != text


def test_a_changed_json_record_changes_the_page(records: Path) -> None:
    path = records / "results" / "table-1" / "table-1.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    (pair,) = [pair for pair in record["results"]["ablations"] if pair["first"] == "cubic-mirrored"]
    pair["mean"] += 1
    path.write_text(json.dumps(record), encoding="utf-8")
    text = (ROOT / "docs" / "choosing_settings.md").read_text(encoding="utf-8")
    assert quoted_figures.filled(text, records) == text.replace("-->1.06<!--", "-->2.06<!--") != text


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit, match="unknown figure 'height'"):
        quoted_figures.filled("<!-- figures: height -->12<!-- end -->")
