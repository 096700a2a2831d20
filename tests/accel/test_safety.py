"""Which flows are captured, and the messages about all other flows."""

from __future__ import annotations

import functools

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


REPLACED = {
    "log_prob of Flow": lambda flow: setattr(flow, "log_prob", lambda x, context=None: x.sum(1)),
    "sample of Flow": lambda flow: setattr(flow, "sample", lambda n: torch.zeros(n, 4)),
    "log_prob of StandardNormal at base": lambda flow: setattr(
        flow.base, "log_prob", lambda z, temperature=1: z.sum(1)
    ),
    "forward of Compose at transform": lambda flow: setattr(flow.transform, "forward", lambda x, context=None: (x, 0)),
    "inverse of LULinear at transform.transforms.0": lambda flow: setattr(
        flow.transform.transforms[0], "inverse", lambda z, context=None: (z, 0)
    ),
}


@pytest.mark.parametrize("replaced", REPLACED)
def test_a_method_replaced_on_a_module_is_unsafe(replaced):
    flow = own_flow()
    REPLACED[replaced](flow)
    assert why_unsafe(flow) == f"the method {replaced} was replaced"


def test_a_method_replaced_on_a_class_is_unsafe(monkeypatch):
    plain = LULinear.forward

    @torch.no_grad()
    @functools.wraps(plain)
    def counting(self, x, context=None):
        return plain(self, x, context)

    flow = own_flow()
    monkeypatch.setattr(LULinear, "forward", counting)
    assert why_unsafe(flow) == "the method forward of LULinear at transform.transforms.0 was replaced"
    monkeypatch.undo()
    assert why_unsafe(flow) is None
    monkeypatch.setattr(nn.Module, "__call__", lambda self, *args: self.forward(*args))
    assert why_unsafe(flow) == "the method __call__ of Flow was replaced"


def test_public_names_alone_do_not_show_hooks(monkeypatch):
    """The message must not blame this version of torch."""
    monkeypatch.setenv("CUBICFLOW_ACCEL", "public")
    reason = why_unsafe(own_flow())
    assert "CUBICFLOW_ACCEL=public" in reason
    assert "version of torch" not in reason


def test_a_parametrised_weight_is_unsafe():
    flow = own_flow()
    network = next(layer for layer in flow.modules() if isinstance(layer, cf.nets.ResidualMLP))
    torch.nn.utils.parametrizations.weight_norm(network.first)
    assert why_unsafe(flow) is not None


def test_a_layer_that_says_that_it_is_not_one_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    assert why_unsafe(flow) is None
    monkeypatch.setattr(cf.transforms.Elementwise, "one_pass", False)
    assert "Elementwise at transform.transforms.1.identity_maps uses a weight twice" in (why_unsafe(flow) or "")
