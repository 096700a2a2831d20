"""Infer the schema of a table: one pass collects facts about all rows, another reads the rows as plain numbers.

Kinds, words and ranges come from all rows. Every estimated number (means, spreads, histograms) comes from the training
rows alone.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, is_date, is_number, is_readable, is_text, read_text, shown
from cubicflow.tables.kinds import KIND_NAMES, decide
from cubicflow.tables.kinds.column import Bounds, Column, Evidence, Role
from cubicflow.tables.kinds.facts import Facts
from cubicflow.tables.kinds.listed import Dropped
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.maps import Scaled
from cubicflow.tables.read.table import ROW_INDEX, Table
from cubicflow.tables.read.text.found_notations import detect_notations
from cubicflow.tables.read.text.reading import INDEX
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.plain_rows import load_numbers
from cubicflow.tables.schema.remarks import (
    OrderOfRows,
    huge_whole_numbers,
    identifies,
    left_out_note,
    near_identifiers,
    remark_on_order,
    several_turns,
    too_few_rows,
    unrepeated_numbers,
)
from cubicflow.tables.schema.split import PARTS, RowSample, Split
from cubicflow.tables.schema.usable_rows import Missing, pieces, without_values
from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.unit_scale import CodeCounts

TRANSFORMS = ("log", "asinh")
FEWEST_ROWS = 10  # one row in ten is for validation and one for the test


@dataclass(frozen=True)
class TableOptions:
    """The user's options for the columns of a table, by column name.

    Attributes:
        kinds: column -> real, stepped, integer, datetime, categorical, boolean or constant, to override the inferred
            kind; or circular:24, circular:-180:180, for numbers on a circle.
        transforms: column -> log or asinh.
        bounds: column -> (low, high), hard limits; -inf or inf for an open end.
        context: columns to condition on.
        weights: the column of row weights.
        drop: columns to leave out.
        keep: columns to model although they look like identifiers.
        missing: what to do with rows that lack a value, a :class:`Missing` or its name; None for the model's default.

    >>> TableOptions(kinds={"zip": "categorical"}, bounds={"share": (0, 1)}, missing="drop").missing
    <Missing.DROP: 'drop'>
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    weights: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    missing: Missing | str | None = None

    def __post_init__(self) -> None:
        if self.missing is not None:
            object.__setattr__(self, "missing", Missing(self.missing))
        for column, kind in list(self.kinds.items()):
            if kind.startswith("circular:"):
                self._take_circle(column, kind)
            elif kind not in KIND_NAMES:
                raise TableError(f"the type of {column!r} should be one of {', '.join(KIND_NAMES)}, got {kind!r}")
        for column, transform in self.transforms.items():
            if transform not in TRANSFORMS:
                raise TableError(f"the transform of {column!r} should be {' or '.join(TRANSFORMS)}, got {transform!r}")
        for column, (low, high) in self.bounds.items():
            if not low < high:
                raise TableError(f"the bounds of {column!r} should be low:high with low < high, got {low:g}:{high:g}")
        if both := sorted(self.transforms.keys() & self.bounds.keys()):
            raise TableError(
                f"{some(both)} has a transform and bounds; bounds imply a transform, so give one of the two"
            )
        if both := sorted(set(self.keep) & set(self.drop)):
            raise TableError(f"{some(both)} is named in both keep and drop; choose one of the two")
        for (first, ones), (second, others) in combinations(self._roles.items(), 2):
            if clash := sorted(set(ones) & set(others)):
                raise TableError(
                    f"{some(clash)} is named in both {first} and {second}; a column can have only one role"
                )

    def _take_circle(self, column: str, kind: str) -> None:
        """Turn the kind circular:24 into the kind circular and the bounds (0, 24)."""
        try:
            ends = [float(end) for end in kind.split(":")[1:]]
            low, high = ends if len(ends) > 1 else (0.0, *ends)
        except ValueError:
            raise TableError(
                f"the type of {column!r} should be circular:TURN or circular:LOW:HIGH, got {kind!r}"
            ) from None
        if not (low < high and math.isfinite(high - low)):
            raise TableError(f"the circle of {column!r} should have a finite length above 0, got {kind!r}")
        if column in self.bounds:
            raise TableError(f"{kind!r} already sets the bounds of column {column!r}; leave its other bounds out")
        object.__setattr__(self, "kinds", {**self.kinds, column: "circular"})
        object.__setattr__(self, "bounds", {**self.bounds, column: (low, high)})

    @property
    def _roles(self) -> dict[str, tuple[str, ...]]:
        weights = () if self.weights is None else (self.weights,)
        return {"drop": self.drop, "context": self.context, "weights": weights}

    @property
    def named(self) -> set[str]:
        """The names of all columns in the options."""
        return {*self.kinds, *self.transforms, *self.bounds, *self.keep}.union(*self._roles.values())

    def check_names(self, names: Iterable[str]) -> None:
        """Raise TableError if an option names a column that is not in the table."""
        known = list(names)
        unknown = sorted(self.named - set(known))
        if unknown:
            raise TableError(f"there is no column {some(unknown)}; the columns are {some(known, 20)}")


