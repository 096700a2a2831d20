"""What a reader sees and does: colours of the layers, the keyboard, choices that stay, single values, dates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from tests.explore.pages import Page, Tab, ask

from cubicflow.explore.framed import unframed
from cubicflow.tables.axes import axis_of
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.query.all_columns import counted

Serve = Callable[[Path], Page]
CORNERS = """(paper) => {
  const canvas = document.querySelector("main canvas"), pen = canvas.getContext("2d"), side = canvas.width, left = 0;
  const mean = (u, v) => {
    const part = pen.getImageData(left + u * side, v * side, 0.2 * side, 0.2 * side).data, found = [0, 0, 0, 0];
    for (let i = 0; i < part.length; i += 4) {
      for (let c = 0; c < 3; c += 1) part[i + c] = paper[c] + (part[i + c] - paper[c]) * part[i + 3] / 255;
      if (Math.max(...paper.map((p, c) => Math.abs(part[i + c] - p))) < 60) continue;
      for (let c = 0; c < 3; c += 1) found[c] += part[i + c];
      found[3] += 1;
    }
    return found.slice(0, 3).map((sum) => sum / found[3]);
  };
  return [mean(0.1, 0.1), mean(0.7, 0.1), mean(0.1, 0.7), mean(0.7, 0.7)];
}"""
VISIBLE = 20  # distance of two colours, of 442 between black and white; in a grey fog it is near 0
PAPER = {"light": [255, 255, 255], "dark": [27, 30, 36]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_parts_of_the_data_have_their_own_colours(scheme: str, served: Serve, plane_run: Path, tab: Tab) -> None:
    """The mean colours of the points in the four corners differ visibly, before and after the layers."""
    tab.page.emulate_media(color_scheme=scheme)
    shown = tab.open(served(plane_run), "layers")
    shown.get_by_role("checkbox", name="lines").uncheck()
    slider = shown.get_by_label("place between data and noise")
    for place in (0, float(slider.get_attribute("max"))):
        slider.evaluate(f"(e) => {{ e.value = {place}; e.dispatchEvent(new Event('input')); }}")
        corners = np.array(shown.evaluate(CORNERS, PAPER[scheme]))
        apart = np.linalg.norm(corners[:, None] - corners[None], axis=2)
        assert apart[np.triu_indices(4, 1)].min() > VISIBLE, corners
    plain = shown.evaluate("document.querySelector('main canvas').toDataURL()")
    shown.get_by_role("checkbox", name="lines").check()
    assert shown.evaluate("document.querySelector('main canvas').toDataURL()") != plain


def test_lines_go_through_the_same_layers_as_points(served: Serve, plane_run: Path) -> None:
    arrays = unframed(ask(served(plane_run), "/api/layers")[1])[1]
    lines, path = arrays["lines"], arrays["path"]
    assert np.ptp(lines[0, 0, :, 0]) == 0  # the first line is upright in the data
    assert np.ptp(lines[0, -1, :, 1]) == 0  # the last line is level
    # A point of the data near a point of a line stays near it: the layers are continuous.
    for k, j in ((4, 40), (13, 90)):
        near = np.argmin(np.abs(path[0] - lines[0, k, j]).max(axis=1))
        assert np.abs(path[:, near] - lines[:, k, j]).max() < 0.05


def test_a_single_value_keeps_its_mass_and_is_a_quantile() -> None:
    """Three fifths of the rows are 0; few effective rows must not spread them, and the median is 0."""
    rng = np.random.default_rng(0)
    column = axis_of(Real("x", "double"), rng.gamma(2.0, 5.0, 4000))
    y = np.where(np.arange(400) % 5 < 3, 0.0, rng.gamma(2.0, 5.0, 400))
    found = counted(column, y, np.zeros(400))
    assert found.masses[0] == pytest.approx(np.mean(y < column.edges[1]))
    assert found.masses.sum() == pytest.approx(np.mean(y < column.edges[-1]))
    np.testing.assert_array_equal(found.quantiles, np.quantile(y, [0.05, 0.5, 0.95], method="inverted_cdf"))
    weighted = counted(column, np.array([1.0, 2.0, 30.0]), np.log([0.2, 0.2, 0.6]))
    assert weighted.quantiles.tolist() == [1.0, 30.0, 30.0]


def test_sampled_rows_of_an_array_meet_narrow_conditions(served: Serve, plane_run: Path) -> None:
    question = urlencode({"conditions": json.dumps({"x": {"from": "0.5", "to": "0.55"}}), "n": 100, "seed": 0})
    text = ask(served(plane_run), f"/api/sample.csv?{question}")[1].decode()
    rows = np.loadtxt(text.splitlines()[1:], delimiter=",")
    assert len(rows) == 100
    assert ((rows[:, 0] >= 0.5) & (rows[:, 0] <= 0.55)).all()


def test_conditions_stay_when_the_page_is_reloaded(served: Serve, mixed_run: Path, tab: Tab) -> None:
    shown = tab.open(served(mixed_run), "what-if")
    shown.get_by_label("condition on weight").select_option("missing")
    shown.get_by_label("condition on size (m²)").select_option("range")
    shown.get_by_label("lowest size (m²), as text").fill("2.25")
    shown.get_by_label("lowest size (m²), as text").press("Enter")
    shown.get_by_label("condition on born").select_option("is")
    born = shown.get_by_label("value of born, as text").input_value()
    assert f"&born={born}" in shown.url
    shown.reload()
    tab.settled()
    assert shown.get_by_label("condition on weight").input_value() == "missing"
    assert shown.get_by_label("lowest size (m²), as text").input_value() == "2.25"
    assert shown.get_by_label("value of born, as text").input_value() == born
    assert shown.get_by_label("condition on legs").input_value() == "any"


def test_the_keyboard(served: Serve, lists_run: Path, tab: Tab) -> None:
    shown = tab.open(served(lists_run), "pairs?x=tree&y=age")
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")  # on the link past the head
    assert shown.evaluate("document.activeElement.id") == "view"
    assert shown.locator("main").get_attribute("data-view") == "pairs"
    shown.locator("canvas").first.focus()
    for _ in range(4):
        shown.keyboard.press("ArrowUp")
    assert int(shown.inner_text("main [role=status]").split()[0].replace(",", "")) > 0
    assert tab.wrong == []


def test_an_error_in_one_part_leaves_the_others(served: Serve, lists_run: Path, browser: Any) -> None:
    tab = Tab(browser)
    tab.page.route("**/api/columns", lambda route: route.fulfill(status=500, body='{"error": "no columns today"}'))
    shown = tab.open(served(lists_run), "overview")
    assert shown.locator("main .error").all_inner_texts() == ["no columns today"]
    assert "Training" in shown.inner_text("main")
    assert shown.locator(".facts").count()
    tab.context.close()


def test_ticks_of_dates_are_starts_of_months_and_years(served: Serve, lists_run: Path, tab: Tab) -> None:
    shown = tab.open(served(lists_run), "rows")

    def ticks(first: str, last: str) -> list[str]:
        low, high = (int(np.datetime64(day, "s").astype(np.int64)) for day in (first, last))
        code = f"import('/static/axis.js').then((m) => m.dateTicks({low}, {high}, 4).map((t) => t[1]))"
        found: list[str] = shown.evaluate(code)
        return found

    assert ticks("2024-01-01", "2025-02-20") == ["2024-01", "2024-07", "2025-01"]
    assert ticks("1990-05-01", "2024-01-01") == ["2000", "2010", "2020"]
    assert ticks("2024-02-27", "2024-03-03") == ["2024-02-27", "2024-02-29", "2024-03-02"]
