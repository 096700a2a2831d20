"""Tables as matrices: numbers as they are, words as codes that all tables share, gaps as NaN."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, family, floats, is_readable, plain_text, shown
from cubicflow.tables.table_error import TableError, listed, some

FEWEST_ROWS = 20  # four for each of the five folds of a classifier
HELD = {"text": "text", "number": "numbers", "date": "dates", "bool": "true and false"}


@dataclass(frozen=True)
class Matched:
    """Tables with the same columns.

    Attributes:
        names: of the D columns.
        is_word: (D,), true for words and truth values, whose numbers are codes without an order.
        tables: (N, D) each, in the order in which they were given.
    """

    names: tuple[str, ...]
    is_word: NDArray[np.bool_]
    tables: tuple[Floats, ...]


def match(tables: Mapping[str, pa.Table], words: Collection[str] = ()) -> Matched:
    """The tables, which messages call by their keys, as matrices. The first says what the columns are.

    ``words`` are columns whose numbers are names, such as postcodes.

    >>> real = pa.table({"size": [1.5, 2.0] * 10, "kind": ["a", "b"] * 10})
    >>> sampled = pa.table({"kind": ["b", None] * 10, "size": [1, 2] * 10})
    >>> matched = match({"real": real, "sampled": sampled})
    >>> matched.names, matched.is_word.tolist(), matched.tables[1][:2].tolist()
    (('size', 'kind'), [False, True], [[1.0, 1.0], [2.0, nan]])
    """
    (_, first), *_ = tables.items()
    check_columns({name: table.column_names for name, table in tables.items()})
    for name, table in tables.items():
        if len(table) < FEWEST_ROWS:
            raise TableError(f"{name}: {len(table)} rows are too few to judge by; give {FEWEST_ROWS} or more")
    if unknown := [name for name in words if name not in first.column_names]:
        raise TableError(f"there is no column {some(unknown)} to take for words; there are {some(first.column_names)}")
    matrices = tuple(np.empty((len(table), len(first.column_names))) for table in tables.values())
    is_word = np.zeros(len(first.column_names), dtype=np.bool_)
    for j, column in enumerate(first.column_names):
        arrays = {name: table.column(column).combine_chunks() for name, table in tables.items()}
        kind = _common_family(column, arrays, wordy=column in words)
        is_word[j] = kind in ("text", "bool") or column in words
        numbers = _numbers(column, arrays, kind, is_word=bool(is_word[j]))
        for matrix, values in zip(matrices, numbers, strict=True):
            matrix[:, j] = values
    return Matched(tuple(first.column_names), is_word, matrices)


def check_columns(columns: Mapping[str, Collection[str]]) -> None:
    """Refuse tables, here by their names and columns, that do not all have the columns of the first."""
    (first, expected), *others = columns.items()
    for name, found in others:
        missing = [column for column in expected if column not in found]
        new = [column for column in found if column not in expected]
        if missing or new:
            lacks = f"lacks column {some(missing)}" if missing else ""
            adds = f"has column {some(new)} besides" if new else ""
            raise TableError(
                f"{name} {' and '.join(filter(None, (lacks, adds)))}, compared with {first}; leave such columns out",
                f"--drop {','.join([*missing, *new])}",
            )
    if not expected:
        raise TableError(f"{first}: no column is left to judge")


def _common_family(column: str, arrays: Mapping[str, pa.Array], *, wordy: bool) -> str:
    """The family of types that a column has in every table; a column without any value fits all."""
    families = {name: family(array.type) for name, array in arrays.items() if array.null_count < len(array)}
    for name in families:
        if not is_readable(arrays[name].type):
            raise TableError(f"{name}: column {column!r} is {arrays[name].type}; leave it out", f"--drop {column}")
    kinds = list(dict.fromkeys(families.values()))
    if len(kinds) < 2:
        return kinds[0] if kinds else "text"
    if wordy:
        return "text"
    (first, kind), *others = families.items()
    other, found = next((name, found) for name, found in others if found != kind)
    examples = listed(shown(pc.unique(arrays[other].drop_null())[:3]))
    raise TableError(
        f"column {column!r} holds {HELD[kind]} in {first}, and {HELD[found]} such as {examples} in {other}; mend one "
        "of them, or take both for words",
        f"--words {column}",
    )


def _numbers(column: str, arrays: Mapping[str, pa.Array], kind: str, *, is_word: bool) -> list[Floats]:
    """One array of numbers for each table, NaN for a gap."""
    if kind == "text":
        texts = [plain_text(array) for array in arrays.values()]
        known = pc.unique(pa.concat_arrays(texts)).drop_null().sort()
        return [floats(pc.index_in(text, known, skip_nulls=True)) for text in texts]
    found = []
    for name, array in arrays.items():
        if kind == "date":
            array = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        values = floats(array) + 0.0  # -0.0 is 0
        if np.isinf(values).any():
            raise TableError(f"{name}: column {column!r} holds {int(np.isinf(values).sum())} infinite values")
        found.append(values)
    if not is_word:
        return found
    known = np.unique(np.concatenate([values[~np.isnan(values)] for values in found]))
    return [np.where(np.isnan(values), np.nan, np.searchsorted(known, values)) for values in found]
