"""From a table to its schema: one pass for the facts, one over the training rows for their statistics.

A file of text takes a pass more, for the types. Kinds, words and ranges are those of all rows; every number that is
estimated (means, spreads, histograms, the order of words) comes from the training rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import is_number, is_readable, is_text
from cubicflow.tables.column import LEVELLED, Column, Role
from cubicflow.tables.errors import TableError, some
from cubicflow.tables.facts import Facts
from cubicflow.tables.kinds import decide, near_numbers
from cubicflow.tables.options import TableOptions
from cubicflow.tables.order import is_numeric, ordered_levels
from cubicflow.tables.pieces import pieces
from cubicflow.tables.row_sample import RowSample
from cubicflow.tables.schema import Schema
from cubicflow.tables.shapes import choose_shape, spikes
from cubicflow.tables.source import ROW_INDEX, Table
from cubicflow.tables.splits import PARTS, Split
from cubicflow.tables.tally import Tally
from cubicflow.tables.text_types import read_text, types_of_text
from cubicflow.tables.values import to_numbers

FEWEST_ROWS = 10  # one in ten is for validation, one for the test


@dataclass(frozen=True)
class Inferred:
    """A schema, and what was seen on the way: complete ``rows``, ``dropped`` ones, rows of each part, remarks."""

    schema: Schema
    rows: int
    dropped: int
    parts: dict[str, int]
    notes: tuple[str, ...]


def infer(table: Table, options: TableOptions | None = None, split: Split | None = None) -> Inferred:
    """Find out what a table holds and how to turn it into numbers for a flow."""
    options, split = options or TableOptions(), split or Split()
    try:
        return _infer(table, options, split)
    except TableError as error:
        raise error.about(table.path) from None


def _infer(table: Table, options: TableOptions, split: Split) -> Inferred:
    options.check_names(table.names)
    indices = [name for name in table.names if re.fullmatch(ROW_INDEX, name) and name not in options.named]
    options = replace(options, drop=(*options.drop, *indices))
    types = _types(table, options)
    survey = _survey(table, types, options, split)
    columns = {
        name: decide(facts, options.kinds.get(name), _role(name, options)) for name, facts in survey.facts.items()
    }
    _check_roles(columns, options)
    sample = survey.sample.table()
    notes = [f"{name!r} is a row index that pandas wrote with the table; it is left out" for name in indices]
    notes += [f"{survey.dropped} rows lack a value and are left out"] if survey.dropped else []
    for name, column in columns.items():
        if column.kind == "categorical" and is_text(column.arrow_type) and name not in options.kinds:
            hint = near_numbers([str(level) for level in column.levels])
            notes += [f"{name!r} is taken for words: {hint}"] if hint else []
    numeric = [column for column in columns.values() if column.role in ("model", "context") and is_numeric(column)]
    for name, column in columns.items():
        if column.kind == "categorical" and column.role == "model":
            columns[name] = ordered_levels(column, numeric, sample)
        elif column.role != "weights" and (column.kind == "real" or name in options.transforms):
            facts, values = survey.facts[name], _floats(column, sample)
            shape, note = choose_shape(column, facts.smallest, facts.largest, options, values)
            columns[name] = replace(column, map=shape)
            notes += [note] if note else []
            notes += [warning] if column.kind == "real" and (warning := spikes(column, values)) else []
    tallies = _tally(table, types, columns, options, split)
    columns = {name: tally.finish(options.bounds.get(name)) for name, tally in tallies.items()}
    notes += [
        f"{name!r} is always {c.shown_value}; it is remembered" for name, c in columns.items() if c.kind == "constant"
    ]
    dropped = [Column(name, "dropped", "string", "dropped") for name in table.names if name not in columns]
    every = {**columns, **{column.name: column for column in dropped}}
    schema = Schema(tuple(every[name] for name in table.names))
    return Inferred(schema, survey.rows, survey.dropped, survey.parts, tuple(notes))


def _types(table: Table, options: TableOptions) -> dict[str, pa.DataType]:
    used = [name for name in table.names if name not in options.drop]
    if not used:
        raise TableError("every column is dropped; keep at least one")
    odd = {
        name: table.types[name]
        for name in used
        if not is_readable(table.types[name]) and table.types[name] != pa.null()
    }
    if odd:
        listed = ", ".join(f"{name!r} ({type})" for name, type in list(odd.items())[:5])
        raise TableError(
            f"columns must hold numbers, truth values, dates or text; these do not: {listed}. Leave them out",
            f"--drop {','.join(odd)}",
        )
    types = types_of_text(table, used) if table.is_text else {name: table.types[name] for name in used}
    empty = [name for name, type in types.items() if type == pa.null()]
    if len(empty) == len(types):
        raise TableError("the table has no rows with values in them")
    if empty:
        raise TableError(f"column {some(empty)} has no values at all; leave it out", f"--drop {','.join(empty)}")
    return types


@dataclass
class _Survey:
    facts: dict[str, Facts]
    sample: RowSample
    parts: dict[str, int]
    rows: int = 0
    dropped: int = 0


def _survey(table: Table, types: dict[str, pa.DataType], options: TableOptions, split: Split) -> _Survey:
    survey = _Survey({name: Facts(name, type) for name, type in types.items()}, RowSample(), dict.fromkeys(PARTS, 0))
    for batch, numbers, read in _typed(table, types, options):
        for name, facts in survey.facts.items():
            facts.see(batch.column(name))
        survey.rows += len(batch)
        survey.dropped += read - len(batch)
        part = split.parts_of(numbers)
        for i, name in enumerate(PARTS):
            survey.parts[name] += int((part == i).sum())
        survey.sample.see(batch.filter(pa.array(part == 0)), numbers[part == 0])
    if survey.rows < FEWEST_ROWS or not all(survey.parts[name] for name in split.parts):
        left = f" ({survey.dropped} more lack a value)" if survey.dropped else ""
        raise TableError(
            f"{survey.rows} complete row{'' if survey.rows == 1 else 's'}{left} cannot be parted into training, "
            f"validation and test rows; a fit needs at least {FEWEST_ROWS}, and hundreds to be of any use"
        )
    return survey


def _tally(
    table: Table, types: dict[str, pa.DataType], columns: dict[str, Column], options: TableOptions, split: Split
) -> dict[str, Tally]:
    tallies = {name: Tally(column) for name, column in columns.items()}
    weighed = 0.0  # of the rows of all parts
    for batch, numbers, _ in _typed(table, types, options):
        train = split.parts_of(numbers) == 0
        rows = batch.filter(pa.array(train))
        weights = _weights(columns, options, batch)
        chosen = None if weights is None else weights[train]
        weighed += 0.0 if weights is None else float(weights.sum())
        for name, tally in tallies.items():
            tally.see(rows.column(name), chosen)
    if options.weights is not None and not tallies[options.weights].weight:
        message = f"the weights in column {options.weights!r} are all zero"
        if weighed:
            raise TableError(f"{message} in the rows for training; draw others", "another --seed")
        raise TableError(message)
    return tallies


def _typed(
    table: Table, types: dict[str, pa.DataType], options: TableOptions
) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64], int]]:
    for piece in pieces(table, list(types), options.missing):
        batch = piece.batch
        if table.is_text:
            arrays = [
                read_text(batch.column(name), type) if type != pa.string() else batch.column(name)
                for name, type in types.items()
            ]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(types))
        yield batch, piece.numbers, piece.read


def _role(name: str, options: TableOptions) -> Role:
    if name == options.weights:
        return "weights"
    return "context" if name in options.context else "model"


def _check_roles(columns: dict[str, Column], options: TableOptions) -> None:
    if options.weights is not None:
        column = columns[options.weights]
        if not is_number(column.arrow_type):
            raise TableError(f"weights should be numbers, column {column.name!r} holds {column.type}")
        if column.kind == "constant":
            raise TableError(f"the weights in column {column.name!r} are all {column.value!r}; drop the column instead")
        columns[column.name] = Column(column.name, "real", column.type, "weights")
    fixed = [name for name in options.context if columns[name].kind == "constant"]
    if fixed:
        raise TableError(f"context column {some(fixed)} never changes, so nothing can depend on it; drop it")
    if not any(column.role == "model" for column in columns.values()):
        raise TableError("nothing is left to model: every column is constant, context or weights")
    for option, asked in (("--transform", options.transforms), ("--bounds", options.bounds)):
        for name in asked:
            kind = columns[name].kind if name in columns else "dropped"
            if kind in LEVELLED or kind in ("constant", "datetime", "dropped"):
                raise TableError(f"{option} is for numbers; column {name!r} is {kind}")


def _weights(columns: dict[str, Column], options: TableOptions, batch: pa.RecordBatch) -> NDArray[np.float64] | None:
    if options.weights is None:
        return None
    weights = to_numbers(columns[options.weights], batch.column(options.weights))
    if (weights < 0).any():
        raise TableError(f"column {options.weights!r} holds negative weights, such as {weights.min():g}")
    return weights


def _floats(column: Column, sample: pa.Table) -> NDArray[np.float64]:
    y = to_numbers(replace(column, map=None), sample.column(column.name).combine_chunks())
    return y if column.grid is None else column.grid.values(y.astype(np.int64))
