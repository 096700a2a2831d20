"""A fitted table: the flow of a run folder together with the schema, the split and the file it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.flows import Flow, Mixture, load
from cubicflow.flows.packed_flows import pack, unpack
from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, read_config
from cubicflow.tables.arrow_types import Floats, without_views
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.likelihood import Mean, MeanOfRows, log_likelihood, placed
from cubicflow.tables.schema import Schema
from cubicflow.tables.source import PARTS, MemoryTable, Missing, Split, Table, pieces
from cubicflow.tables.table_error import TableError

SAMPLE_ROWS = 1 << 14
SECTION = "table"
SCORE_COLUMN = "log_likelihood"
Given = Mapping[str, object] | None


class Scores(NamedTuple):
    """Log likelihoods of the complete rows among ``read`` rows, their ``numbers``, and their ``parts`` of the split."""

    log_likelihood: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    numbers: NDArray[np.int64]
    parts: NDArray[np.int8]
    read: int


@dataclass(frozen=True)
class FittedTable:
    """The density of a table, as ``cubicflow fit`` leaves it in a run folder.

    It takes and gives Arrow: :meth:`score` works on one batch and keeps nothing, so any engine that hands out Arrow
    batches can call it. A copy that was pickled is on the CPU.

    Attributes:
        flow: the density of the encoded columns.
        schema: what each column is taken for.
        split: which rows of the fitted table were for training, validation and test.
        missing: what :meth:`score` does with rows that lack a value, unless told.
        source, fingerprint: the path and a hash of the file that was fitted.
        parts: the number of rows in each part of it.

    >>> import tempfile
    >>> from cubicflow.tables import FittedTable, fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = "".join(f"{i % 7},{i / 8}\\n" for i in range(100))
    ...     _ = Path(folder, "t.csv").write_text("day,hours\\n" + rows)
    ...     _ = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, progress=False)
    ...     fitted = FittedTable.load(f"{folder}/run")
    >>> fitted.score(pa.table({"day": [1, 2, None], "hours": [0.5, 9.0, 1.0]}), missing="drop").shape
    (3,)
    >>> fitted.sample(1000, seed=0).schema.names
    ['day', 'hours']
    """

    flow: Flow | Mixture
    schema: Schema
    split: Split
    missing: Missing
    source: str
    fingerprint: str
    parts: dict[str, int]

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None) -> FittedTable:
        """Read a run that was fitted to a table. Nothing in the folder is trusted, and nothing is executed."""
        about = read_config(Path(folder)).get(SECTION)
        path = Path(folder) / CONFIG_FILE
        if not isinstance(about, dict):
            raise FlowFileError(path, "the run was not fitted to a table with 'cubicflow fit'")
        return cls._from_json(path, about, lambda: load(folder, checked_device(device)))

    def to_json(self) -> dict[str, Any]:
        """What a run's config keeps of its table: all but the flow."""
        return {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "missing": str(self.missing),
            "split": self.split.to_json(),
            "parts": self.parts,
            "schema": self.schema.to_json(),
        }

    @classmethod
    def _from_json(cls, path: Path, about: dict[str, Any], flow: Callable[[], Flow | Mixture]) -> FittedTable:
        """``flow`` is called when all that stands in ``about`` has been checked."""
        try:
            schema, split = Schema.from_json(about.get("schema")), Split.from_json(about.get("split"))
            missing = Missing(about.get("missing"))  # type: ignore[arg-type] # refuses what is none
        except (TableError, RecursionError, OverflowError) as error:
            raise FlowFileError(path, f"its table is not described rightly: {error}") from None
        source, mark, parts = (about.get(key) for key in ("source", "fingerprint", "parts"))
        counted = isinstance(parts, dict) and sorted(parts) == sorted(PARTS)
        if not isinstance(source, str) or not isinstance(mark, str) or not counted:
            raise FlowFileError(path, "its table is not described rightly: source, fingerprint or parts is wrong")
        fitted = cls(flow(), schema, split, missing, source, mark, dict(parts))  # type: ignore[arg-type] # checked above
        encoder, shape = fitted.encoder, getattr(fitted.flow, "shape", None)
        if tuple(shape or ()) != (encoder.features,) or fitted.flow.context_features != encoder.context_features:
            raise FlowFileError(path, f"its table has {encoder.features} columns to model, its flow has another shape")
        return fitted

    def __reduce__(self) -> tuple[Callable[..., FittedTable], tuple[Any, ...]]:
        return _unpickled, (self.to_json(), pack(self.flow))

    @cached_property
    def encoder(self) -> TableEncoder:
        """Between rows of the table and the flow's matrices."""
        return TableEncoder(self.schema)

    # --- scores ---

    def score(self, batch: pa.RecordBatch | pa.Table, missing: Missing | str | None = None) -> NDArray[np.float64]:
        """The log likelihood of every row, in nats and in the data's own units; NaN for a row that lacks a value.

        Raises TableError where the columns are not those of the fitted table, where a value does not belong, and, with
        ``missing="error"``, where a row lacks a value. The column of weights is not needed.
        """
        rows = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        table = MemoryTable(rows.cast(without_views(rows.schema)), "the batch")
        scores = self.score_batches(table, missing)
        return np.concatenate([batch.column(0).to_numpy(zero_copy_only=False) for batch in scores])

    def score_table(
        self, table: Table, missing: Missing | str | None = None, *, weights: bool = False
    ) -> Iterator[Scores]:
        """The log likelihood of every complete row, piece by piece; with their weights, if asked for and there."""
        for (scores,) in score_all([self], table, missing or self.missing, weights=weights):
            yield scores

    def score_batches(self, table: Table, missing: Missing | str | None = None) -> Iterator[pa.RecordBatch]:
        """Batches with the one column ``log_likelihood``, a line for each row of the table, null where it lacks a
        value. The first has no rows, so that a table without rows has a score without rows."""
        yield _score_batch(np.empty(0))
        start = 0
        for scores in self.score_table(table, missing):
            values = np.full(scores.read, np.nan)
            values[scores.numbers - start] = scores.log_likelihood
            start += scores.read
            yield _score_batch(values)

    def is_source(self, table: Table) -> bool:
        """Whether this is the very table that the model was fitted to."""
        return table.fingerprint() == self.fingerprint

    # --- samples ---

    def sample(self, n: int, given: Given = None, temperature: float = 1.0, seed: int | None = None) -> pa.Table:
        """``n`` rows with the table's own columns, types and words. ``given`` holds a value for each context column."""
        return pa.Table.from_batches(self.sample_batches(n, given, temperature, seed))

    def sample_batches(
        self, n: int, given: Given = None, temperature: float = 1.0, seed: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same, piece by piece; one piece without rows where none are asked for."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise TableError(f"the number of samples should be a whole number, 0 or more, got {n!r}")
        encoder = self.encoder
        generator = torch.Generator(next(self.flow.parameters()).device)
        generator.manual_seed(seed) if seed is not None else generator.seed()
        how: dict[str, Any] = {"temperature": temperature, "generator": generator}
        for start in range(0, max(n, 1), SAMPLE_ROWS):
            count = min(SAMPLE_ROWS, n - start)
            context, columns = encoder.context_from(given or {}, count)
            if context is None:
                x = self.flow.sample(count, **how)
            else:
                x = self.flow.sample(1, placed(self.flow, context), **how)[0]
            yield encoder.decode(_finite(x), columns)

    def sample_like(self, rows: pa.RecordBatch, number: int, *, seed: int) -> pa.RecordBatch:
        """``number`` samples; of a conditional model one for each of the rows, given that row's context."""
        if not self.schema.context:
            return self.sample(number, seed=seed).combine_chunks().to_batches()[0]
        context = self.encoder.read_context(rows)
        x = self.flow.sample(1, placed(self.flow, context), seed=seed, batch_size=SAMPLE_ROWS)[0]
        return self.encoder.decode(_finite(x))

    def decimals(self, given: Given = None) -> dict[str, int]:
        """The digits after the point with which columns are written as text; none where more of them were given."""
        found = {column.name: column.decimals for column in self.schema.columns}
        written = {name: _digits_of(value) for name, value in (given or {}).items()}
        return {name: digits for name, digits in found.items() if digits is not None and written.get(name, 0) <= digits}


def score_all(
    models: Sequence[FittedTable], table: Table, missing: Missing | str, *, weights: bool = False
) -> Iterator[list[Scores]]:
    """The scores of each model, from one pass over the table. Refuses a table that does not fit all schemas."""
    weighing = models[0].schema.weights
    weights = weights and weighing is not None and weighing.name in table.types
    columns = [model.schema.check(table, weights=weights) for model in models]
    try:
        for piece in pieces(table, list(dict.fromkeys(chain.from_iterable(columns))), missing):
            found = []
            for model in models:
                numbers = model.encoder.read(piece.batch, weights=weights)
                scores = log_likelihood(model.flow, model.encoder, numbers)
                parts = model.split.parts_of(piece.numbers)
                found.append(Scores(scores, numbers.weights, piece.numbers, parts, piece.read))
            yield found
    except TableError as error:
        raise error.about(table.path) from None


class Comparison(NamedTuple):
    """Mean log likelihoods of both models and of the difference, second minus first; ``held_out`` if on test rows."""

    first: Mean
    second: Mean
    difference: Mean
    held_out: bool


def compare_runs(
    first: FittedTable, second: FittedTable, table: Table, missing: Missing | str | None = None
) -> Comparison:
    """The paired difference per row. Rows that either model was trained on, or chosen by, are left out."""
    _check_comparable(first, second)
    models = (first, second)
    missing = missing or (Missing.DROP if Missing.DROP in (first.missing, second.missing) else Missing.ERROR)
    trained = [i for i, model in enumerate(models) if model.is_source(table)]
    means = [MeanOfRows() for _ in range(3)]
    for scores in score_all(models, table, missing, weights=True):
        chosen = np.ones(len(scores[0].numbers), dtype=np.bool_)
        for i in trained:
            chosen &= scores[i].parts == PARTS.index("test")
        a, b = (found.log_likelihood[chosen] for found in scores)
        weights = None if scores[0].weights is None else scores[0].weights[chosen]
        for mean, values in zip(means, (a, b, b - a), strict=True):
            mean.see(values, weights)
    if not means[0].rows:
        raise TableError(f"{table.path}: no row is left to compare: all were used in training one of the models")
    first_mean, second_mean, difference = (mean.result() for mean in means)
    if not difference.weight:
        raise TableError(f"{table.path}: there is nothing to compare: every row that is left has weight 0")
    return Comparison(first_mean, second_mean, difference, bool(trained))


def _check_comparable(first: FittedTable, second: FittedTable) -> None:
    """Likelihoods compare only if they count the same things."""
    statements = [{column.name: column.describe() for column in model.schema.columns} for model in (first, second)]
    for name in [*statements[0], *(name for name in statements[1] if name not in statements[0])]:
        one, other = (found.get(name, "nothing: there is no such column") for found in statements)
        if one != other:
            raise TableError(
                f"the two likelihoods cannot be compared: column {name!r} counts {one} in the first model, {other} in "
                "the second"
            )


def checked_device(name: str | None) -> str | None:
    """A device that torch can use, or an error that says why not."""
    if name is None:
        return None
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise TableError(f"the device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return name


def _unpickled(about: dict[str, Any], packed: dict[str, Any]) -> FittedTable:
    return FittedTable._from_json(Path("the pickle"), about, lambda: unpack(packed))


def _finite(x: Tensor) -> Floats:
    """Samples for a table. A flow with finite weights, but far too large ones, can make others."""
    if not torch.isfinite(x).all():
        raise TableError("the samples of this run are not finite: its weights are too large to be used; fit it again")
    return x.double().cpu().numpy()


def _score_batch(values: NDArray[np.float64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, from_pandas=True)], names=[SCORE_COLUMN])


def _digits_of(value: object) -> int:
    try:
        exponent = Decimal(str(value)).normalize().as_tuple().exponent
    except InvalidOperation:
        return 0
    return max(-exponent, 0) if isinstance(exponent, int) else 0