@dataclass(frozen=True)
class Inferred:
    """An inferred schema, with row counts, notes and warnings."""

    schema: Schema
    rows: int  # rows that are used
    dropped: int  # rows that are left out because they lack a value
    lost: int  # missing values in all rows
    parts: dict[str, int]  # used rows in each part of the split
    notes: tuple[str, ...]  # remarks for the user
    warnings: tuple[str, ...]  # properties of the table that no fit can handle well
    table: Table  # the same rows, in a form that is fast to read again
    gaps: dict[str, int]  # missing values of each column that has any, if rows that lack a value are kept
    sample: pa.Table  # a sample of training rows
    split: Split  # the split of this table
    numbers: Floats  # the used rows as plain numbers (N, D + C + weight), in a temporary file if they are many
    row_numbers: list[NDArray[np.int64]]  # the rows of each part of the split, as numbers of used rows


def infer(
    table: Table,
    options: TableOptions | None = None,
    split: Split | None = None,
    spool: Path | None = None,
    *,
    leave_out_identifiers: bool = False,
) -> Inferred:
    """Infer the schema of a table.

    Args:
        table: a table from :func:`open_table`.
        options: the user's options for its columns.
        split: which rows are for training.
        spool: the folder for a temporary copy of a large text file, so that the file is read once; by default the
            system's temporary folder.
        leave_out_identifiers: whether columns that only name their rows are left out, with a note, unless an option
            names them; if false, such text raises TableError, and such numbers are modelled.

    >>> import pyarrow as pa
    >>> from cubicflow.tables.read.table import in_memory
    >>> rows = in_memory(pa.table({"word": ["a", "b"] * 20, "size": [i / 4 for i in range(40)]}))
    >>> [column.kind for column in infer(rows).schema.columns]
    ['categorical', 'stepped']
    """
    try:
        return _infer(table, options or TableOptions(), split or Split(), spool, leave_out_identifiers)
    except TableError as error:
        raise error.about(table.name) from None


