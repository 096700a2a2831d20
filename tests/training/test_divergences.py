"""Losses of targets that are not sampled: values and gradients against quadrature, and fits."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.data.rows import Batch
from cubicflow.distributions import DiagonalNormal
from cubicflow.training import alpha_divergence, fit, importance_weighted, reverse_kl

from ..helpers.perturbed import perturbed

MEAN, SCALE = 0.4, 0.8  # of the target
LOSSES = {
    "reverse KL": reverse_kl,
    "path gradient": partial(reverse_kl, path_gradient=True),
    "importance weighted": importance_weighted,
    "alpha 1/2": lambda target: alpha_divergence(target, 0.5),
    "alpha 1": lambda target: alpha_divergence(target, 1.0),
}


def target(x: Tensor) -> Tensor:
    return -((x[..., 0] - MEAN) / SCALE).square() / 2 - math.log(SCALE) - math.log(2 * math.pi) / 2


def normal_flow() -> cf.Flow:
    """A flow that is one normal with trained mean and scale."""
    base = DiagonalNormal(1).double()
    with torch.no_grad():
        base.log_scale.fill_(0.2)
    return cf.Flow(base, cf.transforms.Permutation([0]))


def exact_divergence(flow: cf.Flow, alpha: float) -> Tensor:
    """Return the divergence by quadrature, differentiable in the parameters."""
    x = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]
    log_p, log_q = target(x), flow.log_prob(x)
    if alpha == 0:
        return torch.trapezoid(log_q.exp() * (log_q - log_p), x[:, 0])
    if alpha == 1:
        return torch.trapezoid(log_p.exp() * (log_p - log_q), x[:, 0])
    return torch.trapezoid((alpha * log_p + (1 - alpha) * log_q).exp(), x[:, 0]).log() / (alpha * (alpha - 1))


def gradient(value: Tensor, flow: cf.Flow) -> Tensor:
    return torch.stack(torch.autograd.grad(value, [flow.base.location, flow.base.log_scale])).flatten()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0, 1.5])
def test_values_and_gradients_against_quadrature(alpha: float) -> None:
    """Batches of 4,000 samples: the bias of normalised weights, about 1 / 4,000, is far below the tolerance."""
    torch.manual_seed(0)
    flow, batch = normal_flow(), Batch(torch.empty(4_000, 0))
    exact = exact_divergence(flow, alpha)
    losses = [alpha_divergence(target, alpha)(flow, batch).mean() for _ in range(100)]
    found = torch.stack(losses).detach()
    assert abs(found.mean() - exact.detach()) < 5 * found.std() / 10 + 5e-4
    slopes = torch.stack([gradient(loss, flow) for loss in losses])
    errors = (slopes.mean(0) - gradient(exact, flow)).abs()
    assert (errors < 5 * slopes.std(0) / 10 + 5e-4).all()


@pytest.mark.parametrize("path_gradient", [False, True])
def test_the_gradient_of_one_sample_of_reverse_kl_is_unbiased(path_gradient: bool) -> None:
    torch.manual_seed(1)
    flow, batch = normal_flow(), Batch(torch.empty(1, 0))
    loss = reverse_kl(target, path_gradient=path_gradient)
    slopes = torch.stack([gradient(loss(flow, batch).mean(), flow) for _ in range(3_000)])
    exact = gradient(exact_divergence(flow, 0.0), flow)
    assert ((slopes.mean(0) - exact).abs() < 5 * slopes.std(0) / math.sqrt(3_000)).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("contexts", [None, 3])
def test_the_path_gradient_is_zero_where_flow_and_target_are_equal(alpha: float, contexts: int | None) -> None:
    """The gradient of reverse KL is not."""
    torch.manual_seed(2)
    settings = {"num_layers": 2, "hidden_features": 8, "context_features": 0 if contexts is None else 2}
    flow = perturbed(cf.flows.tabular(3, **settings).double())
    same = copy.deepcopy(flow).requires_grad_(False)
    context = None if contexts is None else torch.randn(contexts, 2, dtype=torch.float64)
    batch = Batch(torch.empty(contexts or 20, 0), context)

    def largest(loss: Tensor) -> float:
        slopes = torch.autograd.grad(loss.mean(), list(flow.parameters()), allow_unused=True)
        return max(float(slope.abs().max()) for slope in slopes if slope is not None)

    assert largest(alpha_divergence(same.log_prob, alpha)(flow, batch)) < 1e-9
    assert largest(reverse_kl(same.log_prob)(flow, batch)) > 1e-2


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_fit_finds_a_density_without_data(make) -> None:
    def log_density(x):  # a normal with mean 2 and standard deviation 1/2, up to a constant
        return -2 * (x - 2).square().sum(-1)

    torch.manual_seed(0)
    flow, settings = cf.flows.tabular(1, num_layers=1, num_bins=4), {"validate_every": 60, "batch_size": 256}
    fit(flow, None, loss=make(log_density), steps=120, learning_rate=0.1, progress=False, **settings)
    samples = flow.sample(4000, seed=0)
    assert abs(samples.mean() - 2) < 0.1
    assert abs(samples.std() - 0.5) < 0.1


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_losses_give_context_to_the_target(make) -> None:
    """The target of a row is a normal around its context. The flow is the standard normal, right in the first row."""
    flow, context = cf.flows.tabular(1, context_features=1, num_layers=1), torch.tensor([[0.0], [50.0]])

    def log_density(x, context):
        return -(x - context).square().sum(-1) / 2 - math.log(2 * math.pi) / 2

    loss = make(log_density)(flow, Batch(torch.empty(2, 0), context))
    assert loss.shape == (2,)
    assert loss.requires_grad
    if make is not importance_weighted:
        near, far = loss.tolist()
        assert near == pytest.approx(0, abs=1e-4)
        assert abs(far) > 2  # with normalised weights at most the logarithm of the number of samples


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_contexts_may_be_images(make) -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
    settings = {"context_features": 3, "context_shape": (2, 2, 2), "embedding_net": network, "num_layers": 1}
    images = torch.randn(5, 2, 2, 2)
    shapes = []

    def log_density(x, context):
        shapes.append(torch.broadcast_shapes(x.shape[:-1], context.shape[:-3]))
        return -x.square().sum(-1)

    assert make(log_density)(cf.flows.tabular(2, **settings), Batch(torch.empty(5, 0), images)).shape == (5,)
    assert all(shape[1:] == (5,) for shape in shapes)


def test_forward_kl_from_weighted_samples() -> None:
    """Rows of a wide normal with weights target / wide normal are rows of the target."""
    torch.manual_seed(3)
    wide = torch.distributions.Normal(0.0, 2.0)
    x = wide.sample((20_000, 1))
    flow = cf.Flow(DiagonalNormal(1), cf.transforms.Permutation([0]))
    weights = (target(x) - wide.log_prob(x[:, 0])).exp()
    fit(flow, (x, None, weights), steps=300, batch_size=2_000, learning_rate=0.03, progress=False)
    assert flow.base.location.item() == pytest.approx(MEAN, abs=0.05)
    assert flow.base.log_scale.exp().item() == pytest.approx(SCALE, abs=0.05)


def test_alpha_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number, got nan"):
        alpha_divergence(target, math.nan)
