"""A flow inside other programs: torch's wrappers and distributions, Pyro if installed, and losses with context."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.perturbed import perturbed

import cubicflow as cf


def small(features: int = 2, **settings) -> cf.Flow:
    return perturbed(cf.flows.tabular(features, num_layers=2, hidden_features=16, num_bins=6, **settings))


def test_calling_a_flow_returns_log_prob_so_that_wrappers_work() -> None:
    flow, x = small(context_features=1), torch.randn(5, 2)
    context = torch.randn(5, 1)
    assert torch.equal(flow(x, context), flow.log_prob(x, context))
    calls = []
    flow.register_forward_hook(lambda *_: calls.append(1))
    flow(x, context)
    assert calls == [1]
    mixture = cf.Mixture([small(), small()])
    assert torch.equal(mixture(x), mixture.log_prob(x))


def test_rows_of_another_precision_are_cast_and_whole_numbers_refused() -> None:
    flow, x = small(context_features=1), torch.randn(5, 2)
    context = torch.randn(5, 1)
    wanted = flow.log_prob(x, context)
    torch.testing.assert_close(flow.log_prob(x.double(), context.double()), wanted)
    torch.testing.assert_close(flow.double().log_prob(x, context).float(), wanted, atol=1e-4, rtol=1e-4)
    with pytest.raises(TypeError, match=r"x must be floating point, got torch.int64; convert it with x.float\(\)"):
        flow.log_prob(torch.zeros(5, 2, dtype=torch.int64), context)
    with pytest.raises(TypeError, match=r"x must be a tensor, got ndarray; convert it with torch.as_tensor\(x\)"):
        flow.log_prob(x.numpy(), context)
    with pytest.raises(TypeError, match=r"context must be a tensor, got list"):
        flow.log_prob(x, context.tolist())


def test_expand_keeps_the_class_and_samples_come_with_their_densities() -> None:
    class Mine(cf.flows.FlowDistribution):
        pass

    p = Mine(small(context_features=1), torch.zeros(1, 1)).expand((4,))
    assert type(p) is Mine
    assert p.batch_shape == (4,)
    x, log_prob = p.rsample_and_log_prob((3,))
    assert x.shape == (3, 4, 2)
    torch.testing.assert_close(p.log_prob(x), log_prob, atol=1e-4, rtol=1e-4)


def test_a_distribution_refuses_shapes_that_do_not_fit() -> None:
    p = small().distribution().expand((3, 1))
    assert p.expand((2, 3, 4)).batch_shape == (2, 3, 4)
    for shape in ((4, 1), (1,)):
        with pytest.raises(ValueError, match=r"batch shape \(3, 1\) does not expand to"):
            p.expand(shape)
    with pytest.raises(ValueError, match=r"x must have shape \(..., 2\), got \(5,\)"):
        p.log_prob(torch.zeros(5))
    with pytest.raises(ValueError, match=r"value of shape \(5, 1, 2\) does not broadcast with batch shape \(3, 1\)"):
        p.log_prob(torch.zeros(5, 1, 2))


def test_the_support_of_a_box_is_the_box() -> None:
    support = cf.flows.box([(0, 2), (-math.inf, math.inf)], num_layers=2).distribution().support
    assert support.event_dim == 1
    assert support.check(torch.tensor([[1.0, 9.0], [3.0, 0.0]])).tolist() == [True, False]


def test_pyro_prior_guide_and_plate() -> None:
    pyro = pytest.importorskip("pyro")
    flow = small(2)
    prior = flow.distribution()

    def model(y):
        theta = pyro.sample("theta", prior)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", pyro.distributions.Normal(theta[0], 1.0), obs=y)

    guide_flow = small(2)

    def guide(y):
        pyro.module("guide", guide_flow)
        pyro.sample("theta", guide_flow.distribution())

    pyro.set_rng_seed(0)
    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 1e-3}), pyro.infer.Trace_ELBO())
    assert math.isfinite(svi.step(torch.ones(3)))
    with pyro.plate("many", 7):
        assert pyro.sample("x", prior).shape == (7, 2)
    expanded = prior.expand((4,))
    assert isinstance(expanded, pyro.distributions.TorchDistribution) or callable(expanded)
    trace = pyro.poutine.trace(lambda: pyro.sample("x", prior)).get_trace()
    torch.testing.assert_close(trace.log_prob_sum(), prior.log_prob(trace.nodes["x"]["value"]))


def test_ddp_around_a_flow_has_the_gradients_of_the_flow(tmp_path) -> None:
    """The group has one process. The wrapper's hooks, which synchronise gradients, still run."""
    flow, x = small(), torch.randn(6, 2)
    flow.log_prob(x).mean().backward()
    wanted = [parameter.grad.clone() for parameter in flow.parameters()]
    flow.zero_grad()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        seen = []
        wrapped = torch.nn.parallel.DistributedDataParallel(flow)
        wrapped.register_comm_hook(None, lambda _, bucket: (seen.append(1), _done(bucket.buffer()))[1])
        wrapped(x).mean().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert seen
    for parameter, gradient in zip(flow.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def _done(buffer):
    future = torch.futures.Future()
    future.set_result(buffer)
    return future
