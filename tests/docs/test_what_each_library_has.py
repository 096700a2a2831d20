"""The table of the features of other packages names all of their layers, flows and distributions."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import cubicflow as cf

PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## What each library has")[2].partition("## Weights")[0]
NAMED = re.findall(r"`([\w.]+)", SECTION)
PLACES = {
    "zuko": ["zuko.flows", "zuko.transforms", "zuko.distributions"],
    "nflows": ["nflows.transforms", "nflows.distributions"],
    "normflows": ["normflows.flows", "normflows.transforms", "normflows.core"],
}
# Base classes and helpers, whose subclasses are in the table, and classes that the page names by what they are.
ABSTRACT = {
    "zuko": {"Flow", "LazyDistribution", "LazyInverse", "LazyTransform", "UnconditionalDistribution",
             "UnconditionalTransform", "NormalizingFlow"},
    "nflows": {"Distribution", "InputOutsideDomain", "InverseNotAvailable", "NoMeanException", "Transform",
               "PiecewiseCouplingTransform", "ConditionalIndependentBernoulli", "MG1Uniform",
               "LotkaVolterraOscillating"},
    "normflows": {"Flow", "Coupling", "NormalizingFlow", "ConditionalNormalizingFlow", "NormalizingFlowVAE",
                  "PiecewiseCoupling", "PiecewiseRationalQuadraticCoupling", "iResBlock",
                  "MaskedPiecewiseRationalQuadraticAutoregressive"},
}  # fmt: skip


def classes(module: ModuleType) -> set[str]:
    """Return the names of the package's own public classes in a module."""
    package = module.__name__.partition(".")[0]
    return {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__.startswith(f"{package}.") and not name.startswith("_")
    }


def is_named(name: str) -> bool:
    """Return whether the page has a class, by its name or by the beginning of the name, as in ``PiecewiseCubic...``."""
    return any(name == found or (found.endswith("...") and name.startswith(found[:-3])) for found in NAMED)


@pytest.mark.parametrize("package", PLACES)
def test_every_class_is_in_the_table(package: str) -> None:
    pytest.importorskip(package)
    if f"{package} {version(package)}" not in SECTION:
        pytest.skip(f"the page is about another version than {version(package)}")
    found = set().union(*(classes(importlib.import_module(place)) for place in PLACES[package])) - ABSTRACT[package]
    assert len(found) > 15
    assert sorted(name for name in found if not is_named(name) and not name.startswith("MaskedPiecewise")) == []


def test_our_names_exist() -> None:
    ours = [line.split("|")[2] for line in SECTION.splitlines() if line.startswith("| ")]
    names = {name for cell in ours for name in re.findall(r"`([A-Z]\w+)`", cell)}
    assert len(names) > 20
    known = {*cf.transforms.__all__, *cf.distributions.__all__}
    assert sorted(names - known) == []
