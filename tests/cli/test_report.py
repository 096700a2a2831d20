"""The report is self-contained. It is also opened in a real browser, if one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command_line import Command

from .pets import make_frame

PICTURES = ("training.png", "one-column-at-a-time.png", "two-columns-at-a-time.png")


@pytest.fixture
def report(cubicflow: Command, run: Path) -> Path:
    """Return the page of a run. It is drawn once; tests do not change it."""
    page = run.parent / "pictures" / "report.html"
    if not page.exists():
        status, output, errors = cubicflow("plot", run, "-o", page.parent, "--rows", 300)
        assert status == 0, errors
        assert f"wrote {page}" in output
    return page


def test_the_page_is_self_contained(cubicflow: Command, run: Path, report: Path) -> None:
    for name in PICTURES:
        assert (report.parent / name).read_bytes().startswith(b"\x89PNG")
    text = report.read_text()
    assert text.count('src="data:image/png;base64,') == len(PICTURES)
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!data:)([^\"')\s>]+)", text)
    assert addresses == []
    assert "mass per step of 0.01" in text
    before = report.read_bytes()
    status, _, errors = cubicflow("plot", run, "-o", report.parent)
    assert status == 2
    assert "--overwrite" in errors
    assert report.read_bytes() == before


@pytest.mark.usefixtures("few_panels")
def test_the_report_in_a_run_folder_is_replaced(cubicflow: Command, narrow_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(narrow_run, tmp_path / "run")
    page = copy / "plots" / "report.html"
    for options in ((), ("-o", copy / "plots" / ".." / "plots")):
        page.parent.mkdir(exist_ok=True)
        page.write_text("old")
        status, _, errors = cubicflow("plot", copy, "--rows", 50, *options)
        assert status == 0, errors
        assert "<html" in page.read_text()


def test_a_link_to_elsewhere_is_not_followed(cubicflow: Command, narrow_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(narrow_run, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (copy / "plots").symlink_to(tmp_path / "elsewhere")
    status, _, errors = cubicflow("plot", copy, "--rows", 50)
    assert status == 2
    assert f"{copy / 'plots'} is a link to {tmp_path / 'elsewhere'}" in errors
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert cubicflow("plot", narrow_run, "-o", copy / "plots" / "asked-for", "--rows", 50).status == 0


def test_pictures_that_are_links_are_replaced(cubicflow: Command, narrow_run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "pictures").mkdir()
    for name in (*PICTURES, "report.html"):
        (tmp_path / "pictures" / name).symlink_to(tmp_path / "mine")
    assert cubicflow("plot", narrow_run, "-o", tmp_path / "pictures", "--rows", 50, "--overwrite").status == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "pictures" / "report.html").is_symlink()


def test_one_line_gives_the_quality_of_the_fit(
    cubicflow: Command, run: Path, narrow_run: Path, table: Path, report: Path, tmp_path: Path
) -> None:
    """The numbers equal those of evaluate, because the report scores all rows of a small table."""
    text = report.read_text()
    evaluated = cubicflow("evaluate", run, table).output
    gain = re.search(r"the model (gains|loses) (\S+ ± \S+) nats a row", evaluated)
    gap = re.search(r"training rows score (\S+ ± \S+) nats (higher|lower) than test rows", evaluated)
    assert gain is not None
    assert gap is not None
    by, under = {"gains": "higher", "loses": "lower"}[gain[1]], {"higher": "lower", "lower": "higher"}[gap[2]]
    assert f"Test rows score {gain[2]} nats {by} than by independent columns, and {gap[1]} nats {under} than" in text
    assert "all 200 rows are used, 1,000 values" in text
    assert "splines" not in text
    other = tmp_path / "other.csv"
    make_frame(100, seed=0).to_csv(other, index=False)
    assert cubicflow("plot", narrow_run, "-o", tmp_path / "other", "--data", other, "--rows", 50).status == 0
    line = next(
        line for line in cubicflow("evaluate", narrow_run, other).output.splitlines() if line.startswith("log lik")
    )
    text = (tmp_path / "other" / "report.html").read_text()
    assert f"<td>its rows</td><td>100</td><td>{line.split('likelihood ')[1].split(' over')[0]}</td>" in text
    assert "training rows" not in text


def test_every_column_is_drawn(cubicflow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five columns are drawn in two pictures, three at a time. Twenty at a time take ten seconds."""
    monkeypatch.setattr("cubicflow.plots.report.MARGINALS_AT_ONCE", 3)
    monkeypatch.setattr("cubicflow.plots.report.most_correlated", lambda panels: panels[:2])
    table, run = tmp_path / "wide.csv", tmp_path / "run"
    pd.DataFrame(np.random.default_rng(0).standard_normal((60, 5)).round(1)).add_prefix("c").to_csv(table, index=False)
    assert cubicflow("fit", table, "-o", run, "--steps", 1, "--hidden-features", 4).status == 0
    assert cubicflow("plot", run, "--rows", 20).status == 0
    text = (run / "plots" / "report.html").read_text()
    for which in ("1 to 3", "4 to 5"):
        assert f"<h2>One column at a time, columns {which}</h2>" in text
        assert (run / "plots" / f"one-column-at-a-time-columns-{which.replace(' ', '-')}.png").exists()


def test_names_are_escaped(cubicflow: Command, tmp_path: Path) -> None:
    table = tmp_path / "odd.csv"
    frame = make_frame()[["weight", "size"]]
    frame.rename(columns={"size": "<b>size</b>", "weight": "$\\frac$"}).to_csv(table, index=False)
    small = ("--steps", 3, "--model", "flow", "--num-layers", 1, "--hidden-features", 8)
    assert cubicflow("fit", table, "-o", tmp_path / "run", *small).status == 0
    status, _, errors = cubicflow("plot", tmp_path / "run", "--rows", 50)
    assert status == 0, errors
    text = (tmp_path / "run" / "plots" / "report.html").read_text()
    assert "&lt;b&gt;size&lt;/b&gt;" in text
    assert "<b>size" not in text
    assert cubicflow("fit", table, "-o", tmp_path / "run", *small, "--overwrite").status == 0  # plots are allowed


@pytest.mark.usefixtures("few_panels")
def test_a_table_that_moved_is_given_with_data(
    cubicflow: Command, conditional_run: Path, table: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "run"
    shutil.copytree(conditional_run, moved)
    config = moved / "config.json"
    config.write_text(config.read_text().replace(str(table.resolve()), str(tmp_path / "gone.csv")))
    status, _, errors = cubicflow("plot", moved)
    assert status == 2
    assert "no longer exists; give a table with --data" in errors
    assert cubicflow("plot", moved, "--data", table, "--rows", 60).status == 0


def test_the_report_renders_in_a_browser(report: Path, chromium: str, tmp_path: Path) -> None:
    """Chromium without a network shows the pictures: their colours are on the screen."""
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    from cubicflow.plots.style import DATA, SAMPLES

    screen = tmp_path / "screen.png"
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,4000"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"),
        *(f"--screenshot={screen}", report.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert screen.exists(), done.stderr
    pixels = imread(screen)[..., :3]
    for colour in (DATA, SAMPLES):
        near = (np.abs(pixels - np.array(to_rgb(colour))).max(axis=-1) < 0.02).sum()
        assert near > 200, f"{colour} is not on the page"
