"""From a table to its schema: one pass for the facts, one over the training rows for their statistics.

Kinds, words and ranges are those of all rows; every number that is estimated (means, spreads, histograms, the order of
words) comes from the training rows alone.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import Floats, is_date, is_number, is_readable, read_text
from cubicflow.tables.doubts import near_identifiers, too_few_rows
from cubicflow.tables.kinds import NAMES, decide
from cubicflow.tables.kinds.column import Bounds, Column, Evidence, Facts, Role
from cubicflow.tables.kinds.constant import Constant, Dropped
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.maps import CodeCounts, Moments, Scaled
from cubicflow.tables.schema import Schema
from cubicflow.tables.source import PARTS, ROW_INDEX, Missing, Piece, RowSample, Split, Table, pieces, without_values
from cubicflow.tables.table_error import TableError, some
from cubicflow.tables.text.csv_head import INDEX
from cubicflow.tables.text.found_formats import detect_formats
from cubicflow.tables.time_order import OrderOfRows, columns_of, remark_on_order

TRANSFORMS = ("log", "asinh")
FEWEST_ROWS = 10  # one in ten is for validation, one for the test


@dataclass(frozen=True)
class TableOptions:
    """What is said about columns, by their names.

    Attributes:
        kinds: column -> real, stepped, integer, datetime, categorical, boolean or constant, where the guess is wrong;
            or circular:24, circular:-180:180, for numbers whose ends are one point.
        transforms: column -> log or asinh.
        bounds: column -> (low, high), hard limits; -inf or inf for none.
        context: columns to condition on.
        weights: the column of row weights.
        drop: columns to leave out.
        missing: what to do with rows that lack a value, a :class:`Missing` or its name; None for what suits the model.

    >>> TableOptions(kinds={"zip": "categorical"}, bounds={"share": (0, 1)}, missing="drop").missing
    <Missing.DROP: 'drop'>
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    weights: str | None = None
    drop: tuple[str, ...] = ()
    missing: Missing | str | None = None

    def __post_init__(self) -> None:
        if self.missing is not None:
            object.__setattr__(self, "missing", Missing(self.missing))
        for column, kind in list(self.kinds.items()):
            if kind.startswith("circular:"):
                self._take_circle(column, kind)
            elif kind not in NAMES:
                raise TableError(f"the type of {column!r} should be one of {', '.join(NAMES)}, got {kind!r}")
        for column, transform in self.transforms.items():
            if transform not in TRANSFORMS:
                raise TableError(f"the transform of {column!r} should be {' or '.join(TRANSFORMS)}, got {transform!r}")
        for column, (low, high) in self.bounds.items():
            if not low < high:
                raise TableError(f"the bounds of {column!r} should be low:high with low < high, got {low:g}:{high:g}")
        if both := sorted(self.transforms.keys() & self.bounds.keys()):
            raise TableError(f"{some(both)} has a transform and bounds; bounds bring their own transform, give one")
        for (first, ones), (second, others) in combinations(self._parts.items(), 2):
            if clash := sorted(set(ones) & set(others)):
                raise TableError(f"{some(clash)} is named in both {first} and {second}; a column has one part to play")

    def _take_circle(self, column: str, kind: str) -> None:
        """circular:24 is circular, with the bounds 0:24."""
        try:
            ends = [float(end) for end in kind.split(":")[1:]]
            low, high = ends if len(ends) > 1 else (0.0, *ends)
        except ValueError:
            raise TableError(
                f"the type of {column!r} should be circular:TURN or circular:LOW:HIGH, got {kind!r}"
            ) from None
        if not (low < high and math.isfinite(high - low)):
            raise TableError(f"a turn of {column!r} should be a number above 0, got {kind!r}")
        if column in self.bounds:
            raise TableError(f"{kind!r} brings the bounds of column {column!r}; leave its other bounds out")
        object.__setattr__(self, "kinds", {**self.kinds, column: "circular"})
        object.__setattr__(self, "bounds", {**self.bounds, column: (low, high)})

    @property
    def _parts(self) -> dict[str, tuple[str, ...]]:
        weights = () if self.weights is None else (self.weights,)
        return {"drop": self.drop, "context": self.context, "weights": weights}

    @property
    def named(self) -> set[str]:
        """Every column that an option names."""
        return {*self.kinds, *self.transforms, *self.bounds}.union(*self._parts.values())

    def check_names(self, names: Iterable[str]) -> None:
        """Every column named in an option is in the table."""
        known = list(names)
        unknown = sorted(self.named - set(known))
        if unknown:
            raise TableError(f"there is no column {some(unknown)}; the columns are {some(known, 20)}")


