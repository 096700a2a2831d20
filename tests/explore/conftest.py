"""Small runs of every kind, servers of their pages, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.explore.pages import Page, Tab, serving
from tests.explore.tables import fit_small, make_counts, make_lists, make_table

import cubicflow as cf


@pytest.fixture(scope="session", autouse=True)
def _small_pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Draw fewer rows in idle time than a page does for a user, and cache overviews in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUBICFLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("cubicflow.tables.query.pool.MOST_ROWS", 1 << 15)
        patch.setattr("cubicflow.explore.subject.POOL_ROWS", 1 << 14)
        patch.setattr("cubicflow.explore.flow_layers.PATH_POINTS", 20_000)
        patch.setattr("cubicflow.explore.opened_run.BUILT_IN_ROWS", 20_000)
        patch.setattr("cubicflow.explore.overview.PLANE_POINTS", 10_000)
        yield


@pytest.fixture(scope="session")
def mixed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_small(make_table(), tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="session")
def lists_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_small(make_lists(), tmp_path_factory.mktemp("lists"))


@pytest.fixture(scope="session")
def counts_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_small(make_counts(), tmp_path_factory.mktemp("counts"), learning_rate=1e-2)


@pytest.fixture(scope="session")
def flow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"one": x, "two": 2 * x + rng.normal(size=200), "three": rng.gamma(2.0, size=200)})
    return fit_small(frame, tmp_path_factory.mktemp("flow"), model="flow", settings={"num_layers": 2})


@pytest.fixture(scope="session")
def plane_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plane") / "run"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the least likely rows of a file are those of this flow
        flow, points = cf.flows.plane(num_bins=8, hidden_features=8), torch.rand(400, 2)
    cf.training.fit(
        flow, points, run=folder, steps=20, progress=False, device="cpu", sections={"built_in": "gaussians"}
    )
    return folder


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "run"
    flow, pixels = cf.flows.image((1, 8, 8), num_layers=1, hidden_features=8), 256 * torch.rand(120, 1, 8, 8)
    cf.training.fit(flow, pixels, run=folder, steps=3, progress=False, device="cpu")
    return folder


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[[Path], Page]]:
    """Serve each run once, until the end of the session."""
    opened: dict[Path, tuple[Any, Page]] = {}

    def serve(run: Path) -> Page:
        if run not in opened:
            context = serving(run)
            opened[run] = context, context.__enter__()
        return opened[run][1]

    yield serve
    for context, _ in opened.values():
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """Return a headless Chromium without a network."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        found = playwright.chromium.launch(executable_path=chromium, args=options)
        yield found
        found.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    found = Tab(browser)
    yield found
    found.context.close()
