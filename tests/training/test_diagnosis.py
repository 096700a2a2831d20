"""The likely cause of a loss that is not finite: unusual rows, or a learning rate that is too large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import cubicflow as cf
from cubicflow.training import NonFiniteLossError, fit
from cubicflow.training.checkpoint import NEWEST, read_checkpoint


def message(x: torch.Tensor, **settings: Any) -> str:
    torch.manual_seed(0)
    flow = cf.flows.tabular(2, num_layers=2, hidden_features=8)
    still = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    with pytest.raises(NonFiniteLossError) as error:
        fit(flow, x, still, progress=False, seed=0, device="cpu", steps=100, batch_size=50, **settings)
    return str(error.value)


def rows() -> torch.Tensor:
    return torch.randn(500, 2, generator=torch.Generator().manual_seed(0))


def test_a_huge_learning_rate_is_named() -> None:
    said = message(rows(), learning_rate=1e9)
    assert "learning_rate=1e+09" in said
    assert "lower learning_rate" in said
    assert "look for outliers" not in said


@pytest.mark.parametrize("place", range(0, 500, 100))
def test_an_outlier_is_named_at_any_step(place: int) -> None:
    x = rows()
    x[place] = 1e25
    said = message(x)
    assert (
        "1 of 50 rows have a NaN or infinite loss; the first of them starts with [1e+25, 1e+25]; look for outliers"
        in said
    )
    assert "learning_rate" not in said


def test_rows_that_are_all_too_large_are_named_in_the_first_step() -> None:
    said = message(rows() * 1e25)
    assert "step 0" in said
    assert "look for outliers, or put a Standardise layer first" in said


@pytest.mark.parametrize("place", range(0, 500, 100))
def test_a_failure_that_is_read_late_names_the_rows_of_its_own_batch(place: int, monkeypatch, tmp_path) -> None:
    """A GPU is read every ``log_every`` steps. The failed step's rows are then not those of the newest batch."""
    x = rows()
    x[place] = 1e25
    settings = {"validate_every": 100, "log_every": 7}
    at_once = message(x, run=tmp_path / "at once", **settings)
    monkeypatch.setattr("cubicflow.training.loop.READ_AT_ONCE", ())
    late = message(x, run=tmp_path / "late", **settings)
    assert "the first of them starts with [1e+25, 1e+25]; look for outliers" in late
    assert late == at_once.replace("at once", "late")
    # The steps between the failure and its reading left no trace: the checkpoint is that of the failed step.
    first, second = (read_checkpoint(tmp_path / name / NEWEST) for name in ("at once", "late"))
    assert replace(first.numbers, elapsed=0) == replace(second.numbers, elapsed=0)
    assert all(torch.equal(value, second.tensors[name]) for name, value in first.tensors.items())


def test_no_checkpoint_follows_a_failed_step_unnoticed(monkeypatch, tmp_path) -> None:
    """A checkpoint is due before the loss is read."""
    x = rows()
    x[0] = 1e25
    monkeypatch.setattr("cubicflow.training.loop.READ_AT_ONCE", ())
    settings = {"validate_every": 100, "log_every": 100, "checkpoint_seconds": 0.0}
    said = message(x, run=tmp_path / "run", **settings)
    step = int(said.partition("the loss of step ")[2].partition(" ")[0])
    assert read_checkpoint(tmp_path / "run" / NEWEST).numbers.step == step + 1