@dataclass(frozen=True)
class Inferred:
    """A schema, and what was seen on the way: ``rows`` that are used, ``dropped`` ones, how many values rows lack
    (``lost``), rows of each part, remarks, and warnings about what no fit can do well.

    ``table`` holds the same rows in a form that is fast to read again. ``gaps`` are the missing values of each column
    that has any, where rows that lack a value are kept; ``sample`` is one of training rows. ``split`` is that of this
    very table.
    """

    schema: Schema
    rows: int
    dropped: int
    lost: int
    parts: dict[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    table: Table
    gaps: dict[str, int]
    sample: pa.Table
    split: Split


def infer(
    table: Table,
    options: TableOptions | None = None,
    split: Split | None = None,
    spool: Path | None = None,
    *,
    atoms: bool = False,
) -> Inferred:
    """Find out what a table holds and how to turn it into numbers for a flow.

    Args:
        table: from :func:`open_table`.
        options: what the user says about its columns.
        split: which rows are for training.
        spool: the folder for a temporary copy of a large file of text, which is read once; by default the system's.
        atoms: whether single values of a real column may have probabilities of their own, so that none is remarked on.

    >>> import pyarrow as pa
    >>> from cubicflow.tables.source import MemoryTable
    >>> rows = MemoryTable(pa.table({"word": ["a", "b"] * 20, "size": [i / 4 for i in range(40)]}))
    >>> [column.kind for column in infer(rows).schema.columns]
    ['categorical', 'stepped']
    """
    try:
        return _infer(table, options or TableOptions(), split or Split(), spool, atoms)
    except TableError as error:
        raise error.about(table.path) from None


def _infer(table: Table, options: TableOptions, split: Split, spool: Path | None, atoms: bool) -> Inferred:
    options.check_names(table.names)
    if unknown := [name for name in columns_of(split) if name not in table.types]:
        raise TableError(f"there is no column {some(unknown)} to split by; the columns are {some(table.names, 20)}")
    missing = Missing(options.missing or Missing.ERROR)
    indices = [name for name in table.names if re.fullmatch(ROW_INDEX, name) and name not in options.named]
    options = replace(options, drop=(*options.drop, *indices))
    used = [name for name in table.names if name not in options.drop]
    _check_types({name: table.types[name] for name in used})
    kept = [*used, *(name for name in columns_of(split) if name not in used)]
    words = [name for name, kind in options.kinds.items() if kind == "categorical"]
    table = detect_formats(table.spooled(kept, spool), kept, words)
    types = {name: table.types[name] for name in used}
    _check_empty(types)
    split = split.settled(table)
    survey = _Survey(table, types, missing, split)
    columns = {}
    _check_gaps(survey.facts, options)
    for name, facts in survey.facts.items():
        role: Role = "weights" if name == options.weights else "context" if name in options.context else "model"
        columns[name] = decide(facts, options.kinds.get(name), role)
    _check_roles(columns, options)
    notes = [_said_of_index(name, is_text=table.is_text) for name in indices]
    notes += table.remarks
    notes += remark_on_order(survey.orders) if not columns_of(split) else []
    if survey.dropped:
        read = survey.rows + survey.dropped
        lacking = f"{survey.dropped} of {read} rows lack a value and are left out, {survey.lost} values in all"
        notes.append(f"{lacking}; the rows that are left need not be like them")
    gaps = {name: facts.gaps for name, facts in survey.facts.items() if facts.gaps}
    ordered = [c for c in columns.values() if c.role in ("model", "context") and c.is_ordered and c.name not in gaps]
    for name, column in columns.items():
        if column.role != "weights":
            asked = name in options.kinds, options.transforms.get(name), options.bounds.get(name), atoms
            sample = survey.sample if name not in gaps else _present(survey.sample, name)
            columns[name], said = column.settle(Evidence(survey.facts[name], sample, ordered, *asked))
            notes += said
    columns = _learn(pieces(table, used, missing), columns, options, split)
    every = [columns.get(name) or Dropped(name, "string", "dropped") for name in table.names]
    schema = Schema(tuple(every))
    return Inferred(
        schema=schema,
        rows=survey.rows,
        dropped=survey.dropped,
        lost=survey.lost,
        parts=survey.parts,
        notes=tuple(notes),
        warnings=(*near_identifiers(schema, survey.facts), *too_few_rows(schema, survey.parts["train"])),
        table=table,
        gaps=gaps,
        sample=survey.sample,
        split=split,
    )


def _said_of_index(name: str, *, is_text: bool) -> str:
    if is_text and name == INDEX:
        return "the first column has no name, so it is taken for a row index; it is left out"
    return f"{name!r} is a row index that pandas wrote with the table; it is left out"


def _check_gaps(facts: Mapping[str, Facts], options: TableOptions) -> None:
    """Gaps that no model can do anything with."""
    if options.weights is not None and facts[options.weights].gaps:
        raise TableError(
            f"column {options.weights!r} lacks {facts[options.weights].gaps} weights, and every row needs one; leave "
            "such rows out",
            "--missing drop",
        )
    if empty := [name for name, found in facts.items() if not found.rows]:
        raise TableError(f"column {some(empty)} has no values at all; leave it out", f"--drop {','.join(empty)}")


def _present(sample: pa.Table, name: str) -> pa.Table:
    """The rows of a sample in which a column has a value."""
    found = sample.filter(pc.invert(pc.is_null(sample.column(name), nan_is_null=True)))
    if not len(found):
        raise TableError(f"column {name!r} has no value in any training row; leave it out", f"--drop {name}")
    return found


class _Survey:
    """One pass over the complete rows of a table: facts of every column, rows of each part, a sample for training."""

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
                order.see(batch.column(name))
            chosen.see(batch.filter(pa.array(part == 0)), piece.numbers[part == 0])
        if self.dropped and not self.rows:
            deque(pieces(table, list(types), Missing.ERROR), maxlen=0)  # says which columns lack how many values
        if self.rows < FEWEST_ROWS or not all(self.parts[name] for name in split.parts):
            left = f" ({self.dropped} more lack a value)" if self.dropped else ""
            raise TableError(
                f"{self.rows} complete row{'' if self.rows == 1 else 's'}{left} cannot be parted into training, "
                f"validation and test rows; a fit needs at least {FEWEST_ROWS}, and hundreds to be of any use"
            )
        self.sample = chosen.table()


def _check_types(types: dict[str, pa.DataType]) -> None:
    if not types:
        raise TableError("every column is dropped; keep at least one")
    odd = [name for name, type in types.items() if not is_readable(type) and type != pa.null()]
    if odd:
        raise TableError(
            "columns must hold numbers, truth values, dates or text; these do not: "
            f"{', '.join(f'{name!r} ({types[name]})' for name in odd[:5])}. Leave them out",
            f"--drop {','.join(odd)}",
        )


def _check_empty(types: dict[str, pa.DataType]) -> None:
    empty = [name for name, type in types.items() if type == pa.null()]
    if len(empty) == len(types):
        raise TableError("the table has no rows with values in them")
    if empty:
        raise without_values(empty)


def _check_roles(columns: dict[str, Column], options: TableOptions) -> None:
    if options.weights is not None:
        column = columns[options.weights]
        if not is_number(column.arrow_type):
            raise TableError(f"weights should be numbers, column {column.name!r} holds {column.type}")
        if isinstance(column, Constant):
            raise TableError(f"the weights in column {column.name!r} are all {column.value!r}; drop the column instead")
        columns[column.name] = Real(column.name, column.type, "weights")
    fixed = [name for name in options.context if columns[name].role == "constant"]
    if fixed:
        raise TableError(f"context column {some(fixed)} never changes, so nothing can depend on it; drop it")
    if not any(column.role == "model" for column in columns.values()):
        raise TableError("nothing is left to model: every column is constant, context or weights")
    for what, asked in (("a transform is", options.transforms), ("bounds are", options.bounds)):
        for name in asked:
            if name not in columns or not columns[name].is_measured:
                kind = columns[name].kind if name in columns else "left out"
                raise TableError(f"{what} for numbers; column {name!r} is {kind}")


class _Tally:
    """Watches the training rows of a column go by; ``finish`` is the column with its map."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._unmapped = replace(column, map=None)  # nothing is far off before mean and std are known
        self.moments, self.counts = Moments(), CodeCounts()
        self.rows, self.weight = 0, 0.0

    def see(self, array: pa.Array, weights: Floats | None) -> None:
        missing = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any():
            array, weights = array.filter(pa.array(~missing)), None if weights is None else weights[~missing]
        self.rows += len(array)
        self.weight += float(len(array) if weights is None else weights.sum())
        y = self._unmapped.encode(array)
        shape = self.column.map
        if isinstance(shape, Scaled):
            self.moments.see(shape.shaped(shape.start + shape.unit * (y + 0.5 * self.column.counts_mass))[0], weights)
        elif self.column.counts_mass:
            self.counts.see(y.astype("int64"), weights)

    def finish(self, bounds: Bounds | None) -> Column:
        rows, weight = self.rows, self.weight
        if not weight:
            name = self.column.name
            raise TableError(f"column {name!r} has no value in any training row; leave it out", f"--drop {name}")
        if isinstance(self.column.map, Scaled):
            shape = replace(self.column.map, mean=self.moments.mean, std=self.moments.std or 1.0)
            return replace(self.column, map=shape)
        self.counts.counts *= rows / weight  # as many as there are rows, whatever the unit of the weights
        return self.column.learn(self.counts, rows, bounds)


def _learn(rows: Iterable[Piece], columns: dict[str, Column], options: TableOptions, split: Split) -> dict[str, Column]:
    """The columns with the maps that the training rows make."""
    tallies = {name: _Tally(column) for name, column in columns.items() if column.role != "weights"}
    count, weight, weighed = 0, 0.0, 0.0  # of the training rows, and the weight of the rows of all parts
    for piece in rows:
        train = split.parts_of(piece.numbers) == 0
        chosen = piece.batch.filter(pa.array(train))
        weights = None
        if options.weights is not None:
            weights = columns[options.weights].encode(piece.batch.column(options.weights))
            if (weights < 0).any():
                raise TableError(f"column {options.weights!r} holds negative weights, such as {weights.min():g}")
            weighed += float(weights.sum())
            weights = weights[train]
        count += len(chosen)
        weight += float(len(chosen) if weights is None else weights.sum())
        for name, tally in tallies.items():
            tally.see(chosen.column(name), weights)
    if not weight:
        message = f"the weights in column {options.weights!r} are all zero"
        if weighed:
            raise TableError(f"{message} in the rows for training; choose other rows by another seed", "--seed")
        raise TableError(message)
    learned = {name: tally.finish(options.bounds.get(name)) for name, tally in tallies.items()}
    if options.weights is not None:  # divided by their mean, weights neither raise nor lower the learning rate
        learned[options.weights] = replace(columns[options.weights], map=Scaled(std=weight / count))
    return learned