def _infer(
    table: Table, options: TableOptions, split: Split, spool: Path | None, leave_out_identifiers: bool
) -> Inferred:
    names = table.names
    options.check_names(names)
    if unknown := [name for name in split.columns if name not in table.types]:
        raise TableError(f"there is no column {some(unknown)} to split by; the columns are {some(table.names, 20)}")
    missing = Missing(options.missing or Missing.ERROR)
    indices = [name for name in table.names if re.fullmatch(ROW_INDEX, name) and name not in options.named]
    options = replace(options, drop=(*options.drop, *indices))
    used = [name for name in table.names if name not in options.drop]
    _check_types({name: table.types[name] for name in used})
    kept = [*used, *(name for name in split.columns if name not in used)]
    words = [name for name, kind in options.kinds.items() if kind == "categorical"]
    table = detect_notations(table.spooled(kept, spool), kept, words)
    types = {name: table.types[name] for name in used}
    _check_empty(types)
    split = split.resolved(table)
    identifiers: dict[str, str] = {}
    if leave_out_identifiers:
        survey = _Survey(table, types, Missing.MODEL, split)  # a row that lacks only an identifier is used
        named = {name: identifies(facts) for name, facts in survey.facts.items() if name not in options.named}
        identifiers = {name: why for name, why in named.items() if why is not None}
        used = [name for name in used if name not in identifiers]
        _check_left(used, identifiers)
        types = {name: types[name] for name in used}
        survey.facts = {name: survey.facts[name] for name in used}
    if not leave_out_identifiers or survey.lost:
        survey = _Survey(table, types, missing, split)
    columns = {}
    _check_gaps(survey.facts, options)
    for name, facts in survey.facts.items():
        role: Role = "weights" if name == options.weights else "context" if name in options.context else "model"
        kind = "categorical" if name in options.keep and is_text(facts.type) else None
        columns[name] = decide(facts, options.kinds.get(name, kind), role)
    _check_roles(columns, options, survey.facts)
    notes = [_index_note(name, is_text=table.is_text) for name in indices]
    notes += table.remarks
    notes += [left_out_note(identifiers)] if identifiers else []
    notes += remark_on_order(survey.orders) if not split.columns else []
    if survey.dropped:
        read = survey.rows + survey.dropped
        lacking = f"{survey.dropped} of {read} rows lack a value and are left out, {survey.lost} values in all"
        notes.append(f"{lacking}; the remaining rows may not be representative")
    gaps = {name: facts.gaps for name, facts in survey.facts.items() if facts.gaps}
    for name, column in columns.items():
        if column.role != "weights":
            requested = name in options.kinds, options.transforms.get(name), options.bounds.get(name)
            sample = survey.sample if name not in gaps else _present(survey.sample, name)
            columns[name], remarks = column.settle(Evidence(survey.facts[name], sample, *requested))
            notes += remarks
    prepared = Schema(tuple(columns.get(name) or Dropped(name, "string", "dropped") for name in names))
    numbers, row_numbers = load_numbers(table, prepared, split, missing, survey.rows, spool)
    schema = _learned(prepared, numbers, row_numbers[0], options)
    doubted = [c for c in schema.model if c.name not in options.named] if leave_out_identifiers else []
    return Inferred(
        schema=schema,
        rows=survey.rows,
        dropped=survey.dropped,
        lost=survey.lost,
        parts=survey.parts,
        notes=tuple(notes),
        warnings=(
            *near_identifiers(schema, survey.facts),
            *huge_whole_numbers(schema, survey.facts),
            *several_turns(schema, survey.facts),
            *too_few_rows(schema, survey.parts["train"]),
            *unrepeated_numbers(doubted, survey.facts),
        ),
        table=table,
        gaps=gaps,
        sample=survey.sample,
        split=split,
        numbers=numbers,
        row_numbers=row_numbers,
    )


def _index_note(name: str, *, is_text: bool) -> str:
    """Return the note on a row index that is left out."""
    if is_text and name == INDEX:
        return "the first column has no name, so it is taken for a row index; it is left out"
    return f"{name!r} is a row index that pandas wrote with the table; it is left out"


def _check_gaps(facts: Mapping[str, Facts], options: TableOptions) -> None:
    """Raise TableError for missing values that no model can handle: missing weights, and columns without values."""
    if options.weights is not None and facts[options.weights].gaps:
        raise TableError(
            f"column {options.weights!r} lacks {facts[options.weights].gaps} weights, and every row needs one; leave "
            "out rows without a weight",
            missing="drop",
        )
    if empty := [name for name, found in facts.items() if not found.rows]:
        raise TableError(f"column {some(empty)} has no values at all; leave it out", drop=empty)


