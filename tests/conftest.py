"""The device of kernel tests, profiles of Hypothesis, the browser, and the folder of real data."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")

# `make test` runs the same examples every time. `make soak` searches for new examples.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("search", derandomize=False, print_blob=True)
settings.load_profile("repeatable")

# Triton reads TRITON_INTERPRET when it is imported, and any test may import Triton. Workers of xdist inherit the
# environment of the first process.
if "PYTEST_XDIST_WORKER" not in os.environ and not any("cuda" in argument for argument in sys.argv):
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")  # without this variable scikit-learn skips one of its checks


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make no search for garbage among the million objects that are imported, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5_000)  # seven times as rarely as usual: tracing makes many objects
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    gc.unfreeze()  # extension modules complain at exit about objects that are never freed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where GPU kernels are tested: cpu runs them in Triton's interpreter",
    )


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium: the path in CUBICFLOW_CHROMIUM, or a known name. In continuous integration a missing
    browser is an error; elsewhere it skips the test.
    """
    path = os.environ.get("CUBICFLOW_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop("no Chromium on this machine: install one, or name it in CUBICFLOW_CHROMIUM")
    return path


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real data: the folder in CUBICFLOW_DATA, or a folder beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CUBICFLOW_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there, set CUBICFLOW_DATA to a folder that docs/data.md describes")
    return folder


@pytest.fixture(scope="session")
def of_circles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a fitted table with circles and a long tail. Its splines are random. Tests must not change it."""
    from tests.helpers.circles import fit_circles

    return fit_circles(tmp_path_factory.mktemp("circles"))
