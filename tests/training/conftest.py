"""Small flows and small data for the training loop."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.flows import Flow
from cubicflow.flows.descriptions import TYPES
from cubicflow.flows.serialization import read_tensors
from cubicflow.training import TrainingInterrupted, fit
from cubicflow.training.losses import negative_log_likelihood

from .small_fits import curved_rows, small_flow


@pytest.fixture
def x() -> Tensor:
    return curved_rows()


@pytest.fixture
def make_flow() -> Callable[..., Flow]:
    return small_flow


@pytest.fixture
def weights_of() -> Callable[[Any], dict[str, Tensor]]:
    """Return a function that returns the tensors of a flow or of a finished run."""

    def weights(source: Any) -> dict[str, Tensor]:
        if isinstance(source, str | Path):
            return read_tensors(Path(source) / "model.safetensors", None)
        return dict(source.state_dict())

    return weights


@pytest.fixture
def assert_same(weights_of: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any, Any], None]:
    """Return a function that asserts that two flows or runs have the same weights, bit for bit."""

    def check(one: Any, other: Any) -> None:
        first, second = weights_of(one), weights_of(other)
        assert first.keys() == second.keys()
        different = [name for name in first if not torch.equal(first[name], second[name])]
        assert different == []

    return check


@pytest.fixture
def forget_registrations() -> Iterator[None]:
    """Remove the classes that a test registers."""
    before = dict(TYPES)
    yield
    TYPES.clear()
    TYPES.update(before)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an interrupted run, which tests must not change."""
    run = tmp_path_factory.mktemp("interrupted") / "run"
    pending = [signal.SIGINT]

    def loss(flow: Any, batch: Batch) -> Tensor:
        if torch.is_grad_enabled() and pending:
            os.kill(os.getpid(), pending.pop())
        return negative_log_likelihood(flow, batch)

    with pytest.raises(TrainingInterrupted):
        fit(small_flow(), curved_rows(), run=run, loss=loss, steps=12, validate_every=4, progress=False)
    return run


@pytest.fixture
def unfinished(interrupted: Path, run: Path) -> Path:
    """Return a copy of an interrupted run."""
    return Path(shutil.copytree(interrupted, run))
