"""Bad arguments are refused, and evaluations are kept when an integrand fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import cubicflow as cf
from cubicflow.integration import Circle, IntegrandError, Integrator, Line

SQUARE = [(0, 1)] * 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: np.full(len(x), np.nan), "f returned NaN at"),
        (lambda x: np.where(x[:, 0] > 0.5, np.inf, 0), "f returned inf at"),
        (lambda x: x, r"shape \(\d+,\), got shape \(\d+, 2\)"),
        (lambda x: x.sum(), r"got shape \(\)"),
        (lambda x: x[:, 0] * 1j, "complex numbers"),
        (lambda x: ["word"] * len(x), "f must return numbers"),
        (lambda x: [[1.0], [1.0, 2.0]], "f raised ValueError: setting an array element"),
        (lambda x: 1 / 0, "f raised ZeroDivisionError: division by zero"),
        (
            lambda x: torch.exp(x),
            r"f raised TypeError.*f gets a NumPy array of shape \(\d+, 2\); arrays='torch' gives a t",
        ),
        (lambda x: math.exp(x[0]), r"f raised TypeError.*f gets a NumPy array of shape"),
        (lambda x: torch.ones(2) @ torch.ones(3), "f raised RuntimeError"),
        (lambda x: torch.zeros(2).view("a", "b"), "f raised TypeError"),  # torch's message has several lines
    ],
)
def test_bad_return_values_raise_a_one_line_error(answer, message: str) -> None:
    with pytest.raises(IntegrandError, match=message) as caught:
        cf.integrate(answer, SQUARE, 1_000)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(1, 0)], r"bounds\[0\] = \(1, 0\) is reversed; write \(0, 1\)"),
        ([(0, 1), (2, 2)], r"bounds\[1\] = \(2, 2\) has width 0"),
        ([(3, math.inf)], r"infinite on one side; substitute x = 3 \+ t / \(1 - t\), multiply f by 1 / \(1 - t\)\^2"),
        ([(-math.inf, 3)], r"infinite on one side; substitute x = 3 - t / \(1 - t\), multiply f by 1 / \(1 - t\)\^2"),
        ([(math.inf, -math.inf)], r"is reversed; write \(-inf, inf\)"),
        ([(math.inf, math.inf)], "is not an interval"),
        ([Circle(0, math.inf)], "a circle needs two finite ends"),
        ([(-1e308, 1e308)], "too wide"),
        ([(math.nan, 1)], "holds NaN"),
        ([], "bounds is empty"),
        ([0.0, 1.0], r"bounds\[0\] must be a pair"),
        ([Circle(1, 1)], "has width 0"),
        ([Line(scale=0)], "scale positive"),
        (5, "bounds must be a sequence"),
    ],
)
def test_bad_bounds_are_refused(bounds, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cf.integrate(lambda x: x[:, 0], bounds, 1_000)


def test_bad_settings_are_refused() -> None:
    f = lambda x: x[:, 0]  # noqa: E731
    with pytest.raises(ValueError, match="evaluations=500 is too few for 20 columns; give at least 2,000"):
        cf.integrate(f, [(0, 1)] * 20, 500)
    for evaluations in (-1, 1.5, None, math.nan, math.inf, "1000"):
        with pytest.raises(ValueError, match="evaluations must be a whole number"):
            cf.integrate(f, SQUARE, evaluations)
    for batch_size in (0, 1.5, None):
        with pytest.raises(ValueError, match="batch_size must be a whole number, 1 or more"):
            cf.integrate(f, SQUARE, batch_size=batch_size)
    for seed in (1.5, None, -1, 2**63):
        with pytest.raises(ValueError, match=r"seed must be (a whole number, 0 or more|below 2\^62)"):
            cf.integrate(f, SQUARE, seed=seed)
    with pytest.raises(TypeError, match="progress must be True, False or a function of a line, got 'yes'"):
        cf.integrate(f, SQUARE, progress="yes")
    with pytest.raises(ValueError, match="loss must be 'kl' or 'variance'"):
        cf.integrate(f, SQUARE, loss="entropy")
    with pytest.raises(ValueError, match="arrays must be 'numpy' or 'torch'"):
        cf.integrate(f, SQUARE, arrays="jax")
    with pytest.raises(TypeError, match="f must be a function"):
        cf.integrate(3.0, SQUARE)
    with pytest.raises(ValueError, match="nothing was evaluated yet"):
        Integrator(f, SQUARE).result()


def test_whole_numbers_may_be_floats() -> None:
    """Python writes a million as 1e6."""
    f = lambda x: x[:, 0]  # noqa: E731
    found = cf.integrate(f, SQUARE, 2e3, batch_size=1e3)
    assert found.estimate == cf.integrate(f, SQUARE, 2_000, batch_size=1_000).estimate
    assert len(found.unweighted_samples(1e1)) == 10
    with pytest.raises(ValueError, match="n must be a whole number, 0 or more, got -1"):
        found.unweighted_samples(-1)


def test_an_integrand_that_is_zero_everywhere_gives_a_warning() -> None:
    found = cf.integrate(lambda x: 0 * x[:, 0], SQUARE, 2_000)
    assert found.estimate == 0
    assert found.error == math.inf
    assert "f was 0 at all" in found.warning
    with pytest.raises(ValueError, match="f was 0 at every point"):
        found.unweighted_samples()


def test_weights_dominated_by_few_points_give_a_warning() -> None:
    found = cf.integrate(lambda x: np.exp(-(((x - 0.3) / 1e-2) ** 2).sum(1) / 2), [(0, 1)] * 6, 1_000)
    assert "The error cannot be trusted" in found.warning
    assert found.warning in str(found)


def test_evaluations_before_an_error_are_kept() -> None:
    """After an error and a repair, the result equals that of an uninterrupted run, and no point is evaluated twice."""
    points_seen: list[np.ndarray] = []

    def fails_at(call: int):
        def f(x):
            if len(points_seen) == call:
                raise RuntimeError("the license server is gone")
            points_seen.append(x.copy())
            return np.exp(-(x**2).sum(1))

        return f

    with pytest.raises(IntegrandError, match=r"the license server is gone.*evaluations made before are kept") as caught:
        cf.integrate(fails_at(7), SQUARE, 4_000, batch_size=300)
    integrator = caught.value.integrator
    assert integrator.evaluations == sum(map(len, points_seen))
    found = integrator.run(f=fails_at(-1))
    points = np.concatenate(points_seen)
    assert len(points) == found.evaluations == len(np.unique(points, axis=0))
    assert found.estimate == cf.integrate(lambda x: np.exp(-(x**2).sum(1)), SQUARE, 4_000).estimate
