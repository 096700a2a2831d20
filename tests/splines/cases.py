"""All families of splines, each called like a public function."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import settings

from cubicflow import splines
from cubicflow.splines.bins import Bins
from cubicflow.splines.evaluation import Knots
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
        found = Knots.of(bins.heights if inverse else bins.widths)
        inner = torch.where(found.before <= 0.5, found.before, 1 - found.after.roll(1, -1))
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
