"""The page of results: numbers come from records, quick runs are left out, and every claim has a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.cells import load_scores
from paper.claims import CLAIMS, NOT_RUN
from tests.helpers.command_line import Command

from .test_plane import TINY, draw


def test_the_page_is_made_from_records(paper: Command, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in ("figure-1", "appendix"):
        assert paper(name, "-o", results / name).status == 0
    done = paper("page", "-o", results)
    assert done.status == 0, done.errors
    page = (results / "README.md").read_text()
    record = json.loads((results / "figure-1" / "figure-1.json").read_text())
    assert f"{record['results']['largest_slope']:.3g}" in page
    assert f"`{record['command']}`" in page
    assert "(figure-1/figure-1.png)" in page
    headings = ["The paper's claims", "Figure 1", "Figure 2", "Table 1", "Figure 3", "Appendix", "How to rerun"]
    places = [page.index(f"\n## {heading}") for heading in headings]
    assert places == sorted(places)
    claims = page[places[0] : places[1]]
    for claim in CLAIMS:
        assert claim.text in claims
    assert claims.count(NOT_RUN) == len(CLAIMS) - 2
    assert claims.count("| **holds** |") == 2


def test_quick_runs_are_not_on_the_page(paper: Command, tmp_path: Path) -> None:
    assert paper("figure-1", "--quick", "-o", tmp_path / "figure-1").status == 0
    assert paper("page", "-o", tmp_path).status == 0
    page = (tmp_path / "README.md").read_text()
    assert page.count("Not yet run: `python -m paper") == 5


def test_a_quick_run_does_not_replace_results(paper: Command, tmp_path: Path) -> None:
    folder = tmp_path / "figure-1"
    assert paper("figure-1", "-o", folder).status == 0
    record = (folder / "figure-1.json").read_bytes()
    done = paper("figure-1", "--quick", "-o", folder)
    assert done.status == 2
    assert f"{folder} holds results of a full run, and --quick would replace them" in done.errors
    assert (folder / "figure-1.json").read_bytes() == record
    assert paper("figure-1", "--quick", "--overwrite", "-o", folder).status == 0
    assert paper("figure-1", "-o", folder).status == 0  # a full run may replace a quick run


def test_a_foreign_readme_is_not_overwritten(paper: Command, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    done = paper("page", "-o", tmp_path)
    assert done.status == 2
    assert "is not a page of results, and would be overwritten" in done.errors
    assert (tmp_path / "README.md").read_text() == "# My project\n"


@pytest.mark.parametrize("content", ["", "{}", "[]", "not JSON", '{"quick": false}'])
def test_a_damaged_record_is_named(paper: Command, tmp_path: Path, content: str) -> None:
    (tmp_path / "figure-1").mkdir()
    (tmp_path / "figure-1" / "figure-1.json").write_text(content)
    done = paper("page", "-o", tmp_path)
    assert done.status == 2
    assert "figure-1.json is damaged; run again: python -m paper figure-1" in done.errors


def test_remarks_are_shown_and_missing_pictures_are_named(paper: Command, tmp_path: Path) -> None:
    folder = tmp_path / "figure-1"
    assert paper("figure-1", "-o", folder).status == 0
    (folder / "figure-1.png").unlink()
    image = draw(tmp_path / "drawing.png")
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    plane = ("figure-2", "-o", tmp_path / "figure-2", "--recipe", recipe, "--image", image)
    assert paper(*plane, "--device", "cpu").status == 0
    (tmp_path / "figure-2" / "remarks.md").write_text("A ramp of grey\nis seen.\n")
    assert paper("page", "-o", tmp_path).status == 0
    page = (tmp_path / "README.md").read_text()
    assert "figure-1/figure-1.png is missing." in page
    assert "\n\nRemarks on the pictures: A ramp of grey is seen.\n\n" in page


ROW = {
    "density": "Gauss",
    "score": 0.1,
    "truth": 0.108,
    "gap": 0.008,
    "gap_error": 0.0006,
    "reached": True,
    "aim_met": True,
    "parameters": 100,
    "steps": 5,
    "seconds": 60.0,
    "picture": "figure-2-gauss.png",
    "private": False,
}
SHARPNESS = {
    "training_gap": 0.002,
    "training_gap_error": 0.0008,
    "blocks": 8.84,
    "blocks_low": 7.9,
    "blocks_high": None,
    "histogram_gap": 0.0123,
    "histogram_blocks": 7,
    "histogram_added": 1.0,
}


def plane_page(paper: Command, folder: Path, results: dict[str, Any]) -> str:
    """Write a record of figure 2 with these results, and return the page."""
    (folder / "figure-2").mkdir(parents=True)
    settings = {"flow": {"num_layers": 2, "num_bins": 128}, "points": 1_000_000, "test_points": 1000, "pixels": 512}
    record = {
        "experiment": "figure-2",
        "quick": False,
        "command": "python -m paper figure-2",
        "finished": "2026-01-01",
        "notes": [],
        "machine": {
            "versions": {"cubicflow": "0", "torch": "0"},
            "processor": "a CPU",
            "threads": 1,
            "gpu": None,
            "lanes": 1,
        },
        "settings": {**settings, "most_parameters": 200, "gap_reach": 0.05, "gap_aim": 0.02},
        "results": results,
    }
    (folder / "figure-2" / "figure-2.json").write_text(json.dumps(record))
    done = paper("page", "-o", folder)
    assert done.status == 0, done.errors
    return (folder / "README.md").read_text()


def test_the_page_gives_the_limits_of_the_sharpness(paper: Command, tmp_path: Path) -> None:
    new = {"panels": ["data", "true density", "model density", "model samples"], "densities": [{**ROW, **SHARPNESS}]}
    page = plane_page(paper, tmp_path / "new", new)
    assert "From left to right: data, true density, model density, model samples." in page
    assert "1,000,000 points on 512 x 512 pixels are 3.8 points a pixel" in page
    # Half of 0.008 - 0.002, and half of the root of 0.0006 ** 2 + 0.0008 ** 2.
    cells = "0.0020 ± 0.0008 | 0.0030 ± 0.0005 | 8.8 (7.9 to the whole square) | 0.0123 (7)"
    assert f"| Gauss | 0.100 | 0.108 | 0.0080 ± 0.0006 | {cells} | 100 | 5 | 1.0 |" in page
    assert "Einstein" not in page


@pytest.mark.parametrize(
    ("reached", "aim_met", "words"),
    [(True, True, "which meets the aim"), (True, False, "which meets the goal"), (False, False, "**a goal missed**")],
)
def test_the_page_says_whether_the_gaussians_meet_the_goal(
    paper: Command, tmp_path: Path, reached: bool, aim_met: bool, words: str
) -> None:
    row = {**ROW, **SHARPNESS, "density": "225 Gaussians", "reached": reached, "aim_met": aim_met}
    page = plane_page(paper, tmp_path, {"panels": ["data"], "densities": [row, {**row, "density": "Gauss"}]})
    assert page.count(f"The gap of the Gaussians is 0.008, {words}") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", 10**30), "--seed must be a whole number from 0 to 2^32 - 1"),
        (("--seed", -1), "--seed must be a whole number from 0 to 2^32 - 1"),
        (("--device", "nope"), "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'nope'"),
    ],
)
def test_every_experiment_checks_its_options(
    paper: Command, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    done = paper("figure-1", "-o", tmp_path / "out", *options)
    assert done.status == 2
    assert message in done.errors


def test_the_page_shows_table_1(paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "table-1"
    models = ("--model", "cubic", "--model", "quadratic", "--model", "cubic-autoregressive")
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    assert paper("table-1", "-o", folder, *common, *models).status == 0
    assert paper("page", "-o", tmp_path / "results").status == 0
    page = (tmp_path / "results" / "README.md").read_text()
    found = json.loads((folder / "table-1.json").read_text())["results"]
    pair = next(pair for pair in found["comparisons"] if pair["first"] == "cubic")
    details = (folder / "table-1.md").read_text()
    for text in (page, details):
        assert text.count(f"{pair['mean']:+.3f} ± {pair['error']:.3f}") == 1  # among the claims, and on the other page
    assert "(table-1/table-1.md)" in page
    assert "- GAS: not rerun, the data is not here.\n" in page
    assert "- GAS: the data is not here; it is gas/" in page[page.index("How to rerun") :]
    (pair,) = [pair for pair in found["relatives"] if pair["first"] == "cubic-autoregressive"]
    scores = {
        model: np.stack([load_scores(path).astype(float) for path in sorted(folder.glob(f"cells/*/{model}/*/*.npz"))])
        for model in ("cubic", "cubic-autoregressive")
    }
    assert pair["mean"] == pytest.approx((scores["cubic-autoregressive"] - scores["cubic"][:1]).mean(), rel=1e-6)
    line = f"| MINIBOONE | cubic autoregressive | {pair['mean']:+.3f} ± {pair['error']:.3f} | 1 | {pair['verdict']} |"
    assert line in details
    assert f"layers minus our best coupling layers: MINIBOONE {pair['mean']:+.3f}" in page
    assert "not comparable: not the published test rows" in page
