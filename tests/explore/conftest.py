"""Small runs of every kind, servers of their pages, and a browser."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import uvicorn

import cubicflow as cf
from cubicflow.explore.app import Explorer, make_app
from cubicflow.tables import fit_table

TOKEN = "a-token-for-tests"
EVIL = '<img src=x onerror="window.hurt=1">'
ROWS = 240


@pytest.fixture(scope="session", autouse=True)
def _small_pools() -> Iterator[None]:
    """Draw fewer rows in idle time than a page does for a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cubicflow.explore.pool.MOST_ROWS", 1 << 15)
        patch.setattr("cubicflow.explore.subject.POOL_ROWS", 1 << 14)
        patch.setattr("cubicflow.explore.flow_layers.PATH_POINTS", 20_000)
        patch.setattr("cubicflow.explore.opened_run.BUILT_IN_ROWS", 20_000)
        patch.setattr("cubicflow.explore.overview.PLANE_POINTS", 10_000)
        yield


def make_table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return words, whole numbers, real numbers, dates and gaps. One name contains HTML, which a page must escape."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["cat", "dog", EVIL], rows)
    size = np.round(rng.normal(3, 1, rows) + (kind == "cat"), 2)
    frame = pd.DataFrame(
        {
            EVIL: kind,
            "size (m²)": size,
            "weight": rng.gamma(2.0, 3.0, rows) + 3 + size,
            "legs": rng.poisson(3, rows),
            "born": pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d"),
        }
    )
    frame.loc[::9, "weight"] = np.nan
    return frame


def make_lists(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Return dependent columns with few values each, so that the joint distribution can be enumerated."""
    rng = np.random.default_rng(seed)
    a = rng.choice(["ash", "elm", "oak"], rows, p=[0.5, 0.3, 0.2])
    b = rng.poisson(1 + 2 * (a == "oak"), rows).clip(0, 4)
    c = np.where(rng.random(rows) < 0.2 + 0.6 * (b > 1), "old", "young")
    b = np.array(["none", "one", "two", "three", "many"])[b]
    d = np.where(rng.random(rows) < np.where(c == "old", 0.8, 0.3), "tall", "small")
    return pd.DataFrame({"tree": a, "rings": b, "age": c, "height": d})


def make_counts(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    """Return words, a number with many values that depends on the words, and words that depend on the number."""
    rng = np.random.default_rng(seed)
    tree = rng.choice(["ash", "elm", "oak"], rows, p=[0.5, 0.3, 0.2])
    rings = rng.poisson(30 + 15 * (tree == "oak"), rows)
    return pd.DataFrame({"tree": tree, "rings": rings, "age": np.where(rings > 35, "old", "young")})


def fit_small(frame: pd.DataFrame, folder: Path, **how: Any) -> Path:
    frame.to_csv(folder / "table.csv", index=False)
    settings = {"hidden_features": 8, **how.pop("settings", {})}
    how = {"steps": 60, "progress": False, "device": "cpu", **how}
    fit_table(folder / "table.csv", folder / "run", None, settings, **how)
    return folder / "run"


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
    flow = cf.flows.plane(num_bins=8, hidden_features=8)
    points = torch.rand(400, 2)
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


class Page(NamedTuple):
    """A page that a server serves."""

    port: int
    explorer: Explorer

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def address(self) -> str:
        return f"{self.root}?token={TOKEN}"


@contextmanager
def serving(run: Path) -> Iterator[Page]:
    """Serve the page of a run in a thread of this process."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        explorer = Explorer(run)
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(explorer, TOKEN, port), log_level="critical", lifespan="off", timeout_graceful_shutdown=0
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Page(port, explorer)
        server.should_exit = server.force_exit = True
        thread.join(300)
        explorer.close()  # end the worker threads: the interpreter must not exit while a thread runs a kernel


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


class Tab:
    """A tab that records its errors."""

    def __init__(self, browser: Any, width: int = 1280) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(300_000)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("requestfailed", self._failed)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the browser aborts requests of a view that is closed early
            self.wrong.append(f"{request.url} failed: {request.failure}")

    def open(self, page: Page, view: str) -> Any:
        """Show a view, and wait until it is drawn. The first view of a page loads the page."""
        if not self.page.url.startswith(page.root):
            self.page.goto(page.address)
        self.page.goto(f"{page.root}#/{view}")
        name = view.partition("?")[0]
        self.page.wait_for_selector(f"main[data-view='{name}'][data-ready='yes']")
        return self.page


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    found = Tab(browser)
    yield found
    found.context.close()
