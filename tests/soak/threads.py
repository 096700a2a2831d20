"""Load and fit in four threads, and compare the results with the same work in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tests.helpers.counts import Counts
from tests.soak.victims import MODELS, make_table

import cubicflow as cf
from cubicflow.flows.serialization import load_model
from cubicflow.tables import fit_table
from cubicflow.training import fit

THREADS = 4
LOADS = 40


def in_threads(work: Callable[[int], Any], numbers: Iterable[int]) -> list[Any]:
    """Return the result or the exception of each work."""

    def caught(number: int) -> Any:
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(caught, numbers))


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return False
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def loads(folder: Path, counts: Counts) -> None:
    """Load flows in both dtypes and a model of columns."""
    flow = cf.flows.tabular(3, num_layers=2, hidden_features=16)
    flow.save(folder / "float32")
    flow.double().save(folder / "float64")
    fit_table(make_table(folder / "gaps.csv"), folder / "columns", model="columns", steps=2, progress=False)
    for name in ("float32", "float64", "columns"):
        expected = load_model(folder / name)
        before = torch.get_rng_state()
        for found in in_threads(lambda _, name=name: load_model(folder / name), range(THREADS * LOADS)):
            counts.add("loads")
            if not is_same(found, expected):
                counts.fail(f"a load of {name} in a thread: {found!r:.200}")
        if torch.get_default_dtype() != torch.float32 or not torch.equal(before, torch.get_rng_state()):
            counts.fail(f"loads of {name} changed the default dtype or the random numbers of the process")


def fits(folder: Path, counts: Counts) -> None:
    """Fit a flow with dropout, and both models of a table."""
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    table = make_table(folder / "t.csv", 120)

    def of_rows(seed: int) -> Any:
        torch_flow = flows.pop()
        return fit(torch_flow, x, seed=seed, steps=30, progress=False).flow

    def of_table(model: str, when: str) -> Callable[[int], Any]:
        def work(seed: int) -> Any:
            run = folder / f"{model}-{when}-{seed}"
            settings = {"num_blocks": 1, "hidden_features": 8, **({"num_layers": 1} if model == "flow" else {})}
            return fit_table(table, run, None, settings, model=model, seed=seed, steps=30, progress=False).fit.flow

        return work

    def make_flows() -> list[Any]:
        torch.manual_seed(7)
        flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, dropout=0.3)
        state = flow.state_dict()
        made = [cf.flows.tabular(2, num_layers=1, hidden_features=8, dropout=0.3) for _ in range(THREADS)]
        for one in made:
            one.load_state_dict(state)
        return made

    seeds = range(THREADS)
    flows = make_flows()
    serial = [of_rows(seed) for seed in seeds]
    flows = make_flows()
    pairs = [("rows", serial, in_threads(of_rows, seeds))]
    for model in MODELS:
        serial = [of_table(model, "serial")(seed) for seed in seeds]
        pairs.append((model, serial, in_threads(of_table(model, "threads"), seeds)))
    for name, expected, found in pairs:
        for one, other in zip(expected, found, strict=True):
            counts.add("fits")
            if not is_same(one, other):
                counts.fail(f"a fit of {name} in a thread differs from a serial one: {other!r:.200}")


def attack(folder: Path) -> Counts:
    counts = Counts()
    loads(folder, counts)
    fits(folder, counts)
    return counts
