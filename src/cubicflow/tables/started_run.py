"""A run that begins from the weights of another.

A finished run cannot be made longer: its learning rate has followed a cosine to 0, its optimiser is gone, and what it
kept are the weights that were best on validation, not the last ones. More steps are a new run, with a schedule of its
own, that begins from those weights. It must see the same rows in the same parts: a test row that the first run was
trained on would not be new to the second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.table_error import TableError
from cubicflow.training.loop import FitResult


class Start(NamedTuple):
    """The run that another began from, and its validation loss, where there is one."""

    run: Path
    validation_loss: float | None

    def worse(self, result: FitResult) -> str | None:
        """What is said where the weights have become worse."""
        now, before = result.validation_loss, self.validation_loss
        if now is None or before is None or now <= before:
            return None
        return (
            f"the weights this run began from were better on validation rows (loss {before:.4f}, now {now:.4f}); keep "
            f"{self.run}, or train longer"
        )


def check_start(start: str | Path | None, run: Path) -> None:
    """Refuse a start that is no run, or this very run, before anything is read."""
    if start is None:
        return
    if Path(start).resolve() == run.resolve():
        raise TableError(f"{run}: a run cannot begin from itself; choose another folder for the new run", "-o")
    if not (Path(start) / CONFIG_FILE).is_file():
        raise TableError(f"{start}: there is no run to begin from")


def begin_from(start: Path, fitted: FittedTable) -> Start:
    """Give a model the weights of a run. Refuses a run of another table, of another split, or of another model."""
    before = FittedTable.load(start)
    if before.fingerprint != fitted.fingerprint:
        raise TableError(
            f"{start}: that run was fitted to another table, {before.source}; begin from one of this table"
        )
    if before.split != fitted.split:
        raise TableError(
            f"{start}: that run split its rows in another way, so its training rows would be test rows of this one; "
            f"use the same split and the same seed, {before.split.seed},",
            "--seed",
        )
    then, now = ({key: about.get(key) for key in ("schema", "columns")} for about in map(_described, (before, fitted)))
    if then != now:
        raise TableError(f"{start}: that run took the columns for something else; use the same options for the table")
    if _shapes(before.flow) != _shapes(fitted.flow):
        raise TableError(f"{start}: that run has a model of other sizes; use the same settings of the model")
    fitted.flow.load_state_dict(before.flow.state_dict())
    return Start(start, _validation_loss(start))


def _described(fitted: FittedTable) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(json.dumps(fitted.to_json()))
    return about


def _shapes(flow: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in flow.state_dict().items()}


def _validation_loss(run: Path) -> float | None:
    try:
        result: Any = read_config(run).get("result")
    except FlowFileError:
        return None
    loss = result.get("validation_loss") if isinstance(result, dict) else None
    return float(loss) if isinstance(loss, int | float) else None
