"""The records of Figure 1 and of the appendix, compared with SciPy's splines and linear programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from paper.appendix import quadratic_slopes, quadratic_through
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import linprog
from tests.helpers.command_line import Command


def test_figure_1_is_the_hermite_spline_of_its_params(paper: Command, tmp_path: Path) -> None:
    done = paper("figure-1", "-o", tmp_path / "out", "--quick", "--seed", 3)
    assert done.status == 0, done.errors
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "figure-1.csv",
        "figure-1.json",
        "figure-1.png",
    ]
    record = json.loads((tmp_path / "out" / "figure-1.json").read_text())
    assert record["quick"] is True
    assert record["seed"] == 3
    assert record["machine"]["versions"]["torch"]
    found = record["results"]
    # The design's formulas in NumPy: floored softmax, Steffen's slopes, edge slopes r(p) x secant.
    params, k = np.array(found["params"]), 10
    shares = [np.exp(part) / np.exp(part).sum() for part in (params[:k], params[k : 2 * k])]
    w, h = (1e-3 + (1 - k * 1e-3) * share for share in shares)
    s = h / w
    inner = np.minimum((s[:-1] * w[1:] + s[1:] * w[:-1]) / (w[:-1] + w[1:]), 2 * np.minimum(s[:-1], s[1:]))
    ratio = 1e-3 + (3 - 2e-3) / (1 + np.exp(-(params[-2:] - np.log((2 - 1e-3) / (1 - 1e-3)))))
    slopes = np.concatenate([ratio[:1] * s[:1], inner, ratio[1:] * s[-1:]])
    x_knots, y_knots = (np.append(0, part.cumsum()) for part in (w, h))
    np.testing.assert_allclose(found["x_knots"], x_knots, atol=1e-12)
    spline = CubicHermiteSpline(x_knots, y_knots, slopes)
    with (tmp_path / "out" / "figure-1.csv").open() as file:
        x, y, slope = np.array([[float(value) for value in row.values()] for row in csv.DictReader(file)]).T
    np.testing.assert_allclose(y, spline(x), atol=1e-12)
    np.testing.assert_allclose(slope, spline(x, 1), atol=1e-9)
    assert found["smallest_slope"] > 0
    assert found["largest_round_trip_error"] < 1e-13


def test_only_the_cubic_passes_through_the_knots_of_the_appendix(paper: Command, tmp_path: Path) -> None:
    done = paper("appendix", "-o", tmp_path, "--quick")
    assert done.status == 0, done.errors
    assert (tmp_path / "appendix.png").exists()
    found = json.loads((tmp_path / "appendix.json").read_text())["results"]
    for knots in (found["three_bins"], found["quantiles"]):
        assert knots["quadratic_smallest_slope"] < 0
        assert knots["cubic_smallest_slope"] >= 0
        assert knots["cubic_largest_miss_of_a_knot"] < 1e-12
    assert found["quantiles"]["cubic_largest_error"] < found["quantiles"]["quadratic_largest_error"]
    for count in found["parameters"]:
        assert (count["cubic"], count["quadratic"]) == (2 * count["bins"] + 2, 2 * count["bins"] + 1)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10])
def test_the_best_quadratic_slopes_solve_the_linear_program(bins: int) -> None:
    """The linear program maximises m subject to d_k >= m and d_k + d_{k+1} = 2 s_k."""
    random = np.random.default_rng(bins)
    for _ in range(20):
        widths, heights = random.dirichlet(np.ones(bins)) + 0.01, random.dirichlet(np.ones(bins)) + 0.01
        averages = np.zeros((bins, bins + 2))
        for k in range(bins):
            averages[k, [k, k + 1]] = 1
        above = np.hstack([-np.eye(bins + 1), np.ones((bins + 1, 1))])
        best = linprog(
            [0] * (bins + 1) + [-1],
            A_ub=above,
            b_ub=np.zeros(bins + 1),
            A_eq=averages,
            b_eq=2 * heights / widths,
            bounds=(None, None),
        )
        found = quadratic_slopes(widths, heights)
        np.testing.assert_allclose(found.min(), -best.fun, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found[1:] + found[:-1], 2 * heights / widths, rtol=1e-9)


def test_the_quadratic_spline_passes_through_its_knots_with_its_slopes() -> None:
    random = np.random.default_rng(0)
    x_knots, y_knots = (
        np.append(0, random.uniform(0.1, 1, 6).cumsum()),
        np.append(0, random.uniform(0.1, 1, 6).cumsum()),
    )
    slopes = quadratic_slopes(np.diff(x_knots), np.diff(y_knots))
    values, derivative = quadratic_through(x_knots, x_knots, y_knots, slopes)
    np.testing.assert_allclose(values, y_knots, atol=1e-12)
    np.testing.assert_allclose(derivative, slopes, atol=1e-12)
    x = np.linspace(x_knots[0], x_knots[-1], 100_001)
    values, derivative = quadratic_through(x, x_knots, y_knots, slopes)
    np.testing.assert_allclose(np.gradient(values, x)[1:-1], derivative[1:-1], atol=1e-3)
