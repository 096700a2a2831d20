"""Runs of flows with the user's own modules: they are trained, resumed, saved and, if registered, loaded."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import cubicflow as cf
from cubicflow.flows import FlowFileError
from cubicflow.flows.descriptions import TYPES
from cubicflow.training import RunFolderError, TrainingInterrupted, fit

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}
BINS = cf.transforms.ElementMap("cubic", num_bins=4)


class Net(nn.Module):
    """A network without a config."""

    def __init__(self, hidden=8):
        super().__init__()
        self.hidden = hidden
        last = nn.Linear(hidden, BINS.num_params)
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.Dropout(0.1), nn.SiLU(), last)

    def forward(self, x):
        return self.layers(x)


class NetWithConfig(Net):
    def config(self):
        return {"hidden": self.hidden}


class OwnFlow(nn.Module):
    """A module without any part of cubicflow. Its log_prob takes one argument. Its buffers are integers, bytes and
    half-precision numbers. Some of its tensors are not in its state_dict."""

    def __init__(self, features=2):
        super().__init__()
        self.features = features
        self.scale = nn.Parameter(torch.zeros(features))
        self.register_buffer("order", torch.arange(features, dtype=torch.int32))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("flags", torch.ones(3, dtype=torch.uint8))
        self.register_buffer("halves", torch.tensor([0.5, 0.25], dtype=torch.bfloat16))
        self.register_buffer("mask", torch.ones(features), persistent=False)
        self.base = torch.distributions.Normal(0.0, 1.0, validate_args=False)

    def log_prob(self, x):
        if self.training:
            self.calls += 1
        z = x[:, self.order] * self.scale.exp() * self.mask
        return self.base.log_prob(z).sum(1) + self.scale.sum()


class RegisteredFlow(OwnFlow):
    """An OwnFlow with a config, so that it can be registered."""

    def __init__(self, features=2):
        super().__init__(features)
        del self.halves  # all floating tensors of a registered flow have one dtype

    def config(self):
        return {"features": self.features}


@pytest.fixture(autouse=True)
def _forget_registrations():
    before = dict(TYPES)
    yield
    TYPES.clear()
    TYPES.update(before)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def coupled(*networks):
    masks = ([True, False], [False, True])
    layers = [cf.transforms.Coupling(masks[i % 2], network, BINS) for i, network in enumerate(networks)]
    return cf.Flow(cf.distributions.StandardNormal(2), cf.transforms.Compose(layers))


def with_own_net(**settings):
    torch.manual_seed(5)
    return coupled(Net(**settings))


def shared_net(kind=Net):
    torch.manual_seed(5)
    network = kind()
    return coupled(network, network)


def mixture(kind=Net):
    torch.manual_seed(5)
    return cf.Mixture([coupled(kind()), coupled(kind(hidden=4))], [2, 1])


def own_flow():
    return OwnFlow()


MAKERS = [with_own_net, shared_net, mixture, own_flow]


def stopping_at(step):
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
    with pytest.raises(TypeError, match=r"Net has no method log_prob\(x\); add one, or give fit your own loss"):
        fit(Net(), x, run=run / "other", **SETTINGS)
    assert not (run / "other").exists()


def test_context_reaches_a_log_prob_that_takes_it(x):
    class Conditional(OwnFlow):
        def log_prob(self, x, context):
            return super().log_prob(x - context)

    shifted = fit(Conditional(), (x + 5, torch.full_like(x, 5.0)), **SETTINGS).flow
    torch.testing.assert_close(shifted.scale, fit(OwnFlow(), x, **SETTINGS).flow.scale, rtol=0, atol=1e-3)


def test_config_names_what_is_missing_and_lists_the_tensors(x, run):
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


def test_what_is_no_tensor_cannot_be_kept(x, run):
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


def test_a_run_begun_before_the_class_was_registered_goes_on(x, run, assert_same):
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
def test_only_what_shares_says_so(tmp_path, layer):
    """Masked networks may share the memory of equal buffers. Such buffers are not recorded as shared tensors."""
    cf.flows.tabular(2, num_layers=2, hidden_features=8, layer=layer).save(tmp_path)
    assert "shared_tensors" not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
    "shared",
    [3, ["x"], {"nowhere": "base.anchor"}, {"base.anchor": "nowhere"}, {"base.anchor": ["base.anchor"]}, {"a": "b"}],
)
def test_damaged_words_about_sharing_are_refused(tmp_path, shared):
    coupled(cf.nets.ResidualMLP(1, BINS.num_params, hidden_features=8)).save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "shared_tensors": shared}))
    with pytest.raises(FlowFileError, match="the section 'shared_tensors' does not match the flow"):
        cf.load(tmp_path)


def test_a_run_that_needs_a_class_that_nobody_registered(x, run):
    cf.register(NetWithConfig)
    fit(coupled(NetWithConfig()), x, run=run, **SETTINGS)
    del TYPES["NetWithConfig"]
    with pytest.raises(
        FlowFileError, match=r"'NetWithConfig' is neither a class of .*call cubicflow.register on it first"
    ):
        cf.load(run)
    with pytest.raises(RunFolderError, match=r"call cubicflow.register on .*NetWithConfig before you resume it"):
        fit(coupled(NetWithConfig()), x, run=run, resume=True, **SETTINGS)


def test_only_registered_classes_are_ever_constructed(x, run):
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


# --- classes that cannot be registered ---


def test_register_is_a_decorator_and_may_come_twice():
    assert cf.register(NetWithConfig) is NetWithConfig
    assert cf.register(NetWithConfig) is NetWithConfig

    @cf.register
    class Another(NetWithConfig):
        pass

    assert TYPES["Another"] is Another


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (Net, r"Net has no method config\(\); add one that returns its constructor's arguments"),
        (lambda x: x, "takes a subclass of torch.nn.Module, got an object of class function"),
        (fit, "got an object of class function"),
        (NetWithConfig(), "got an object of class NetWithConfig; pass the class of your module"),
        (dict, "takes a subclass of torch.nn.Module, got the class dict"),
        ("NetWithConfig", "got an object of class str"),
    ],
)
def test_what_cannot_be_registered(what, message):
    with pytest.raises(TypeError, match=message) as caught:
        cf.register(what)
    assert "\n" not in str(caught.value)


def test_two_classes_of_one_name():
    def another():
        class NetWithConfig(Net):
            def config(self):
                return {"hidden": self.hidden}

        return NetWithConfig

    cf.register(NetWithConfig)
    home = NetWithConfig.__module__
    with pytest.raises(
        ValueError, match=f"a class named NetWithConfig already exists, in {home}; rename one of the two"
    ):
        cf.register(another())
    del TYPES["NetWithConfig"]
    cf.register(another())
    with pytest.raises(ValueError, match="a class named NetWithConfig already exists"):
        cf.register(another())
    for name, home in (("Flow", "cubicflow.flows.flow"), ("ResidualMLP", "cubicflow.nets.residual_mlp")):
        taken = type(name, (NetWithConfig,), {})
        with pytest.raises(ValueError, match=f"a class named {name} already exists, in {home}; rename one of the two"):
            cf.register(taken)
    assert TYPES["Flow"] is cf.Flow


def test_a_class_that_is_defined_again_replaces_itself():
    """Running a notebook cell again defines its class again."""
    source = "class Cell(NetWithConfig):\n    pass\n"
    versions = []
    for _ in range(2):
        space = {"NetWithConfig": NetWithConfig, "__name__": "__main__"}
        exec(source, space)
        versions.append(cf.register(space["Cell"]))
    assert TYPES["Cell"] is versions[1] is not versions[0]


class Wrong(Net):
    given: object = None

    def __init__(self, hidden=8, slope=0.1):
        super().__init__(hidden)
        self.slope = slope

    def config(self):
        return self.given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"Wrong.config\(\) must return a dict"),
        ({"hidden": 8}, r"Wrong.config\(\) lacks slope; it must return all arguments"),
        (
            {"hidden": 4, "slope": 0.1},
            r"config\(\) of Wrong does not rebuild this flow: .*layers.0.* of shape \(8,\), but is",
        ),
        (
            {"hidden": 8, "slope": 0.1, "x": 1},
            r"not rebuild this flow: Wrong cannot be built from .* unexpected keyword.*'x'",
        ),
        (
            {"hidden": 8, "slope": 0.1, "type": 1},
            r"Wrong.config\(\) must return a dict .*, without an argument named 'type'",
        ),
        (
            {"hidden": 8, "slope": math.sin},
            r"Wrong.config\(\)\['slope'\] is a builtin_function_or_method; a config may hold",
        ),
        ({"hidden": 8, "slope": [{}]}, r"Wrong.config\(\)\['slope'\] is a dict; a config may hold"),
        ({"hidden": 8, "slope": nn.ReLU()}, r"torch.nn.modules.activation.ReLU is not one of cubicflow's own modules"),
        ({"hidden": "eight", "slope": 0.1}, "not rebuild this flow: Wrong cannot be built from"),
    ],
)
def test_a_config_that_does_not_rebuild_its_class(run, given, message, monkeypatch):
    cf.register(Wrong)
    monkeypatch.setattr(Wrong, "given", given)
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        coupled(Wrong()).save(run)
    assert "\n" not in str(caught.value)
    assert not run.exists()


def test_a_constructor_that_needs_the_values_of_tensors(run):
    @cf.register
    class Counting(Net):
        def __init__(self):
            super().__init__(int(torch.tensor(8)))

        def config(self):
            return {}

    with pytest.raises(ValueError, match=r"Counting cannot be built .*meta device, where tensors have no values"):
        coupled(Counting()).save(run)


def test_a_config_that_does_not_rebuild_is_refused_before_training(x, run, monkeypatch):
    cf.register(Wrong)
    monkeypatch.setattr(Wrong, "given", {"hidden": 4, "slope": 0.1})
    with pytest.raises(ValueError, match="does not rebuild this flow"):
        fit(coupled(Wrong()), x, run=run, **SETTINGS)
    assert not run.exists()
