"""Registration of the user's own classes: refused classes, equal names, and configs that do not rebuild their class."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import cubicflow as cf
from cubicflow.flows.descriptions import TYPES
from cubicflow.training import fit

from .own_modules import Net, NetWithConfig, coupled

pytestmark = pytest.mark.usefixtures("forget_registrations")

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}


def test_register_is_a_decorator_and_may_be_called_twice():
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
def test_objects_that_cannot_be_registered(what, message):
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
    for name, home in (("Flow", "cubicflow.flows.flow"), ("ResidualMLP", "cubicflow.nets.residual_net")):
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
