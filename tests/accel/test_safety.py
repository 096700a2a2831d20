"""Which flows are captured, and the messages about all other flows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import cubicflow as cf
from cubicflow.accel.safety import why_unsafe
from cubicflow.transforms import Compose, Coupling, ElementMap, LULinear


def own_flow() -> cf.Flow:
    return cf.flows.tabular(4, num_layers=2, hidden_features=8, num_bins=4)


@pytest.mark.parametrize(
    "flow",
    [
        own_flow(),
        cf.flows.tabular(3, layer="autoregressive", num_layers=1, hidden_features=8, norm="batch", dropout=0.1),
        cf.flows.plane(num_bins=4, hidden_features=8),
        cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, hidden_features=4),
    ],
    ids=["tabular", "autoregressive", "plane", "image"],
)
def test_flows_of_cubicflow_are_safe(flow):
    assert why_unsafe(flow) is None


class Wavering(nn.Module):
    """A module that branches in Python at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2 * 10)
        self.calls = 0

    def forward(self, x, context=None):
        self.calls += 1
        return self.inner(x) * (self.calls % 2)


def coupled(network) -> Coupling:
    return Coupling([True, False, True, False], lambda *sizes, **settings: network, ElementMap(num_bins=4))


def flow_of(*layers) -> cf.Flow:
    return cf.Flow(cf.distributions.StandardNormal(4), Compose(layers))


def test_foreign_modules_are_unsafe():
    assert "Wavering at transform.transforms.1.network is not a module of cubicflow or torch" in why_unsafe(
        flow_of(LULinear(4), coupled(Wavering()))
    )


def test_a_subclass_is_unsafe():
    class Mine(cf.Flow):
        pass

    inner = own_flow()
    assert "Mine is not a module of cubicflow or torch" in why_unsafe(Mine(inner.base, inner.transform))


def test_a_network_in_two_couplings_is_unsafe():
    network = cf.nets.ResidualMLP(2, 20, hidden_features=8)
    assert "ResidualMLP is used in more than one place" in why_unsafe(flow_of(coupled(network), coupled(network)))


def test_a_tied_parameter_is_unsafe():
    flow = own_flow()
    first, second = (layer for layer in flow.modules() if isinstance(layer, cf.nets.ResidualMLP))
    second.last.weight = first.last.weight
    assert why_unsafe(flow) == "modules share a parameter"


HOOKS = {
    "forward": lambda flow: flow.transform.register_forward_hook(lambda *_: None),
    "before forward": lambda flow: flow.base.register_forward_pre_hook(lambda *_: None),
    "backward": lambda flow: flow.transform.register_full_backward_hook(lambda *_: None),
    "gradient": lambda flow: next(flow.parameters()).register_hook(lambda grad: grad),
    "accumulated": lambda flow: next(flow.parameters()).register_post_accumulate_grad_hook(lambda _: None),
    "all modules": lambda flow: nn.modules.module.register_module_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_are_unsafe(hook):
    flow = own_flow()
    handle = HOOKS[hook](flow)
    assert "hooks" in why_unsafe(flow)
    handle.remove()
    assert why_unsafe(flow) is None


def test_a_replaced_method_is_unsafe():
    flow = own_flow()
    layer = flow.transform.transforms[0]
    layer.forward = lambda x, context=None: (x, x.new_zeros(len(x)))
    assert "were replaced" in why_unsafe(flow)


def test_a_parametrised_weight_is_unsafe():
    flow = own_flow()
    network = next(layer for layer in flow.modules() if isinstance(layer, cf.nets.ResidualMLP))
    torch.nn.utils.parametrizations.weight_norm(network.first)
    assert why_unsafe(flow) is not None
