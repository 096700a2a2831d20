"""Whitening: the output of the first layer, constant columns, and weights."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

import cubicflow as cf
from cubicflow.flows.whitening import RIDGE


def correlated_rows(n: int = 4_000) -> np.ndarray:
    random = np.random.default_rng(0)
    mix = random.normal(size=(5, 5)) * np.array([0.01, 1.0, 3.0, 0.1, 20.0])
    return random.normal(size=(n, 5)) @ mix + random.normal(size=5) * 10


def test_the_first_layer_whitens_the_rows() -> None:
    x = correlated_rows()
    flow = cf.flows.whiten(cf.flows.tabular(5, num_layers=2, hidden_features=8).double(), x)
    z, log_det = flow.to_noise(torch.from_numpy(x))
    # The other layers are still permutations. The ridge on the correlations shrinks the direction of the smallest
    # eigenvalue by the ratio of the ridge to that eigenvalue.
    share = RIDGE / np.linalg.eigvalsh(np.corrcoef(x.T))[0]
    assert share < 1e-3
    assert np.allclose(np.cov(z.detach().numpy().T, bias=True), np.eye(5), atol=2 * share)
    assert np.allclose(z.detach().mean(0), 0, atol=1e-9)
    expected = -0.5 * np.linalg.slogdet(np.cov(x.T, bias=True))[1]
    assert torch.allclose(log_det, torch.full_like(log_det, expected), atol=5 * share)
    assert np.allclose(flow.from_noise(z)[0].detach(), x, atol=1e-8)


def test_a_weight_acts_like_copies_of_a_row() -> None:
    x = correlated_rows(50)
    counts = np.random.default_rng(1).integers(0, 4, size=50)
    make = partial(cf.flows.tabular, 5, num_layers=1, hidden_features=8, seed=3)
    weighted = cf.flows.whiten(make().double(), x, counts)
    copied = cf.flows.whiten(make().double(), np.repeat(x, counts, axis=0))
    point = torch.from_numpy(x[:4])
    assert torch.allclose(weighted.log_prob(point), copied.log_prob(point), rtol=1e-9)


def test_columns_that_determine_each_other() -> None:
    x = correlated_rows()
    x[:, 1] = x[:, 0]
    x[:, 2] = 7.0
    flow = cf.flows.whiten(cf.flows.tabular(5, num_layers=1, hidden_features=8), x.astype(np.float32))
    assert flow.log_prob(torch.from_numpy(x).float()).isfinite().all()


@pytest.mark.parametrize(
    ("flow", "rows", "words"),
    [
        (lambda: cf.flows.plane(num_bins=4), np.zeros((9, 2)), "begins with a layer of class Coupling"),
        (
            lambda: cf.flows.tabular(2, linear=False, num_layers=1),
            np.zeros((9, 2)),
            "needs a flow that begins with an LULinear",
        ),
        (lambda: cf.flows.tabular(2, num_layers=1), np.zeros((9, 3)), r"\(N, 2\)"),
        (lambda: cf.flows.tabular(2, num_layers=1), np.zeros((1, 2)), "at least 2"),
        (lambda: cf.flows.tabular(2, num_layers=1), np.full((9, 2), np.nan), "finite"),
    ],
)
def test_bad_input(flow, rows, words) -> None:
    with pytest.raises(ValueError, match=words):
        cf.flows.whiten(flow(), rows)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (-np.ones(9), "0 or more"),
        (np.array([2.0] * 8 + [-1.0]), "0 or more"),
        (np.zeros(9), "not all 0"),
        (np.full(9, np.inf), "finite"),
        (np.ones((9, 1)), r"shape \(9,\), one for each row, got \(9, 1\)"),
    ],
)
def test_bad_weights(weights, words) -> None:
    with pytest.raises(ValueError, match=words):
        cf.flows.whiten(cf.flows.tabular(2, num_layers=1), np.random.default_rng(0).normal(size=(9, 2)), weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("jitter", [0.0, 1e-12], ids=["equal", "equal in float32"])
def test_constant_columns_keep_scale_1(dtype: torch.dtype, jitter: float) -> None:
    """A constant column keeps scale 1 despite rounding of its mean. In float64, a visible jitter is a normal column."""
    x = np.random.default_rng(0).normal(size=(1000, 2))
    x[:, 1] = 0.1 + jitter * np.arange(1000) / 1000
    assert (x[:, 1] - x[:, 1].mean()).any()
    flow = cf.flows.whiten(cf.flows.tabular(2, num_layers=1).to(dtype), x)
    seen = torch.from_numpy(x).to(dtype)
    expected = -0.5 * np.log(x[:, 0].var())
    if jitter and dtype == torch.float64:
        expected -= 0.5 * np.log(x[:, 1].var())
    z, log_det = flow.to_noise(seen)
    assert torch.allclose(log_det.mean(), torch.tensor(expected, dtype=dtype), rtol=1e-3)
    assert z.abs().max() < 5


def test_rows_of_weight_zero_are_ignored() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    x[1:, 1] = 0.1
    weights = np.ones(100)
    weights[0] = 0
    flow = cf.flows.whiten(cf.flows.tabular(2, num_layers=1).double(), x, weights)
    _, log_det = flow.to_noise(torch.from_numpy(x[1:]))
    assert np.allclose(log_det.detach(), -0.5 * np.log(x[1:, 0].var()), atol=1e-6), "the second column is constant"


def test_a_layer_without_bias_scales_and_does_not_shift() -> None:
    x = correlated_rows()
    make = partial(cf.flows.tabular, 5, num_layers=1, hidden_features=8)
    shifted, bare = (cf.flows.whiten(make(linear_bias=bias).double(), x) for bias in (True, False))
    z, bare_z = (flow.to_noise(torch.from_numpy(x))[0].detach() for flow in (shifted, bare))
    assert bare_z.mean(0).abs().max() > 1
    assert torch.allclose(bare_z - bare_z.mean(0), z, atol=1e-8)


def test_a_flow_on_a_box_is_not_moved() -> None:
    flow = cf.flows.box([(0, 10), (-math.inf, math.inf)])
    x = flow.sample(50, seed=0)
    with pytest.raises(ValueError, match="whiten would move the box on which this flow has a density"):
        cf.flows.whiten(flow, x)
    assert flow.log_prob(x).isfinite().all()
