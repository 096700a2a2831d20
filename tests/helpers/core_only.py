"""A plugin of pytest that blocks all packages above the core: ``pytest -p tests.helpers.core_only``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

OUTER = (*("cli", "clients", "clusters", "estimator", "explore", "export", "integration", "plots", "tables"),)


class Outer:
    """A finder that raises for every package above the core."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name.partition(".")[0] == "cubicflow" and name.split(".")[1:2] and name.split(".")[1] in OUTER:
            raise ModuleNotFoundError(f"{name} is above the core, whose tests must not need it", name=name)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Block the packages in a run with this plugin, and not in one that imports this module for its doctests."""
    sys.meta_path.insert(0, Outer())
