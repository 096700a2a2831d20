"""Bad arguments are refused, and evaluations are kept when an integrand fails."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
        (lambda x: 1 / 0, "f raised ZeroDivisionError: division by zero"),
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
        ([(0, math.inf)], r"infinite on one side"),
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
    with pytest.raises(ValueError, match="evaluations must be a whole number"):
        cf.integrate(f, SQUARE, -1)
    with pytest.raises(ValueError, match="loss must be 'kl' or 'variance'"):
        cf.integrate(f, SQUARE, loss="entropy")
    with pytest.raises(ValueError, match="arrays must be 'numpy' or 'torch'"):
        cf.integrate(f, SQUARE, arrays="jax")
    with pytest.raises(TypeError, match="f must be a function"):
        cf.integrate(3.0, SQUARE)
    with pytest.raises(ValueError, match="nothing was evaluated yet"):
        Integrator(f, SQUARE).result()


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
