"""Flows with columns on an interval, on a circle and on the line."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.nets import CausalTransformer, FourierMLP, MaskedResidualMLP, ResidualMLP
from cubicflow.transforms import Autoregressive, Coupling, ElementMap

TURN = 6.0  # exact in every precision
BOUNDS = [(-1.0, 3.0), (-math.inf, math.inf), (0.0, TURN)]
MIXED = ElementMap(num_bins=5, domain=["unit", "real", "circle"])


def mixed(**settings) -> cf.Flow:
    flow = cf.flows.box(BOUNDS, circles=[2], num_layers=4, hidden_features=16, num_bins=5, **settings)
    return perturbed(flow, by=0.15).double()


@pytest.mark.parametrize("direction", ["data", "noise"])
def test_the_density_of_a_mixed_flow_integrates_to_one(direction: str) -> None:
    flow = mixed(direction=direction)
    u = torch.quasirandom.SobolEngine(3, scramble=True, seed=0).draw(2**15, dtype=torch.float64)
    x = torch.stack([4 * u[:, 0] - 1, torch.logit(u[:, 1]), TURN * u[:, 2]], dim=1)
    volume = 4 * TURN / (u[:, 1] * (1 - u[:, 1]))
    with torch.no_grad():
        assert float((flow.log_prob(x).exp() * volume).mean()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("direction", ["data", "noise"])
def test_samples_stay_inside_and_come_with_their_density(direction: str) -> None:
    flow = mixed(direction=direction)
    x, log_prob = flow.sample_and_log_prob(2_000, seed=0)
    assert bool(((x[:, 0] >= -1) & (x[:, 0] <= 3) & (x[:, 2] >= 0) & (x[:, 2] <= TURN)).all())
    torch.testing.assert_close(flow.log_prob(x), log_prob, atol=1e-6, rtol=1e-6)
    outside = torch.tensor([[3.5, 0.0, 1.0], [-1.1, 0.0, 1.0]], dtype=torch.float64)
    assert flow.log_prob(outside).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("direction", ["data", "noise"])
@pytest.mark.parametrize("circles", [[], [1]], ids=["interval", "circle"])
def test_a_new_box_is_uniform_and_its_samples_fill_it(direction: str, circles: list[int]) -> None:
    """KS tests of 2,000 samples with a fixed seed. A uniform sample fails each once in ten thousand seeds."""
    flow = cf.flows.box([(0, 10), (-3, -1)], circles=circles, direction=direction)
    x = flow.sample(2_000, seed=0)
    inside = torch.full((2_000,), -math.log(20.0))
    torch.testing.assert_close(flow.log_prob(x), inside, atol=1e-4, rtol=0)
    for column, low, size in ((0, 0, 10), (1, -3, 2)):
        assert stats.kstest(x[:, column].numpy(), stats.uniform(low, size).cdf).pvalue > 1e-4


@pytest.mark.parametrize("direction", ["data", "noise"])
@pytest.mark.parametrize("circles", [[], [1]], ids=["interval", "circle"])
def test_samples_of_a_box_follow_its_density(direction: str, circles: list[int]) -> None:
    """The distribution function of each column, by a midpoint rule with 256 x 256 cells, passes a KS test."""
    flow = cf.flows.box([(0, 10), (-3, -1)], circles=circles, direction=direction, hidden_features=16, num_bins=5)
    flow = perturbed(flow, by=0.15).double()
    cells = 256
    unit = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    grid = torch.cartesian_prod(10 * unit, 2 * unit - 3)
    with torch.no_grad():
        masses = flow.log_prob(grid).exp().reshape(cells, cells) * 20 / cells**2
    assert float(masses.sum()) == pytest.approx(1, abs=2e-3)
    x = flow.sample(2_000, seed=0)
    edges = torch.arange(cells + 1, dtype=torch.float64) / cells
    for column, low, size in ((0, 0, 10), (1, -3, 2)):
        below = torch.cat([torch.zeros(1), masses.sum(1 - column).cumsum(0)])

        def cdf(values, low=low, size=size, below=below):
            return np.interp((values - low) / size, edges.numpy(), below.numpy())

        assert stats.kstest(x[:, column].numpy(), cdf).pvalue > 1e-4


@pytest.mark.parametrize("direction", ["data", "noise"])
def test_the_density_is_continuous_across_the_seam_of_a_circle(direction: str) -> None:
    flow = mixed(direction=direction)
    x = flow.sample(500, seed=1)
    low, high = x.clone(), x.clone()
    low[:, 2], high[:, 2] = 1e-9, TURN - 1e-9
    ratio = (flow.log_prob(low) - flow.log_prob(high)).exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: Coupling([True, False, False], lambda *a, **k: ResidualMLP(*a, hidden_features=8, **k), MIXED),
        lambda: Coupling([False, True, False], lambda *a, **k: FourierMLP(*a, octaves=2, **k), MIXED),
        lambda: Autoregressive(
            3, lambda *a, **k: MaskedResidualMLP(*a, hidden_features=12, **k), MIXED, order=[2, 0, 1]
        ),
        lambda: Autoregressive(
            3, lambda *a, **k: CausalTransformer(*a, hidden_features=8, **k), MIXED, order=[2, 1, 0]
        ),
    ],
    ids=["coupling", "fourier", "masked", "transformer"],
)
def test_layers_with_mixed_domains(layer) -> None:
    """The inverse undoes the layer, the log-det agrees with autograd, and the network is continuous across the seam."""
    layer = perturbed(layer(), by=2.0).double()
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)).double()
    z, log_det = layer(x)
    back, log_back = layer.inverse(z)
    torch.testing.assert_close(back, x, atol=1e-8, rtol=0)
    torch.testing.assert_close(log_back, -log_det, atol=1e-6, rtol=0)
    jacobians = torch.stack([torch.autograd.functional.jacobian(lambda r: layer(r[None])[0][0], row) for row in x])
    torch.testing.assert_close(torch.linalg.slogdet(jacobians)[1], log_det, atol=1e-8, rtol=0)
    low, high = x.clone(), x.clone()
    low[:, 2], high[:, 2] = 1e-10, 1 - 1e-10
    torch.testing.assert_close(layer(low)[0][:, :2], layer(high)[0][:, :2], atol=1e-6, rtol=0)


def test_a_mixed_flow_is_saved_and_loaded(tmp_path) -> None:
    flow = mixed(context_features=2)
    flow.save(tmp_path)
    again = cf.load(tmp_path)
    x, context = flow.sample(1, torch.zeros(4, 2).double(), seed=0)[0], torch.zeros(4, 2).double()
    assert torch.equal(again.log_prob(x, context), flow.log_prob(x, context))


def test_bad_domains_and_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="domain names 3 columns, and the layer has 2"):
        Coupling([True, False], ResidualMLP, MIXED)
    with pytest.raises(ValueError, match=r"bounds\[0\] = \(1, 0\): low must be below high"):
        cf.flows.box([(1, 0)])
    with pytest.raises(ValueError, match=r"bounds\[1\] .* infinite on one side"):
        cf.flows.box([(0, 1), (0, math.inf)])
    with pytest.raises(ValueError, match="circles holds 1"):
        cf.flows.box([(0, 1), (-math.inf, math.inf)], circles=[1])
    with pytest.raises(ValueError, match="circles holds 'angle', but a circle must be the number of a column"):
        cf.flows.box([(0, 1)], circles=["angle"])
    with pytest.raises(ValueError, match="an affine map does not preserve the unit interval"):
        ElementMap("affine", domain=["unit", "real"])
    with pytest.raises(ValueError, match="circles must hold one bool for each of the 2 inputs"):
        ResidualMLP(2, 3, circles=[True])
