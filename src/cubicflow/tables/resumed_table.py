"""Whether a run that is to be resumed was begun with this very table, and in words how the two tables differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.fitted import SECTION
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some
from cubicflow.training.errors import RunFolderError

MOST_PHRASES = 4


def check_same_table(run: Path, now: dict[str, Any]) -> dict[str, Any] | None:
    """Refuse to resume a run that was begun with another table than ``now``, the table section of a run's config.

    The loop compares every setting, of the flow first. Another table changes the flow, so without this check the
    answer would speak of the flow's features. Returns that section of the run, None where there is none to compare.
    """
    if not (run / CONFIG_FILE).exists():
        return None
    try:
        before = dict(read_config(run)[SECTION])
        then, here = Schema.from_json(before["schema"]), Schema.from_json(now["schema"])
    except (FlowFileError, TableError, TypeError, ValueError, KeyError, RecursionError):
        return None  # a run of something else, or a damaged one: the loop says so
    source = before.get("source")
    if differences := _differences(then, here):
        what = "; ".join(differences)
    elif before.get("fingerprint") != now["fingerprint"]:
        what = "it has the same columns and other rows"
    else:
        return before
    raise RunFolderError(
        f"{run} was begun with another table, {source}: {what}. Resume it with the table it was begun with, or choose "
        "another folder"
    )


def _differences(then: Schema, here: Schema) -> list[str]:
    """Phrases: columns that are gone, columns that are new, columns that are of another kind or have another role."""
    old, new = ({column.name: column for column in schema.columns} for schema in (then, here))
    gone, added = [name for name in old if name not in new], [name for name in new if name not in old]
    phrases = [f"this one has no column {some(gone)}"] if gone else []
    phrases += [f"column {some(added)} was not there"] if added else []
    for name, column in old.items():
        if name in new and (column.kind, column.role) != (new[name].kind, new[name].role):
            phrases.append(f"column {name!r} was {_part(column)} and is {_part(new[name])}")
    if not phrases and list(old) != list(new):
        phrases.append("its columns are in another order")
    return phrases if len(phrases) <= MOST_PHRASES else [*phrases[:MOST_PHRASES], "and more"]


def _part(column: Any) -> str:
    return column.kind if column.role in ("model", "constant", "dropped") else f"{column.kind} ({column.role})"
