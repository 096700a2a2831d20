"""Common fixtures of the native tests: kernels of one instruction set at a time, inputs and comparisons."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cubicflow.splines.backends.native import launch, library

from ..cases import CASES, Case
from .kernels import HERE, LOADED

if path := os.environ.get("CUBICFLOW_SANITIZED"):  # a build with sanitizers, for make sanitize
    library.LIBRARY = Path(path)
    library.load.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With sanitizers, which are slow, keep every 19th test.

    Accuracy tests are left out: a build with sanitizers optimises less and rounds differently.
    """
    if path:
        items[:] = [item for item in items if "exact" not in item.name][::19]


@pytest.fixture(params=HERE or [0], ids=lambda level: library.LEVELS[level])
def level(request, monkeypatch) -> int:
    """Return each instruction set of this processor, not only the best, in a test of its own."""
    if isinstance(LOADED, str):
        pytest.skip(LOADED)
    monkeypatch.setattr(launch, "load", lambda: LOADED._replace(level=request.param))
    return request.param


@pytest.fixture(scope="session", params=[case for case in CASES if case.record.kernel is not None], ids=str)
def spline(request) -> Case:
    """Return each case that has a native kernel."""
    return request.param
