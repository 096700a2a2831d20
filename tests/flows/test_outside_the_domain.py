"""Outside the domain of a flow its log density is -inf, and a NaN affects only its own row."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.nets import MaskedResidualMLP
from cubicflow.transforms import Autoregressive, ElementMap


def autoregressive() -> cf.Flow:
    layer = Autoregressive(2, MaskedResidualMLP, ElementMap(domain="unit"))
    return cf.Flow(cf.distributions.Uniform(2), layer)


PLANES = {
    "plane": cf.flows.plane,
    "paper": lambda: cf.flows.plane(paper=True),
    "towards data": lambda: cf.flows.plane(direction="noise"),
    "bare other half": lambda: cf.flows.plane(identity_maps=False),
    "bare other half, towards data": lambda: cf.flows.plane(identity_maps=False, direction="noise"),
    "autoregressive": autoregressive,
}


@pytest.mark.parametrize("make", PLANES.values(), ids=list(PLANES))
def test_outside_the_unit_square_the_log_density_is_minus_infinity(make) -> None:
    flow = perturbed(make(), 0.1)
    for far in (math.inf, -math.inf, 1e38, -1e38, 1.5, -0.1):
        for row in ([0.5, far], [far, 0.5], [far, far]):
            assert flow.log_prob(torch.tensor([row])).item() == -math.inf, row


@pytest.mark.parametrize("make", PLANES.values(), ids=list(PLANES))
def test_a_nan_makes_only_its_row_nan(make) -> None:
    flow = perturbed(make(), 0.1)
    for row in ([0.5, math.nan], [math.nan, 0.5], [math.nan, 0.7]):
        log_prob = flow.log_prob(torch.tensor([row, [0.5, 0.5]]))
        assert log_prob.isnan().tolist() == [True, False]


def small_image() -> cf.Flow:
    torch.manual_seed(0)
    flow = cf.flows.image((1, 4, 4), num_layers=2, hidden_features=6, num_bins=4)
    flow.log_prob(256 * torch.rand(64, 1, 4, 4))  # initialises actnorm
    return perturbed(flow, 0.1)


@pytest.mark.parametrize("pixel", [-50.0, 300.0, math.inf, -math.inf, 1e38])
def test_impossible_pixel_values_have_density_zero(pixel: float) -> None:
    x = 256 * torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    x[0, 0, 1, 2] = pixel
    log_prob = small_image().log_prob(x)
    assert log_prob[0] == -math.inf
    assert log_prob[1].isfinite()


def test_a_nan_pixel_makes_only_its_image_nan() -> None:
    x = torch.full((2, 1, 4, 4), 100.0)
    x[0, 0, 1, 2] = math.nan
    assert small_image().log_prob(x).isnan().tolist() == [True, False]
