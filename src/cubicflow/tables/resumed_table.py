"""Check that a run is resumed with the table it was started with, and name the differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.fitted import SECTION
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some
from cubicflow.training.errors import RunFolderError

MOST_PHRASES = 4  # differences named in a message


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