def _present(sample: pa.Table, name: str) -> pa.Table:
    """Return the rows of a sample in which a column has a value."""
    found = sample.filter(pc.invert(pc.is_null(sample.column(name), nan_is_null=True)))
    if not len(found):
        raise TableError(f"column {name!r} has no value in any training row; leave it out", drop=[name])
    return found


class _Survey:
    """The results of one pass over the rows: facts about every column, the size of each part, a sample of training
    rows.
    """

    def __init__(self, table: Table, types: dict[str, pa.DataType], missing: Missing | str, split: Split) -> None:
        self.facts = {name: Facts(name, type) for name, type in types.items()}
        self.parts: dict[str, int] = dict.fromkeys(PARTS, 0)
        self.orders = {name: OrderOfRows() for name, type in types.items() if is_date(type)}
        self.rows = self.dropped = self.lost = 0
        chosen = RowSample()
        for piece in pieces(table, list(types), missing):
            columns = piece.batch.columns
            if table.is_text:
                columns = [read_text(column, type) for column, type in zip(columns, types.values(), strict=True)]
            for facts, column in zip(self.facts.values(), columns, strict=True):
                facts.see_some(column)
            self.rows += piece.batch.num_rows
            self.dropped += piece.read - piece.batch.num_rows
            self.lost += piece.gaps
            part = split.parts_of(piece.numbers)
            for i, name in enumerate(PARTS):
                self.parts[name] += int((part == i).sum())
            batch = pa.RecordBatch.from_arrays(columns, names=list(types))
            for name, order in self.orders.items():
                order.update(batch.column(name))
            chosen.update(batch.filter(pa.array(part == 0)), piece.numbers[part == 0])
        if self.dropped and not self.rows:
            # This pass raises TableError, with the number of missing values in each column.
            deque(pieces(table, list(types), Missing.ERROR), maxlen=0)
        if self.rows < FEWEST_ROWS or not all(self.parts[name] for name in split.parts):
            left = f" ({self.dropped} more lack a value)" if self.dropped else ""
            raise TableError(
                f"{self.rows} complete row{'' if self.rows == 1 else 's'}{left} cannot be split into training, "
                f"validation and test rows; a fit needs at least {FEWEST_ROWS} rows, and hundreds for a useful model"
            )
        self.sample = chosen.table()


def _check_types(types: dict[str, pa.DataType]) -> None:
    if not types:
        raise TableError("every column is dropped; keep at least one")
    odd = [name for name, type in types.items() if not is_readable(type) and type != pa.null()]
    if odd:
        raise TableError(
            "columns must hold numbers, booleans, dates or text; these do not: "
            f"{', '.join(f'{name!r} ({types[name]})' for name in odd[:5])}. Leave them out",
            drop=odd,
        )


def _check_empty(types: dict[str, pa.DataType]) -> None:
    empty = [name for name, type in types.items() if type == pa.null()]
    if len(empty) == len(types):
        raise TableError("the table has no rows with values; give a table with at least one value")
    if empty:
        raise without_values(empty)


def _check_left(used: list[str], identifiers: Mapping[str, str]) -> None:
    """Raise TableError if no column is left beside the identifiers."""
    if not used:
        counted = ", ".join(f"{name!r} ({why})" for name, why in identifiers.items())
        raise TableError(
            f"nothing is left to model: every column looks like an identifier, {counted}; to model one anyway, keep it",
            keep=[next(iter(identifiers))],
        )


