"""The parts of an integrator, each compared with an independent implementation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize

from cubicflow.integration.blend import Blend, best_shares
from cubicflow.integration.bounds import Bounds, Circle, Line
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.product_mixture import ProductMixture, find_nodes, flattened, uniform_mixture
from cubicflow.weights import effective_size


def rough_mixture(circles: list[bool], products: int = 2, intervals: int = 6, seed: int = 0) -> ProductMixture:
    generator = torch.Generator().manual_seed(seed)
    inner = torch.rand(len(circles), intervals - 1, generator=generator).double().sort(1).values
    ends = torch.zeros(len(circles), 1).double()
    nodes = torch.cat([ends, inner, ends + 1], dim=1)
    heights = torch.rand(products, len(circles), intervals + 1, generator=generator).double() + 0.05
    return ProductMixture(nodes, heights, torch.rand(products, generator=generator) + 0.1, circles)


def test_every_factor_is_a_density_and_is_continuous_on_a_circle() -> None:
    mixture = rough_mixture([True])
    for k in range(len(mixture)):

        def density(u, k=k):
            return float(mixture.log_densities(torch.tensor([[u]], dtype=torch.float64)).exp()[0, k])

        assert quad(density, 0, 1, points=mixture.nodes[0, 1:-1].tolist())[0] == pytest.approx(1, abs=1e-8)
        assert density(0.0) == pytest.approx(density(1.0))


def test_draws_invert_the_distribution_function_and_have_its_density() -> None:
    mixture = rough_mixture([False, True])
    u = torch.rand(50, 2, generator=torch.Generator().manual_seed(1)).double()
    for k in range(len(mixture)):
        noise, log_density = mixture.to_noise(k, u)
        torch.testing.assert_close(mixture.draw(k, noise), u, atol=1e-10, rtol=0)
        torch.testing.assert_close(log_density, mixture.log_densities(u)[:, k])
        step = 1e-7
        moved, _ = mixture.to_noise(k, u + step)
        torch.testing.assert_close(((moved - noise) / step).log().sum(1), log_density, atol=1e-4, rtol=0)


def test_expectation_maximisation_increases_the_likelihood_and_separates_two_humps() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = torch.tensor([[0.3, 0.3, 0.3], [0.7, 0.7, 0.7]]).double()
    u = (centers[torch.arange(4000) % 2] + 0.05 * torch.randn(4000, 3, generator=generator)).clamp(0.01, 0.99)
    weights = torch.ones(4000).double()
    nodes = find_nodes(u, weights, 20)
    heights = torch.stack([(-((nodes - c) ** 2) / 0.1).exp() for c in (0.25, 0.6)])
    mixture = ProductMixture(nodes, heights, torch.ones(2), [False] * 3)
    scores = [mixture.score(u)]
    for _ in range(6):
        mixture = mixture.improved(u, weights, 1)
        scores.append(mixture.score(u))
    assert all(after > before - 1e-3 for before, after in pairwise(scores))
    torch.testing.assert_close(mixture.shares, torch.full((2,), 0.5).double(), atol=0.02, rtol=0)
    entropy = 3 * math.log(0.05 * math.sqrt(2 * math.pi * math.e)) + math.log(2)
    assert scores[-1] == pytest.approx(-entropy, abs=0.1)


def test_shares_agree_with_a_general_optimiser() -> None:
    rng = np.random.default_rng(0)
    ratios, weights = rng.gamma(2.0, size=(200, 3)), rng.gamma(1.0, size=200)

    def second_moment(logits):
        shares = np.exp(logits) / np.exp(logits).sum()
        return (weights**2 / (0.2 + 0.8 * ratios @ shares)).sum()

    exact = minimize(second_moment, np.zeros(3)).fun
    found = best_shares(torch.ones(3).double(), torch.from_numpy(ratios), torch.from_numpy(weights), 0.2)
    assert second_moment(np.log(np.maximum(found.numpy(), 1e-12))) == pytest.approx(exact, rel=1e-3)


def test_weights_use_the_mixture_of_all_rounds() -> None:
    """The test computes every weight of two rounds from known blends."""
    circles = [False, False]
    blends = [
        Blend([uniform_mixture(2, circles)], torch.ones(1)),
        Blend([rough_mixture(circles)], torch.tensor([0.3, 0.7])),
    ]
    fold, drawn = Fold(2), []
    for blend, n in zip(blends, (40, 60), strict=True):
        u = blend.draw(torch.rand(n, 3, generator=torch.Generator().manual_seed(n)).double())
        fold.add(blend, u, u.sum(1), 4)
        drawn.append(u)
    u = torch.cat(drawn)
    total = sum(n * blend.log_density(u).exp() for blend, n in zip(blends, (40, 60), strict=True))
    torch.testing.assert_close(fold.weights, u.sum(1) / total)
    assert fold.estimate()[0] == pytest.approx(float((u.sum(1) / total).sum()))


def test_tempered_weights_have_the_requested_effective_size() -> None:
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(0)).double() ** 30
    flat = flattened(weights, 200)
    assert effective_size(weights) < 100 < 200 <= effective_size(flat) < 300
    assert float(flat.sum()) == pytest.approx(effective_size(flat))
    even = torch.ones(1000).double()
    torch.testing.assert_close(flattened(even, 200), even)


def test_the_log_det_of_the_map_from_the_cube_agrees_with_autograd() -> None:
    bounds = Bounds([(-1, 3), Line(2, 5), Circle(0, 10)])
    u = torch.tensor([[0.2, 0.7, 0.9]], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda row: bounds.from_cube(row[None])[0][0], u[0])
    assert float(bounds.from_cube(u)[1]) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]))
