"""Fits that begin with an earlier run: a run that is resumed, and a run that starts from the weights of another.

A finished run cannot be extended: its learning rate has decayed to 0, its optimiser state is gone, and the stored
weights are the best on validation, not the last ones. To train longer, a new run with its own schedule starts from
those weights. The new run must have the same rows in the same parts. Otherwise a training row of the first run could be
a test row of the second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.fitted import SECTION, FittedTable
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some
from cubicflow.training import FitResult, RunFolderError

MOST_PHRASES = 4  # differences named in a message


# --- resumed runs ---


def model_of(run: Path) -> str | None:
    """Return the name of the model of a run; None if there is no run, or none of a table."""
    try:
        section = read_config(run).get(SECTION)
    except FlowFileError:
        return None
    return ("columns" if "columns" in section else "flow") if isinstance(section, dict) else None


def check_same_table(run: Path, now: dict[str, Any]) -> dict[str, Any] | None:
    """Raise RunFolderError if a run was started with another table than ``now``, the table section of a config.

    The training loop compares all settings, those of the flow first. Another table changes the flow, so without this
    check the error would mention the flow's features. Returns the table section of the run; None if there is nothing to
    compare.
    """
    if not (run / CONFIG_FILE).exists():
        return None
    try:
        before = dict(read_config(run)[SECTION])
        then, here = Schema.from_json(before["schema"]), Schema.from_json(now["schema"])
    except (FlowFileError, TableError, TypeError, ValueError, KeyError, RecursionError):
        return None  # not a run of a table, or a damaged run: the training loop reports it
    source = before.get("source")
    if differences := _differences(then, here):
        what = "; ".join(differences)
    elif before.get("fingerprint") != now["fingerprint"]:
        what = "it has the same columns but other rows"
    else:
        return before
    raise RunFolderError(
        f"{run} was started with another table, {source}: {what}. Resume it with the table it was started with, or "
        "choose another folder"
    )


def _differences(then: Schema, here: Schema) -> list[str]:
    """Return phrases that name missing columns, new columns, and columns with another kind or role."""
    old, new = ({column.name: column for column in schema.columns} for schema in (then, here))
    gone, added = [name for name in old if name not in new], [name for name in new if name not in old]
    phrases = [f"the new table has no column {some(gone)}"] if gone else []
    phrases += [f"column {some(added)} is new"] if added else []
    for name, column in old.items():
        if name in new and (column.kind, column.role) != (new[name].kind, new[name].role):
            phrases.append(f"column {name!r} was {_kind_and_role(column)} and is {_kind_and_role(new[name])}")
    if not phrases and list(old) != list(new):
        phrases.append("the columns are in another order")
    return phrases if len(phrases) <= MOST_PHRASES else [*phrases[:MOST_PHRASES], "and more"]


def _kind_and_role(column: Any) -> str:
    return column.kind if column.role in ("model", "constant", "dropped") else f"{column.kind} ({column.role})"


# --- runs that start from another run ---


class Start(NamedTuple):
    """The run that another run starts from, and its validation loss, if known."""

    run: Path
    validation_loss: float | None

    def worse(self, result: FitResult) -> str | None:
        """Return a warning if the weights have become worse on validation rows."""
        now, before = result.validation_loss, self.validation_loss
        if now is None or before is None or now <= before:
            return None
        return (
            f"the initial weights of this run were better on validation rows (loss {before:.4f}, now {now:.4f}); keep "
            f"{self.run}, or train longer"
        )


def check_start(start: str | Path | None, run: Path) -> None:
    """Raise TableError if ``start`` is not a run, or is this very run, before anything is read."""
    if start is None:
        return
    if Path(start).resolve() == run.resolve():
        raise TableError(f"{run}: a run cannot start from itself; choose another folder for the new run")
    if not (Path(start) / CONFIG_FILE).is_file():
        raise TableError(f"{start}: there is no run in this folder to start from; give the folder of a run")


def begin_from(start: Path, fitted: FittedTable) -> Start:
    """Load the weights of the run ``start`` into the model of ``fitted``.

    Raises TableError if the run has another table, another split or another model.
    """
    before = FittedTable.load(start)
    if before.fingerprint != fitted.fingerprint:
        raise TableError(
            f"{start}: that run was fitted to another table, {before.source}; start from a run of this table"
        )
    if before.split != fitted.split:
        raise TableError(
            f"{start}: that run has another split, so its training rows could be test rows of the new run; "
            "use the same split and the same seed",
            seed=before.split.seed,
        )
    then, now = (
        {key: section.get(key) for key in ("schema", "columns")} for section in map(_section, (before, fitted))
    )
    if then != now:
        raise TableError(
            f"{start}: that run interpreted the columns in another way; use the same options for the table"
        )
    if _shapes(before.flow) != _shapes(fitted.flow):
        raise TableError(f"{start}: the model of that run has other sizes; use the same settings of the model")
    fitted.flow.load_state_dict(before.flow.state_dict())
    return Start(start, _validation_loss(start))


def _section(fitted: FittedTable) -> dict[str, Any]:
    """Return the table section as it is after a round trip through JSON."""
    section: dict[str, Any] = json.loads(json.dumps(fitted.to_json()))
    return section


def _shapes(flow: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in flow.state_dict().items()}


def _validation_loss(run: Path) -> float | None:
    try:
        result: Any = read_config(run).get("result")
    except FlowFileError:
        return None
    loss = result.get("validation_loss") if isinstance(result, dict) else None
    return float(loss) if isinstance(loss, int | float) else None
