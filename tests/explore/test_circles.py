"""The page shows circles by the splines of the model, from one end of the turn to the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.explore.pages import Page, Tab
from tests.helpers.circles import KINDS, SMALL, Rows, circles

from cubicflow.explore.flow_layers import POINTS, ROWS, layers_answer
from cubicflow.explore.framed import unframed
from cubicflow.explore.opened_run import OpenedRun
from cubicflow.explore.subject import Subject
from cubicflow.tables import FittedTable, TableOptions, fit_table
from cubicflow.tables.axes import MOST_BINS, Axis, axis_of
from cubicflow.tables.laws.masses import masses_of
from cubicflow.tables.query.pool import Pool


@pytest.fixture(scope="module")
def subject(of_circles: FittedTable) -> Subject:
    return Subject(of_circles)


def shown(subject: Subject, name: str) -> Axis:
    return next(column for column in subject.axes if column.name == name)


@pytest.mark.parametrize(
    ("name", "ends", "bins"),
    [("angle", (-np.pi, np.pi), MOST_BINS), ("wind", (0, 360), MOST_BINS), ("hour", (0, 24), 24)],
)
def test_the_axis_of_a_circle_is_one_turn(subject: Subject, name: str, ends: tuple[float, float], bins: int) -> None:
    axis = shown(subject, name)
    edges = axis.shown(np.asarray(axis.edges))
    assert (edges[0], edges[-1]) == pytest.approx(ends)
    assert len(edges) == bins + 1
    assert (np.diff(edges) > 0).all()


def test_bins_of_many_steps_end_at_the_turn(subject: Subject) -> None:
    hour = next(column for column in subject.fitted.model.encoder.columns if column.name == "hour")
    finer = replace(hour, grid=replace(hour.grid, count=97))
    edges = axis_of(finer, np.arange(97.0)).edges
    assert (edges[0], edges[-1], edges[1]) == (0, 97, 3)


def test_bins_have_the_mass_of_the_scores(subject: Subject, of_circles: FittedTable) -> None:
    """Bins of angles and of the long tail are integrals of the score, those of hours and of rounded numbers sums."""
    rows = Rows(of_circles)
    for name in ("angle", "wind", "hour", "zero", "size"):
        column = shown(subject, name)
        law = rows.law(name)
        masses = law.masses(law.coder.of(column.sets))
        edges = np.asarray(column.edges)
        if name == "hour":
            expected = np.exp(rows.log_p(name, edges[:-1]))
        elif name == "size":  # ten values in each unit
            values = np.round(np.arange(np.ceil(edges[0] * 10), np.ceil(edges[6] * 10)) / 10, 1)
            each = np.stack([rows.integral(name, v - 0.05, v + 0.05, 8) for v in values], axis=1)
            expected = np.zeros((len(each), 6))
            np.add.at(expected.T, column.bin_of(values), each.T)
        else:
            half = 0.0005 if name == "wind" else 0.0
            some = list(pairwise(edges))[:6]
            expected = np.stack([rows.integral(name, max(a - half, edges[0]), b - half, 8) for a, b in some], axis=1)
            if name == "wind":  # half a step lies across the seam
                expected[:, 0] += rows.integral(name, 360 - half, 360, 8)
            if name == "zero":
                expected[:, 0] += np.exp(rows.log_p(name, np.zeros(1)))[:, 0]
        np.testing.assert_allclose(masses[:, : expected.shape[1]], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_masses_of_a_pool_in_float32(of_circles: FittedTable, subject: Subject) -> None:
    """The answer without conditions is the mean of the laws, which the pool keeps in float32."""
    pool = subject.drawn()
    assert isinstance(pool, Pool)
    found = subject.answer({})
    y = pool.y
    rows = y[:4096]
    i = pool.model.order.index("wind")
    begun = pool.walk.begun(rows, i)
    law = pool.walk.law(i, begun)
    exact = law.masses(law.coder.of(shown(subject, "wind").sets)).mean(0)
    answered = found.columns[[each.name for each in subject.axes].index("wind")].masses
    np.testing.assert_allclose(answered, exact, rtol=0, atol=1e-6)
    assert answered[:-1].sum() == pytest.approx(1, abs=1e-6)


def test_layers_shows_the_splines_of_the_model(of_circles: FittedTable) -> None:
    """F at a place of [0, 1] is the mass of all numbers up to the place."""
    run = OpenedRun(Path(), "", {}, of_circles.flow, of_circles)
    header, arrays = unframed(layers_answer(run))
    names = [layer["name"] for layer in header["layers"]]
    pool = run.subject.drawn()
    assert isinstance(pool, Pool)
    places = arrays["x"].astype(np.float64)[1:-1]
    for name in ("angle", "hour", "zero"):
        i = pool.model.order.index(name)
        params, closed = pool.law(i, slice(ROWS)).params, pool.walk.coders[i].cells.closed
        masses = masses_of(np.zeros(len(places)), 1 - places, np.log(places), params, closed=closed).T
        curves = arrays["y"][names.index(name)]
        assert curves.shape == (ROWS, POINTS)
        np.testing.assert_allclose(curves[:, 1:-1], masses, rtol=0, atol=1e-6, err_msg=name)


# --- in the browser ---


@pytest.fixture(scope="module")
def circle_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("circles")
    circles().to_csv(folder / "t.csv", index=False)
    fit_table(folder / "t.csv", folder / "run", TableOptions(kinds=KINDS), SMALL, steps=30, progress=False)
    return folder / "run"


def test_a_card_of_a_circle_ends_at_its_turn(served: Callable[[Path], Page], circle_run: Path, tab: Tab) -> None:
    shown = tab.open(served(circle_run), "overview")
    for name, turn in (("wind", 360), ("hour", 24)):
        card = shown.locator("article", has=shown.get_by_role("heading", name=name, exact=True))
        ticks = card.locator(".tick").all_inner_texts()
        places = [float(style.split("left: ")[1].split("%")[0]) for style in _attributes(card, ".tick", "style")]
        np.testing.assert_allclose(places, [100 * float(tick) / turn for tick in ticks], atol=1e-3)
        outline = [point.split() for point in _attributes(card, "path.model", "d")[0][1:].split("L")]
        assert (outline[0][0], outline[-1][0]) == ("0", "1000")
    assert tab.wrong == []


def _attributes(card: Any, selector: str, name: str) -> list[str]:
    found: list[str] = card.locator(selector).evaluate_all(f"(all) => all.map((one) => one.getAttribute('{name}'))")
    return found


def test_an_arc_across_the_seam(served: Callable[[Path], Page], circle_run: Path, tab: Tab) -> None:
    """A range of hours from 22 to 2 has five hours, by the address and by the sliders."""
    shown = tab.open(served(circle_run), "what-if?hour=22..2")
    hour = [*circles()].index("hour")

    def masses() -> list[float]:
        found: list[float] = unframed(tab.settled() and tab.answers[-1].body())[1]["masses"][hour].tolist()
        return found

    def inside() -> set[int]:
        return {i for i, mass in enumerate(masses()[:24]) if mass > 1e-6}

    assert inside() == {22, 23, 0, 1, 2}
    assert sum(masses()) == pytest.approx(1, abs=1e-5)
    assert "22 to 2" in shown.locator(".given-card").inner_text()
    for end, value in (("lowest", 23), ("highest", 0)):
        shown.get_by_label(f"{end} hour", exact=True).evaluate(
            f"(e) => {{ e.value = {value}; e.dispatchEvent(new Event('input')); }}"
        )
    tab.settled()
    assert json.loads(tab.answers[-1].request.post_data)["conditions"] == {"hour": {"from": "23", "to": "0"}}
    assert inside() == {23, 0}
    assert tab.wrong == []
