"""Runs of flows with the user's own modules: they are trained, resumed, saved and, if registered, loaded."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import cubicflow as cf
from cubicflow.flows import FlowFileError
from cubicflow.flows.descriptions import TYPES
from cubicflow.training import RunFolderError, TrainingInterrupted, fit

from .own_modules import (
    BINS,
    Net,
    NetWithConfig,
    OwnFlow,
    RegisteredFlow,
    coupled,
    mixture,
    own_flow,
    shared_net,
    with_own_net,
)

pytestmark = pytest.mark.usefixtures("forget_registrations")

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}
MAKERS = [with_own_net, shared_net, mixture, own_flow]


def stopping_at(step):
    """Return a stop function that returns True after this step."""
    asked = iter(range(1, 10**9))
    return lambda: next(asked) == step


# --- not registered: the state is enough ---


@pytest.mark.parametrize("make", MAKERS)
def test_any_module_trains_in_a_run_folder_and_resumes(x, run, assert_same, make):
    whole = fit(make(), x, **SETTINGS)
    with pytest.raises(TrainingInterrupted, match="stopped at step 7 and saved"):
        fit(make(), x, run=run, sections={"mine": [1]}, stop=stopping_at(7), **SETTINGS)
    resumed = fit(make(), x, run=run, resume=True, sections={"mine": [1]}, **SETTINGS)
    assert_same(whole.flow, resumed.flow)
    assert_same(run, whole.flow)
    again = fit(make(), x, run=run, resume=True, sections={"mine": [1]}, **SETTINGS)
    assert_same(again.flow, whole.flow)
    assert (again.steps, again.history) == (12, resumed.history)
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "metrics.jsonl", "model.safetensors"]


def test_the_final_weights_are_a_state_dict(x, run):
    flow = fit(OwnFlow(), x, run=run, **SETTINGS).flow
    rebuilt = OwnFlow()
    rebuilt.load_state_dict(load_file(run / "model.safetensors"))
    assert torch.equal(rebuilt.eval().log_prob(x), flow.log_prob(x))
    assert rebuilt.calls == flow.calls > 0


def test_a_loss_of_the_users_own_needs_no_log_prob(x, run):
    def loss(module, batch):
        return (module(batch.x[:, :1])[:, 0] - batch.x[:, 1]) ** 2

    assert fit(Net(), x, run=run, loss=loss, **SETTINGS).steps == 12
    assert fit(Net(), x, run=run, loss=loss, resume=True, **SETTINGS).steps == 12
    with pytest.raises(TypeError, match=r"Net has no method log_prob\(x\); add one, or pass a loss of your own"):
        fit(Net(), x, run=run / "other", **SETTINGS)
    assert not (run / "other").exists()


def test_context_reaches_a_log_prob_that_takes_it(x):
    class Conditional(OwnFlow):
        def log_prob(self, x, context):
            return super().log_prob(x - context)

    shifted = fit(Conditional(), (x + 5, torch.full_like(x, 5.0)), **SETTINGS).flow
    torch.testing.assert_close(shifted.scale, fit(OwnFlow(), x, **SETTINGS).flow.scale, rtol=0, atol=1e-3)


def test_config_names_unregistered_classes_and_lists_the_tensors(x, run):
    fit(mixture(), x, run=run, **SETTINGS)
    config = json.loads((run / "config.json").read_text())
    assert config["dtype"] is None
    assert config["flow"]["unregistered"] == [f"{Net.__module__}.Net"]
    state = config["flow"]["state"]
    assert list(state) == list(mixture().state_dict())
    assert state["members.0.transform.transforms.0.network.layers.0.weight"] == "float32[8, 1]"
    assert state["members.0.transform.transforms.0.transformed"] == "int64[1]"
    assert config["result"]["finished"]


def test_load_says_how_to_get_the_flow_back(x, run):
    fit(with_own_net(), x, run=run, **SETTINGS)
    with pytest.raises(FlowFileError) as caught:
        cf.load(run)
    message = str(caught.value)
    assert "\n" not in message
    assert f"not registered when it was fitted, ['{Net.__module__}.Net']" in message
    assert "call cubicflow.register on them before fit" in message
    assert f"flow.load_state_dict(safetensors.torch.load_file('{run / 'model.safetensors'}'))" in message


def test_resume_with_another_module(x, run):
    fit(with_own_net(), x, run=run, **SETTINGS)
    for other, message in (
        (with_own_net(hidden=6), r"layers.0.weight, which was 'float32\[8, 1\]' and is 'float32\[6, 1\]'"),
        (with_own_net().double(), r"which was 'float32\[\]' and is 'float64\[\]'"),
        (shared_net(), "which was None and is"),
        (OwnFlow(), "and is None"),
    ):
        with pytest.raises(RunFolderError, match=f"run of another model.*{message}"):
            fit(other, x, run=run, resume=True, **SETTINGS)


def test_a_state_that_is_not_a_tensor_is_refused(x, run):
    class Remembering(OwnFlow):
        def get_extra_state(self):
            return {"epoch": 3}

        def set_extra_state(self, state):
            pass

        def config(self):
            return {"features": 2}

    for _ in range(2):
        with pytest.raises(TypeError, match=r"_extra_state in the flow's state_dict\(\) is not a tensor.*use a buffer"):
            fit(Remembering(), x, run=run, **SETTINGS)
        assert not run.exists()
        cf.register(Remembering)


def test_a_run_started_before_registration_resumes(x, run, assert_same):
    def make():
        torch.manual_seed(5)
        return coupled(NetWithConfig())

    with pytest.raises(TrainingInterrupted):
        fit(make(), x, run=run, stop=stopping_at(7), **SETTINGS)
    cf.register(NetWithConfig)
    resumed = fit(make(), x, run=run, resume=True, **SETTINGS)
    assert_same(resumed.flow, fit(make(), x, **SETTINGS).flow)
    assert torch.equal(cf.load(run).log_prob(x), resumed.flow.log_prob(x))


# --- registered ---


@pytest.mark.parametrize(
    "make", [lambda: coupled(NetWithConfig()), lambda: shared_net(NetWithConfig), lambda: mixture(NetWithConfig)]
)
def test_registered_modules_are_saved_and_loaded(x, run, tmp_path, make):
    cf.register(NetWithConfig)
    flow = fit(make(), x, run=run, **SETTINGS).flow
    loaded = cf.load(run)
    assert type(loaded) is type(flow)
    assert torch.equal(loaded.log_prob(x), flow.log_prob(x))
    assert torch.equal(loaded.sample(4, seed=0), flow.sample(4, seed=0))
    assert len(list(loaded.parameters())) == len(list(flow.parameters()))
    assert not loaded.training
    flow.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert "unregistered" not in (run / "config.json").read_text()
    with pytest.raises(RunFolderError, match="run of another model"):
        fit(coupled(NetWithConfig(hidden=3)), x, run=run, resume=True, **SETTINGS)


def test_a_flow_of_the_users_own_class_is_loaded(x, run):
    cf.register(RegisteredFlow)
    flow = fit(RegisteredFlow(), x, run=run, **SETTINGS).flow
    state = torch.random.get_rng_state()
    loaded = cf.load(run)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(loaded) is RegisteredFlow
    assert loaded.calls == flow.calls > 0
    assert torch.equal(loaded.log_prob(x), flow.log_prob(x))  # also depends on tensors that are not saved


def test_weights_that_a_class_shares_within_itself_stay_shared(x, run):
    @cf.register
    class Tied(OwnFlow):
        def __init__(self):
            super().__init__()
            del self.halves
            self.other = nn.Linear(1, 2)
            self.other.bias = self.scale

        def config(self):
            return {}

    fit(Tied(), x, run=run, **SETTINGS)
    loaded = cf.load(run)
    assert loaded.other.bias is loaded.scale


def test_networks_in_two_layers_stay_one_and_train_as_one(x, tmp_path):
    settings = {"hidden_features": 8, "num_blocks": 1, "norm": "batch"}
    flow = shared_net(lambda: cf.nets.ResidualMLP(1, BINS.num_params, **settings))
    flow.save(tmp_path)
    loaded = cf.load(tmp_path)
    first, second = (dict(layer.network.state_dict(keep_vars=True)) for layer in loaded.transform.transforms)
    assert any("running_mean" in name for name in first)
    assert all(first[name] is second[name] for name in first)
    results = [fit(each, x, **SETTINGS).flow.log_prob(x) for each in (flow, loaded)]
    assert torch.equal(*results)


@pytest.mark.parametrize("layer", ["coupling", "autoregressive"])
def test_equal_buffers_are_not_recorded_as_shared(tmp_path, layer):
    """Masked networks may share the memory of equal buffers. Such buffers are not recorded as shared tensors."""
    cf.flows.tabular(2, num_layers=2, hidden_features=8, layer=layer).save(tmp_path)
    assert "shared_tensors" not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
    "shared",
    [3, ["x"], {"nowhere": "base.anchor"}, {"base.anchor": "nowhere"}, {"base.anchor": ["base.anchor"]}, {"a": "b"}],
)
def test_invalid_sections_of_shared_tensors_are_refused(tmp_path, shared):
    coupled(cf.nets.ResidualMLP(1, BINS.num_params, hidden_features=8)).save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "shared_tensors": shared}))
    with pytest.raises(FlowFileError, match="the section 'shared_tensors' does not match the flow"):
        cf.load(tmp_path)


def test_a_run_of_a_class_that_is_not_registered(x, run):
    cf.register(NetWithConfig)
    fit(coupled(NetWithConfig()), x, run=run, **SETTINGS)
    del TYPES["NetWithConfig"]
    with pytest.raises(
        FlowFileError, match=r"'NetWithConfig' is neither a class of .*call cubicflow.register on it first"
    ):
        cf.load(run)
    with pytest.raises(RunFolderError, match=r"call cubicflow.register on .*NetWithConfig before you resume it"):
        fit(coupled(NetWithConfig()), x, run=run, resume=True, **SETTINGS)


def test_only_registered_classes_are_constructed(x, run):
    built = []

    class Spy(NetWithConfig):
        def __init__(self, hidden=8):
            built.append(next(iter(nn.Linear(1, 1).parameters())).device.type)
            super().__init__(hidden)

    cf.register(NetWithConfig)
    fit(coupled(NetWithConfig()), x, run=run, **SETTINGS)
    path = run / "config.json"
    path.write_text(path.read_text().replace('"NetWithConfig"', '"Spy"'))
    with pytest.raises(FlowFileError, match="'Spy' is neither a class of cubicflow nor a registered class"):
        cf.load(run)
    assert built == []
    cf.register(Spy)
    path.write_text(path.read_text().replace('"hidden": 8', '"hidden": 1000000000000'))
    with pytest.raises(FlowFileError, match=r"should be torch.float32 of shape \(1000000000000, 1\)"):
        cf.load(run)
    assert built == ["meta"]
