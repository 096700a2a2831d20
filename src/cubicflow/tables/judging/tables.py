"""Tables as matrices: numbers are unchanged, words are codes shared by all tables, missing values are NaN."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, amounts, family, floats, is_readable, plain_text, shown
from cubicflow.tables.table_error import TableError, listed, some

FEWEST_ROWS = 20  # rows; four for each of the five folds of the classifier
HELD = {"text": "text", "number": "numbers", "date": "dates", "bool": "true and false"}


@dataclass(frozen=True)
class Matched:
    """Tables with the same columns, as matrices.

    Attributes:
        names: the names of the D columns.
        is_word: (D,), true for words and booleans, whose codes have no order.
        tables: one (N, D) matrix per table, in the given order.
    """

    names: tuple[str, ...]
    is_word: NDArray[np.bool_]
    tables: tuple[Floats, ...]


def match(tables: Mapping[str, pa.Table], words: Collection[str] = ()) -> Matched:
    """Return the tables as matrices with the columns of the first table.

    The keys of ``tables`` name the tables in messages. ``words`` are columns of numbers that are names, such as
    postcodes.

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
        raise TableError(f"there is no column {some(unknown)} to read as words; there are {some(first.column_names)}")
    matrices = tuple(np.empty((len(table), len(first.column_names))) for table in tables.values())
    is_word = np.zeros(len(first.column_names), dtype=np.bool_)
    for j, column in enumerate(first.column_names):
        arrays = {name: table.column(column).combine_chunks() for name, table in tables.items()}
        kind = _common_family(column, arrays, as_words=column in words)
        is_word[j] = kind in ("text", "bool") or column in words
        numbers = _numbers(column, arrays, kind, is_word=bool(is_word[j]))
        for matrix, values in zip(matrices, numbers, strict=True):
            matrix[:, j] = values
    return Matched(tuple(first.column_names), is_word, matrices)


def check_columns(columns: Mapping[str, Collection[str]]) -> None:
    """Raise TableError if a table lacks a column of the first table or has an additional column.

    ``columns`` holds the names of the columns by the name of the table.
    """
    (first, expected), *others = columns.items()
    for name, found in others:
        missing = [column for column in expected if column not in found]
        new = [column for column in found if column not in expected]
        if missing or new:
            lacks = f"lacks column {some(missing)}" if missing else ""
            adds = f"has the extra column {some(new)}" if new else ""
            raise TableError(
                f"{name} {' and '.join(filter(None, (lacks, adds)))}, compared with {first}; leave these columns out",
                drop=[*missing, *new],
            )
    if not expected:
        raise TableError(f"{first}: no column is left to judge; drop fewer columns")


def _common_family(column: str, arrays: Mapping[str, pa.Array], *, as_words: bool) -> str:
    """Return the family of types that a column has in every table. A column without values fits every family.

    Raises:
        TableError: the families differ and ``as_words`` is false, or a type is not supported.
    """
    families = {name: family(array.type) for name, array in arrays.items() if array.null_count < len(array)}
    for name in families:
        if not is_readable(arrays[name].type):
            raise TableError(
                f"{name}: column {column!r} has the type {arrays[name].type}, which cannot be judged; leave it out",
                drop=[column],
            )
    kinds = list(dict.fromkeys(families.values()))
    if len(kinds) < 2:
        return kinds[0] if kinds else "text"
    if as_words:
        return "text"
    (first, kind), *others = families.items()
    other, found = next((name, found) for name, found in others if found != kind)
    examples = listed(shown(pc.unique(arrays[other].drop_null())[:3]))
    raise TableError(
        f"column {column!r} holds {HELD[kind]} in {first}, and {HELD[found]} such as {examples} in {other}; correct "
        "one of them, or read both as words",
        words=[column],
    )


def _numbers(column: str, arrays: Mapping[str, pa.Array], kind: str, *, is_word: bool) -> list[Floats]:
    """Return one array of numbers for each table, with NaN for missing values."""
    if kind == "text":
        texts = [plain_text(array) for array in arrays.values()]
        known = pc.unique(pa.concat_arrays(texts)).drop_null().sort()
        return [floats(pc.index_in(text, known, skip_nulls=True)) for text in texts]
    found = []
    for name, array in arrays.items():
        values = amounts(array) + 0.0  # -0.0 becomes 0.0
        if np.isinf(values).any():
            raise TableError(
                f"{name}: column {column!r} holds {int(np.isinf(values).sum())} infinite values; remove these rows"
            )
        found.append(values)
    if not is_word:
        return found
    known = np.unique(np.concatenate([values[~np.isnan(values)] for values in found]))
    return [np.where(np.isnan(values), np.nan, np.searchsorted(known, values)) for values in found]
