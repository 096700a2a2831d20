"""Common fixtures of the spline tests: all families as one parametrised fixture, and error bounds."""

from __future__ import annotations

import pytest
import torch

from cubicflow.splines.domains import DOMAINS

from .cases import CASES, Case


@pytest.fixture(scope="session", params=CASES, ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture(scope="session", params=[case for case in CASES if case.family == "cubic"], ids=str)
def cubic(request) -> Case:
    """Return each of the two cubic cases."""
    return request.param


@pytest.fixture(scope="session", params=[case for case in CASES if case.family != "linear"], ids=str)
def c1(request) -> Case:
    """Return each family that is continuously differentiable."""
    return request.param


@pytest.fixture(scope="session", params=[case for case in CASES if case.family in ("quadratic", "linear")], ids=str)
def lower_degree(request) -> Case:
    return request.param


@pytest.fixture(scope="session")
def steffen() -> Case:
    return CASES[0]


@pytest.fixture(scope="session", params=[name for name, domain in DOMAINS.items() if not domain.periodic])
def domain(request) -> str:
    return request.param


@pytest.fixture(scope="session", params=[False, True], ids=["forward", "inverse"])
def inverse(request) -> bool:
    return request.param


@pytest.fixture(scope="session", params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request) -> torch.dtype:
    return request.param


@pytest.fixture(scope="session")
def smooth_inputs():
    """Return a function that makes x and params in float64, with gradients, away from every kink."""

    def make(case: Case, num_bins: int, domain: str, inverse: bool, per_bin: int = 1, min_seed: int = 0):
        """Return x at least a tenth of a bin from every knot, and params whose Steffen slopes are far from ties of
        min().

        The relative distance from a tie is at least 1e-3, so that a difference quotient of step 1e-6 stays on one
        branch.
        """
        for seed in range(min_seed, min_seed + 50):
            params = case.params(num_bins=num_bins, seed=seed)
            bins = case.bins(params)
            s, w = bins.heights / bins.widths, bins.widths
            parabola = (s[:-1] * w[1:] + s[1:] * w[:-1]) / (w[:-1] + w[1:])
            smaller = torch.minimum(s[:-1], s[1:])
            gaps = torch.cat([(s[:-1] / s[1:] - 1).abs(), (parabola / (2 * smaller) - 1).abs()])
            if bool((gaps > 1e-3).all()):
                break
        else:
            raise AssertionError("no params without ties in 50 seeds")
        knots = case.knots(params, inverse)
        place = 0.1 + 0.8 * torch.rand(num_bins, per_bin, generator=torch.Generator().manual_seed(seed)).double()
        x = (knots[:-1, None] + knots.diff()[:, None] * place).flatten()
        x = torch.logit(x) if domain == "real" else x
        return x.detach().requires_grad_(), params.requires_grad_()

    return make