def _check_roles(columns: dict[str, Column], options: TableOptions, facts: Mapping[str, Facts]) -> None:
    if options.weights is not None:
        column = columns[options.weights]
        if not is_number(column.arrow_type):
            raise TableError(
                f"weights should be numbers, but column {column.name!r} holds {column.type}; choose another column"
            )
        if column.role == "constant":
            value = shown(column.decode(np.zeros(1)))[0]
            raise TableError(f"the weights in column {column.name!r} are all {value}; drop the column instead")
        unit = 2.0 ** math.frexp(facts[column.name].largest)[1]  # a power of two, so no digit of a weight is lost
        columns[column.name] = Real(column.name, column.type, "weights", map=Scaled(std=unit))
    fixed = [name for name in options.context if columns[name].role == "constant"]
    if fixed:
        raise TableError(f"context column {some(fixed)} is constant, so nothing can depend on it; drop the column")
    if not any(column.role == "model" for column in columns.values()):
        raise TableError(
            "nothing is left to model: every column is constant, context, weights or an identifier; give at least one "
            "other column"
        )
    for what, requested in (("a transform applies", options.transforms), ("bounds apply", options.bounds)):
        for name in requested:
            if name not in columns or not columns[name].is_measured:
                kind = columns[name].kind if name in columns else "left out"
                raise TableError(f"{what} to numbers, but column {name!r} is {kind}; leave this option out")


def real_schema(names: Sequence[str], rows: Floats, weights: Floats, context: Collection[str] = ()) -> Schema:
    """Return a schema in which all columns are real, learned from rows (N, D) of numbers, however few.

    >>> real_schema(["size"], np.array([[1.0], [3.0]]), np.array([1.0, 3.0])).columns[0].map.mean
    2.5
    """
    columns = []
    for name, values in zip(names, rows.T, strict=True):
        column = Real(name, "double", "context" if name in context else "model")
        shape, _ = column.shape(values.min(), values.max(), values)
        columns.append(replace(column, map=_centred(shape, values, weights)))
    return Schema(tuple(columns))


def _learned(schema: Schema, numbers: Floats, train: NDArray[np.int64], options: TableOptions) -> Schema:
    """Return the schema with the maps that the training rows give. Weights (the last column of ``numbers``) are divided
    by their mean, so they do not change the learning rate."""
    learned: dict[str, Column] = {}
    weights = None
    if schema.weights is not None:
        weights, column = numbers[train, -1], schema.weights
        if not weights.any():
            message = f"the weights in column {column.name!r} are all zero"
            if numbers[:, -1].any():
                raise TableError(
                    f"{message} in the training rows; choose other training rows by another seed", seed=...
                )
            raise TableError(f"{message}; give some rows a positive weight")
        mean = float(weights.mean())
        learned[column.name] = replace(column, map=Scaled(std=column.needed_map.inverse(np.array(mean)).item()))
        numbers[:, -1] /= mean
    for i, column in enumerate([*schema.model, *schema.context]):
        y = numbers[train, i]
        present = ~np.isnan(y)
        chosen = None if weights is None else weights[present]
        learned[column.name] = _with_map(column, y[present], chosen, options.bounds.get(column.name))
    return Schema(tuple(learned.get(column.name, column) for column in schema.columns))


def _with_map(column: Column, y: Floats, weights: Floats | None, bounds: Bounds | None) -> Column:
    """Return a column with the map that the numbers of the training rows give."""
    if not len(y) or (weights is not None and not weights.any()):
        raise TableError(f"column {column.name!r} has no value in any training row; leave it out", drop=[column.name])
    if isinstance(column.map, Scaled):
        return replace(column, map=_centred(column.map, y + 0.5 * column.counts_mass, weights))
    if not column.has_steps:
        return column
    counts = CodeCounts()
    counts.update(y.astype(np.int64), weights)
    counts.counts *= len(y) / counts.counts.sum()  # as many as rows, whatever the unit of the weights
    return column.learn(counts, len(y), bounds)


def _centred(shape: Scaled, y: Floats, weights: Floats | None) -> Scaled:
    """Return the map with the mean and the standard deviation of numbers."""
    shaped = shape.shaped(shape.start + shape.unit * y)[0]
    mean = np.average(shaped, weights=weights)
    std = np.sqrt(np.average(np.square(shaped - mean), weights=weights))
    varies = y.min() < y.max()  # rounding of the mean can make the std of equal values positive
    return replace(shape, mean=float(mean), std=float(std) if varies and std else 1.0)
