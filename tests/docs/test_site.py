"""The documentation builds without a warning, and its pages need no network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.helpers import processes

import cubicflow as cf

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]
# Addresses that a browser fetches while it shows a page; links to click on are not among them.
FETCHED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    environment = {"NO_MKDOCS_2_WARNING": "1", "CUBICFLOW_DOCS_SEARCH": "false"}
    done = processes.start(build, str(folder), log=folder.with_suffix(".log"), environment=environment)
    assert done.wait() == 0, done.log.read_text()
    return folder


def build(folder: str) -> None:
    """Build the documentation in this process, which ends."""
    from mkdocs.__main__ import cli

    os.chdir(ROOT)
    cli(["build", "--strict", "--site-dir", folder])


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    fetched = {(page.name, url) for page in pages for url in FETCHED.findall(page.read_text(encoding="utf-8"))}
    assert not fetched


def test_recorded_figures_are_those_of_the_file(site: Path) -> None:
    """One cell of each table equals the value computed here from the CSV file."""
    text = (site / "results" / "index.html").read_text(encoding="utf-8")
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", text, flags=re.DOTALL)]
    cells = {tuple(row[:2]): row[2:] for row in rows if len(row) > 2}
    recorded = (ROOT / "results" / "spline_robustness.csv").read_text().splitlines()[1:]
    mine = [line.rsplit(",", 7) for line in recorded if line.startswith("nflows cubic,float32,")]
    assert cells["nflows cubic", "float32"][1] == f"{sum(int(line[-4]) for line in mine):,}"
    assert cells["nflows cubic", "float32"][3] == f"{max(float(line[-2]) for line in mine):.3g}"
    linear = next(row for row in rows if row and row[0] == "linear")
    assert linear[1] == "9.2e-02"  # K = 2, 9.245314e-02 in the file
    assert len(linear) == 9
    assert "recorded" not in re.findall(r'class="[^"]*language-(\w+)', text)


def test_the_reference_has_every_public_name(site: Path) -> None:
    """Every public name was rendered. For example, a name that is also the name of a module could be skipped."""
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    anchors = set(re.findall(r'<h\d id="(cubicflow\.[\w.]+)"', text))
    modules = [value for name in cf.__all__ if isinstance(value := getattr(cf, name), ModuleType)]
    public = [(module.__name__, name) for module in modules for name in getattr(module, "__all__", [])]
    missing = [
        f"{module}.{name}"
        for module, name in public
        if not any(anchor.startswith(f"{module}.") and anchor.endswith(f".{name}") for anchor in anchors)
    ]
    assert len(public) > 50
    assert not missing


def test_examples_in_docstrings_are_code(site: Path) -> None:
    text = (site / "api" / "splines.html").read_text(encoding="utf-8")
    text = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)  # source code is not Markdown
    assert "&gt;&gt;&gt; " in text
    assert "<blockquote>" not in text  # Markdown renders >>> outside a block as a quotation
    assert ":func:" not in text
