"""The reference in float32 against itself in float64, where splines are hardest to evaluate."""

from __future__ import annotations

import pytest
import torch

from cubicflow.splines.backends import reference
from cubicflow.splines.spec import make_spec

from .accuracy import SCALES, adversarial, largest_backward_error

# The position in the bin, the knots on both axes and the logit each have an error of a few roundings.
BOUND = 16 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(("domain", "inverse"), [("unit", False), ("unit", True), ("real", False), ("real", True)])
def test_results_are_exact_up_to_a_few_roundings(case, domain, inverse):
    for num_bins in (1, 3, 10, 64):
        for scale in SCALES:
            x, params = adversarial(case, num_bins, scale, domain, inverse, count=5_000)
            spec = make_spec(x, params, family=case.family, inverse=inverse, domain=domain, slopes=case.slopes)
            exact, _ = reference.evaluate(spec, x.double(), params.double())
            y, _ = reference.evaluate(spec, x, params)
            error = largest_backward_error(spec, x.double(), params.double(), y.double(), exact, at_least=BOUND)
            assert error <= BOUND, (num_bins, scale)
