"""Integrals compared with values in closed form or by quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad, quad
from scipy.special import ive
from scipy.stats import chi2

import cubicflow as cf
from cubicflow.integration import Circle, Integrator, Line

SIGMAS = 4.5  # each of a few dozen checks fails by chance with probability 1e-5


def within(found: cf.integration.Integral, exact: float, relative: float) -> bool:
    return abs(found.estimate - exact) < SIGMAS * found.error < SIGMAS * relative * abs(exact)


def camel(features: int):
    def f(x):
        return sum(np.exp(-((x - c) ** 2).sum(1) / 0.08) for c in (1 / 3, 2 / 3))

    one = quad(lambda x: math.exp(-((x - 1 / 3) ** 2) / 0.08), 0, 1)[0]
    return f, 2 * one**features


def layer():
    """Return a thin layer across a cube, and its integral: an integral over the sum of three uniform numbers."""

    def density(s):  # density of the sum of three uniform numbers
        return sum((-1) ** k * math.comb(3, k) * max(s - k, 0) ** 2 for k in range(4)) / 2

    def f(x):
        return np.exp(-((x.sum(1) - 1.5) ** 2) / (2 * 0.05**2))

    return f, quad(lambda s: density(s) * math.exp(-((s - 1.5) ** 2) / (2 * 0.05**2)), 1, 2)[0]


@pytest.mark.parametrize("features", [1, 4, 8])
def test_two_humps_on_the_diagonal_are_integrated(features: int) -> None:
    f, exact = camel(features)
    assert within(cf.integrate(f, [(0, 1)] * features, 40_000, seed=1), exact, 2e-3)


def test_an_integrand_that_changes_its_sign() -> None:
    exact = dblquad(lambda y, x: math.sin(3 * x) * math.exp(y), -1, 2, 0, 3)[0]
    found = cf.integrate(lambda x: np.sin(3 * x[:, 0]) * np.exp(x[:, 1]), [(-1, 2), (0, 3)], 20_000)
    assert abs(found.estimate - exact) < SIGMAS * found.error < 0.5
    with pytest.raises(ValueError, match="f changes its sign"):
        found.unweighted_samples()


def test_all_of_space_and_a_circle() -> None:
    """The integrand is a shifted and scaled normal times a von Mises density. Both have closed forms."""
    kappa = 3.0
    exact = math.sqrt(2 * math.pi) * 5 * 2 * math.pi * ive(0, kappa)

    def f(x):
        return np.exp(-(((x[:, 0] - 100) / 5) ** 2) / 2 + kappa * (np.cos(x[:, 1] - 0.1) - 1))

    assert within(cf.integrate(f, [Line(center=90, scale=20), Circle()], 20_000), exact, 5e-3)


def test_a_narrow_peak_is_found_step_by_step() -> None:
    width = 1e-3
    f = lambda x: np.exp(-(((x - 0.3) / width) ** 2).sum(1) / 2)  # noqa: E731
    assert within(cf.integrate(f, [(0, 1)] * 2, 60_000, flow=False), 2 * math.pi * width**2, 2e-2)


def test_a_flow_is_trained_for_dependent_columns() -> None:
    """The integrand is a thin layer across a cube. No product of densities resembles it."""
    f, exact = layer()
    errors = {}
    for flow in (False, True):
        found = cf.integrate(f, [(0, 1)] * 3, 18_000, flow=flow, flow_steps=120, loss="variance")
        assert abs(found.estimate - exact) < SIGMAS * found.error
        errors[flow] = found.error
    assert errors[True] < 0.7 * errors[False]


def test_a_flow_on_a_circle() -> None:
    """The integrand is a wave around a torus. Its integral is a Bessel function."""
    exact = (2 * math.pi) ** 2 * ive(0, 8.0)

    def f(x):
        return np.exp(8 * (np.cos(x[:, 0] - x[:, 1]) - 1))

    found = cf.integrate(f, [Circle(), Circle()], 6_000, flow=True, flow_steps=10)
    assert abs(found.estimate - exact) < SIGMAS * found.error


@pytest.mark.soak
def test_reported_errors_are_calibrated() -> None:
    """The pulls of 50 small integrals have a standard deviation near 1; 0.8 to 1.3 is five standard errors wide."""
    f, exact = camel(3)
    found = [cf.integrate(f, [(0, 1)] * 3, 3_000, seed=seed) for seed in range(50)]
    pulls = np.array([(one.estimate - exact) / one.error for one in found])
    assert 0.8 < pulls.std() < 1.3
    assert abs(pulls.mean()) < 0.6


@pytest.mark.soak
def test_reported_errors_are_calibrated_with_a_flow() -> None:
    """The pulls of 60 small integrals of a thin layer have the spread of Student's t.

    The error comes from 12 replicates in each of 3 folds. The last round dominates, with 33 degrees of freedom in all,
    so a squared pull has the mean 33 / 31. The limit is the sum of squares that chance exceeds in one of 10,000 cases.
    """
    f, exact = layer()
    found = [cf.integrate(f, [(0, 1)] * 3, 20_000, flow=True, flow_steps=120, seed=seed) for seed in range(60)]
    pulls = np.array([(one.estimate - exact) / one.error for one in found])
    assert (pulls**2).sum() < 33 / 31 * chi2.isf(1e-4, len(pulls))
    assert abs(pulls.mean()) < SIGMAS * math.sqrt(33 / 31 / len(pulls))


def test_a_trained_sampler_is_right_for_points_it_has_never_seen() -> None:
    """Fresh independent points of the last round's density, each with the weight f / q, give the integral.

    A wrong log density, or a part of the cube that the flow cannot reach, would shift this mean.
    """
    f, exact = layer()
    integrator = Integrator(f, [(0, 1)] * 3, flow=True, flow_steps=120)
    integrator.run(20_000)
    generator = torch.Generator().manual_seed(1)
    for fold in integrator._folds:
        blend, _, _ = fold.rounds[-1]
        u = blend.draw(torch.rand(50_000, 4, generator=generator, dtype=torch.float64))
        weights = torch.from_numpy(f(u.numpy())) / blend.log_density(u).exp()
        assert len(blend.samplers) > 1
        assert abs(float(weights.mean()) - exact) < SIGMAS * float(weights.std()) / math.sqrt(len(u))


def test_weighted_and_unweighted_samples_follow_the_density() -> None:
    f, exact = camel(2)
    found = cf.integrate(f, [(0, 1)] * 2, 20_000)
    x, weights = found.weighted_samples()
    assert weights.sum() == pytest.approx(found.estimate)
    one = quad(lambda x: math.exp(-((x - 1 / 3) ** 2) / 0.08), 0, 1)[0]
    second = quad(lambda x: x**2 * (math.exp(-((x - 1 / 3) ** 2) / 0.08) + math.exp(-((x - 2 / 3) ** 2) / 0.08)), 0, 1)[
        0
    ]
    assert (weights * x[:, 0] ** 2).sum() == pytest.approx(second * one, rel=0.01)
    plain = found.unweighted_samples()
    assert plain.shape[0] == int(found.effective)
    assert (plain[:, 0] ** 2).mean() == pytest.approx(second * one / exact, rel=0.02)


def test_points_may_be_tensors_and_values_of_either_library() -> None:
    exact = 0.25
    for arrays, f in (
        ("torch", lambda x: x.prod(1)),
        ("torch", lambda x: x.prod(1).numpy()),
        ("numpy", lambda x: torch.from_numpy(x).prod(1)),
    ):
        assert abs(cf.integrate(f, [(0, 1)] * 2, 2_000, arrays=arrays).estimate - exact) < 0.01
    trained = torch.nn.Linear(2, 1)
    assert cf.integrate(lambda x: trained(x.float())[:, 0], [(0, 1)] * 2, 1_000, arrays="torch").evaluations > 900


def test_a_second_run_reuses_evaluations_and_a_seed_repeats() -> None:
    f, exact = camel(3)
    counted = []

    def g(x):
        counted.append(len(x))
        return f(x)

    integrator = Integrator(g, [(0, 1)] * 3, seed=3)
    first = integrator.run(3_000)
    second = integrator.run(20_000)
    assert second.evaluations == sum(counted) <= 23_000
    assert second.evaluations > 22_500
    assert second.error < first.error
    assert abs(second.estimate - exact) < SIGMAS * second.error
    assert cf.integrate(f, [(0, 1)] * 3, 3_000, seed=3).estimate == first.estimate


def test_progress_has_a_line_for_each_round() -> None:
    lines: list[str] = []
    cf.integrate(lambda x: x[:, 0], [(0, 1)], 2_000, progress=lines.append)
    assert len(lines) == 4
    assert all("evaluations" in line and "±" in line for line in lines)
