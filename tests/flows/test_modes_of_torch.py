"""Every recipe in half precision, on the meta device, compiled, and traced, against the plain call."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.helpers.perturbed import perturbed
from torch import Tensor, nn

import cubicflow as cf

NET = {"hidden_features": 16}
FLOWS = {
    "coupling": lambda: cf.flows.tabular(3, num_layers=2, base_components=3, **NET),
    "autoregressive": lambda: cf.flows.tabular(3, num_layers=1, layer="autoregressive", **NET),
    "attention": lambda: cf.flows.tabular(
        3, num_layers=1, layer="autoregressive", network="transformer", num_heads=2, **NET
    ),
    "correlated": lambda: cf.Flow(
        cf.distributions.NormalMixture(3, 2, correlated=True), cf.transforms.LULinear(3, seed=0)
    ),
    "plane": lambda: cf.flows.plane(num_bins=8, **NET),
    "box": lambda: cf.flows.box(
        [(0, 10), (-math.inf, math.inf), (0, 2 * math.pi)], circles=[2], num_layers=1, num_bins=4, **NET
    ),
    "image": lambda: cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, **NET),
}


@pytest.fixture(params=list(FLOWS))
def flow(request: pytest.FixtureRequest) -> cf.Flow:
    torch.manual_seed(0)
    flow = FLOWS[request.param]()
    flow.train()
    flow.log_prob(rows(flow))  # actnorm starts from data
    return perturbed(flow.eval())


def rows(flow: cf.Flow, n: int = 5) -> Tensor:
    return torch.rand(n, *flow.shape, generator=torch.Generator().manual_seed(0))


class Sampling(nn.Module):
    def __init__(self, flow: cf.Flow) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, z: Tensor) -> Tensor:
        return self.flow.from_noise(z)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_samples_and_densities_have_gradients(flow: cf.Flow, dtype: torch.dtype) -> None:
    half = copy.deepcopy(flow).to(dtype)
    x, log_prob = half.sample_and_log_prob(4, seed=0)
    assert x.dtype == dtype
    log_prob.double().sum().backward()
    half.log_prob(rows(flow).to(dtype)).double().sum().backward()
    assert all(p.grad.isfinite().all() for p in half.parameters() if p.grad is not None)
    z = flow.base.sample(200, generator=torch.Generator().manual_seed(0))
    rounded = copy.deepcopy(half).float()  # the same weights, computed in float32
    expected = rounded.from_noise(z.to(dtype).float())[0]
    error = (half.from_noise(z.to(dtype))[0].double() - expected).abs() / (1 + expected.abs())
    # Layers round their outputs, and later layers enlarge the errors. A wrong matrix would give errors of about 1.
    assert error.median() < 16 * torch.finfo(dtype).eps


def test_on_the_meta_device_there_are_shapes(flow: cf.Flow) -> None:
    shapes = copy.deepcopy(flow).to("meta")
    assert shapes.log_prob(rows(flow).to("meta")).shape == (5,)
    x, log_prob = shapes.sample_and_log_prob(5)
    assert x.is_meta
    assert x.shape == (5, *flow.shape)
    assert log_prob.shape == (5,)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_a_trace_passes_torchs_check_and_takes_any_number_of_rows(flow: cf.Flow) -> None:
    z = flow.base.sample(5, generator=torch.Generator().manual_seed(0)).detach()
    for module, inputs in ((flow, rows(flow)), (Sampling(flow), z)):
        traced = torch.jit.trace(module, (inputs,))  # raises unless a second trace, without gradients, is the same
        more = torch.cat([inputs, inputs.flip(0)])
        torch.testing.assert_close(traced(more), module(more), rtol=1e-4, atol=1e-4)


def test_columns_with_domains_of_their_own_are_compiled_into_one_graph() -> None:
    torch._dynamo.reset()
    flow = perturbed(FLOWS["box"]())
    x, z = rows(flow), flow.base.sample(5, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(flow.log_prob, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), flow.log_prob(x))
    compiled = torch.compile(lambda z: flow.from_noise(z), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(z), flow.from_noise(z), rtol=1e-4, atol=1e-4)


def test_functional_call_may_initialise_an_actnorm() -> None:
    layer, x = cf.transforms.ActNorm(2).eval(), torch.randn(3, 2)
    state = {"shift": torch.ones(2), "log_scale": torch.zeros(2), "initialised": torch.tensor(True)}
    assert torch.equal(torch.func.functional_call(layer, state, (x,))[0], x - 1)
    with pytest.raises(RuntimeError, match="has seen no data yet"):
        layer(x)
