"""Common fixtures of the spline tests: all families as one parametrised fixture, and error bounds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import settings

from cubicflow import splines
from cubicflow.splines.bins import Bins
from cubicflow.splines.domains import DOMAINS
from cubicflow.splines.evaluation import Axis
from cubicflow.splines.families import FAMILIES, Family
from cubicflow.splines.spec import make_spec

# Examples of Hypothesis for each family, domain, direction and precision. `make soak` searches among more.
EXAMPLES = 10 if settings.default is not None and settings.default.derandomize else 100


def at_and_beside(knots, seed=0):
    """Return the knots, points one and two ulps to both sides of them, and points between them: (..., 6 (K + 1))."""
    zero, one = torch.zeros_like(knots), torch.ones_like(knots)
    generator = torch.Generator().manual_seed(seed)
    between = knots[..., :-1] + knots.diff(dim=-1) * torch.rand(
        knots[..., 1:].shape, generator=generator, dtype=knots.dtype
    )
    beside = torch.nextafter(knots, one), torch.nextafter(knots, zero)
    twice = torch.nextafter(beside[0], one), torch.nextafter(beside[1], zero)
    return torch.cat([knots, *beside, *twice, between], -1).clamp(0, 1)


@dataclass(frozen=True)
class Case:
    """One family of splines with one choice of slopes. It is called like the public function of the family."""

    family: str
    slopes: str | None = None

    def __str__(self) -> str:
        return self.family if self.slopes is None else f"{self.family}-{self.slopes}"

    def __call__(self, x, params, **options):
        own = getattr(splines, f"{self.family}_spline", None)
        if own is None:
            return splines.spline(x, params, self.family, self.slopes, **options)
        return own(x, params, **options if self.slopes is None else options | {"slopes": self.slopes})

    @property
    def record(self) -> Family:
        return FAMILIES[self.family, self.slopes]

    def params(self, *shape, num_bins, scale=1.0, dtype=torch.float64, seed=0):
        size = splines.num_params(self.family, num_bins, self.slopes)
        generator = torch.Generator().manual_seed(seed)
        return (scale * torch.randn(*shape, size, generator=generator, dtype=torch.float64)).to(dtype)

    def bins(self, params) -> Bins:
        spec = make_spec(params[..., 0], params, family=self.family, inverse=False, domain="unit", slopes=self.slopes)
        return self.record.make_bins(params, spec.num_bins, spec.min_bin_width, spec.min_bin_height)

    def knots(self, params, inverse=False):
        """Return the K + 1 knots of each spline on the input axis, in params' precision."""
        bins = self.bins(params)
        axis = Axis.of(bins.heights if inverse else bins.widths)
        inner = torch.where(axis.before <= 0.5, axis.before, 1 - axis.after.roll(1, -1))
        return torch.cat([inner, torch.ones_like(inner[..., :1])], -1)

    def awkward_inputs(self, params, inverse=False, seed=0):
        """Return points of [0, 1] at the knots, one and two ulps beside them, and between them: (..., 6 (K + 1))."""
        return at_and_beside(self.knots(params, inverse), seed)

    def steepness(self, params, x):
        """Return the steepest secant among the bin of x and its neighbours.

        x is in [0, 1], with the leading shape of params and one more axis. A rational quadratic's slopes at knots are
        not bounded by 3 secants, so they count too.
        """
        bins = self.bins(params)
        secants = bins.heights / bins.widths
        if self.family == "rational_quadratic":
            secants = torch.maximum(secants, secants * torch.maximum(bins.start, bins.end))
        index = torch.searchsorted(self.knots(params)[..., 1:-1].contiguous(), x.contiguous())
        padded = torch.nn.functional.pad(secants, (1, 1))
        return torch.stack([padded.gather(-1, index + shift) for shift in range(3)]).amax(0)


CASES = [Case(*key) for key in FAMILIES]


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


@pytest.fixture(scope="session", params=[name for name, domain in DOMAINS.items() if not domain.closed])
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
