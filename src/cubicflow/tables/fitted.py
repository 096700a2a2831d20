"""A fitted table: the model of a run folder, with its schema, its split and a record of the fitted file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cubicflow.advice import message_of
from cubicflow.arguments import whole_number
from cubicflow.flows import Flow, Mixture
from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, load_model, pack, read_config, unpack
from cubicflow.tables.arrow_types import Floats, shown, without_views
from cubicflow.tables.axes import Axis
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.maps import Scaled
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.model.flow import FlowEncoder, FlowOfNumbers
from cubicflow.tables.model.table_model import Encoder, OlderRunError, TableModel
from cubicflow.tables.query import sample
from cubicflow.tables.query.all_columns import Marginals, marginals, marginals_of_rows
from cubicflow.tables.query.answer import SIZE, Conditional, Estimates, probability_given
from cubicflow.tables.query.conditions import Given, context_values, read_conditions
from cubicflow.tables.query.constraints import Constraint, constraints_from_json, kept_rows
from cubicflow.tables.query.filled_table import impute_rows
from cubicflow.tables.query.pool import Pool
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import meeting
from cubicflow.tables.read.places import is_path, open_table
from cubicflow.tables.read.table import Table, in_memory
from cubicflow.tables.read.text.reading import DEFAULT_READING, Reading
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.plain_rows import plain_numbers, with_gaps
from cubicflow.tables.schema.split import PARTS, RowSample, Split
from cubicflow.tables.schema.usable_rows import Missing, Piece, pieces
from cubicflow.tables.table_error import TableError
from cubicflow.training.run_folder import is_unfinished, load_unfinished

SECTION = "table"
MODELS: dict[str, type[TableModel]] = {each.name: each for each in (ModelOfColumns, FlowOfNumbers)}
LONGEST_REASON = 500  # characters; the reason may quote an untrusted file
SCORE_COLUMN = "log_likelihood"
ROW = "\0row"  # name of a temporary column


class Scores(NamedTuple):
    """Scores of a piece of a table.

    Attributes:
        log_likelihood: the log likelihood of each scored row.
        weights: the weight of each scored row, or None.
        numbers: the row number of each scored row, from 0.
        parts: the part of the split of each scored row: 0 training, 1 validation, 2 test.
        read: the number of rows in the piece, including rows that are not scored.
        gaps: the number of missing values in the piece.
        independent: the log likelihood of each scored row under independent columns, if known.
        unseen: for each column, the number of values that no training row had.
    """

    log_likelihood: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    numbers: NDArray[np.int64]
    parts: NDArray[np.int8]
    read: int
    gaps: int
    independent: NDArray[np.float64] | None
    unseen: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class FittedTable:
    """The density of a table, as ``cubicflow fit`` saves it in a run folder.

    Inputs and outputs are Arrow. :meth:`score` takes one batch and keeps no state, so any engine that provides Arrow
    batches can call it. An unpickled copy is on the CPU.

    Attributes:
        model: the model of the rows, with the schema of the table.
        split: which rows of the fitted table were for training, validation and test.
        missing: what :meth:`score` does by default with rows that lack a value.
        source, fingerprint: the path and a hash of the fitted file.
        parts: the number of rows in each part of the fitted table.
        reading: how the fitted file was read; use ``open_table(path, fitted.reading)`` to read similar files.
        constraints: the constraints that every sample meets.

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

    model: TableModel
    split: Split = field(default_factory=Split)
    missing: Missing = Missing.DROP
    source: str = ""
    fingerprint: str = ""
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    reading: Reading = DEFAULT_READING
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None, *, unfinished: bool = False) -> FittedTable:
        """Read a run that was fitted to a table. Every field of the folder is checked, and none of it is executed.

        If ``unfinished`` is true and the run is still training, the best weights of its newest checkpoint are loaded,
        on the CPU.
        """
        config = read_config(Path(folder))
        section = config.get(SECTION)
        path = Path(folder) / CONFIG_FILE
        if not isinstance(section, dict):
            raise FlowFileError(
                path, "the run was not fitted to a table with 'cubicflow fit'; load its flow with cubicflow.load"
            )
        if unfinished and is_unfinished(Path(folder), config):
            return cls._from_json(path, section, lambda: load_unfinished(Path(folder), config))
        return cls._from_json(path, section, lambda: load_model(folder, checked_device(device), config))

    @classmethod
    def of_flow(cls, flow: Flow | Mixture, names: Sequence[str]) -> FittedTable:
        """Return the table of a flow of vectors without context: a column of real numbers for every feature."""
        type = "float" if next(flow.parameters()).dtype == torch.float32 else "double"
        columns = tuple(Real(name, type, map=Scaled()) for name in names)
        return cls(FlowOfNumbers(FlowEncoder(Schema(columns)), flow))

    def to_json(self) -> dict[str, Any]:
        """Return the table section of a run's config: everything but the weights of the model."""
        return {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "missing": str(self.missing),
            "split": self.split.to_json(),
            "parts": self.parts,
            "schema": self.schema.to_json(),
            **({"reading": reading} if (reading := self.reading.to_json()) else {}),
            **({"constraints": [each.to_json() for each in self.constraints]} if self.constraints else {}),
            **self.model.to_json(),
        }

    @classmethod
    def _from_json(cls, path: Path, section: dict[str, Any], load: Callable[[], Any]) -> FittedTable:
        """Return the fitted table of a table section. ``load`` returns the network; it is called after the section is
        checked.
        """
        kind = MODELS["columns" if "columns" in section else "flow"]
        try:
            schema, split = Schema.from_json(section.get("schema")), Split.from_json(section.get("split"))
            reading = Reading.from_json(section.get("reading", {}))
            missing = Missing(section.get("missing"))  # type: ignore[arg-type] # raises for any other value
            constraints = constraints_from_json(section.get("constraints", []), schema)
            encoder = kind.read_encoder(schema, section)
        except OlderRunError as error:
            raise FlowFileError(path, str(error)) from None
        except Exception as error:  # of any type: the file is untrusted
            raise FlowFileError(
                path, f"invalid table section: {str(error)[:LONGEST_REASON]}; restore the file, or fit again"
            ) from None
        source, fingerprint, parts = (section.get(key) for key in ("source", "fingerprint", "parts"))
        counted = isinstance(parts, dict) and sorted(parts) == sorted(PARTS)
        if not isinstance(source, str) or not isinstance(fingerprint, str) or not counted:
            raise FlowFileError(
                path, "invalid table section: source, fingerprint or parts is wrong; restore the file, or fit again"
            )
        try:
            model = kind(encoder, load())
        except TableError as error:
            raise FlowFileError(path, str(error)) from None
        return cls(model, split, missing, source, fingerprint, dict(parts), reading, constraints)  # type: ignore[arg-type] # checked above

    def __reduce__(self) -> tuple[Callable[..., FittedTable], tuple[Any, ...]]:
        return _unpickled, (self.to_json(), pack(self.model.network))

    @property
    def flow(self) -> Any:
        """The network of the model: a :class:`~cubicflow.Flow`, a :class:`~cubicflow.Mixture`, or a
        :class:`~cubicflow.tables.model.network.ColumnsModel`."""
        return self.model.network

    @property
    def schema(self) -> Schema:
        """The kind and the role of each column."""
        return self.model.schema

    @property
    def encoder(self) -> Encoder:
        """The conversion between rows of the table and the network's matrices."""
        return self.model.encoder

    def numbers(self, rows: pa.RecordBatch | pa.Table) -> Floats:
        """Return the plain numbers (N, D) of the modelled columns, in the table's order: NaN for a missing value, inf
        for a value that its column cannot hold.
        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        columns = self.schema.model
        return np.column_stack([plain_numbers(each, table.column(each.name).combine_chunks()) for each in columns])

    # --- scores ---

    def score(
        self, batch: pa.RecordBatch | pa.Table, missing: Missing | str | None = None, *, observed_only: bool = False
    ) -> NDArray[np.float64]:
        """Return the log likelihood of every row, (N,), in nats and in the data's own units.

        With ``missing="drop"``, a row that lacks a value scores NaN. ``observed_only`` scores the values that are
        present and ignores which values are missing. The column of weights is not needed.

        Raises TableError if the batch lacks a column of the fitted table and, with ``missing="error"``, if a row lacks
        a value. A flow also raises it for a value that the schema does not allow, such as an unseen word. A model of
        columns gives such a value a probability.
        """
        rows = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        found = np.full(len(rows), np.nan)
        table = in_memory(rows.cast(without_views(rows.schema)), "the batch")
        for scores in self.score_table(table, missing, observed_only=observed_only):
            found[scores.numbers] = scores.log_likelihood
        return found

    def score_table(
        self,
        table: Table,
        missing: Missing | str | None = None,
        *,
        weights: bool = False,
        observed_only: bool = False,
        unseen: str = "count",
    ) -> Iterator[Scores]:
        """Yield the log likelihoods of all rows, piece by piece.

        ``weights`` adds the weights, if the table has them. ``unseen="error"`` raises TableError for the first value
        that no training row had.
        """
        options: dict[str, Any] = {"weights": weights, "observed_only": observed_only, "unseen": unseen}
        return (scores for (scores,) in score_all([self], table, missing or self.missing, **options))

    def score_batches(
        self,
        table: Table,
        missing: Missing | str | None = None,
        *,
        observed_only: bool = False,
        unseen: str = "count",
        counts: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with the single column ``log_likelihood``, one value for each row of the table, null for a
        dropped row.

        The first batch is empty: it fixes the schema of a table without rows. ``counts``, if given, is updated with the
        number of values in each column that no training row had.
        """
        yield _score_batch(np.empty(0))
        start = 0
        for scores in self.score_table(table, missing, observed_only=observed_only, unseen=unseen):
            if counts is not None:
                counts.update(scores.unseen)
            values = np.full(scores.read, np.nan)
            values[scores.numbers - start] = scores.log_likelihood
            start += scores.read
            yield _score_batch(values)

    def conditionals(self, rows: pa.RecordBatch | pa.Table) -> Floats | None:
        """Return log p of every value of complete rows, (N, D) in the model's order: given the values before it, or for
        a flow, given all other values of its row. None for a flow with context, or with columns that count mass.
        """
        batch = rows if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()[0]
        return self.model.conditionals(self.encoder.read(batch))

    def encoding(self) -> dict[str, Any]:
        """Return the encoding of the columns as JSON, so that a program in any language can compute a network's inputs.

        The documentation page on export describes every field. The fields are copied from the run's config.json, in the
        order in which a program needs them.
        """
        columns = [column for column in self.schema.columns if column.role not in ("dropped", "weights")]
        return {
            "model": self.model.name,
            "features": self.model.order,
            "context": [column.name for column in self.schema.context],
            "columns": [{**column.to_json(), "counts_mass": column.counts_mass} for column in columns],
            **self.model.encoding(),
        }

    def is_source(self, table: Table) -> bool:
        """Return whether the model was fitted to this very table."""
        return table.fingerprint() == self.fingerprint

    def reopen(self, reading: Reading | None = None) -> Table:
        """Open the table that the model was fitted to. Raises TableError with the reason if it is not there, or is
        another one.
        """
        if not is_path(self.source):
            raise TableError("the fitted table came from a query, a URL or a pipe, which is not read again")
        if not Path(self.source).exists():
            raise TableError(f"the fitted table {self.source} no longer exists")
        try:
            table = open_table(self.source, reading or self.reading)
            is_source = self.is_source(table)
        except (ValueError, OSError) as error:
            raise TableError(f"the fitted table cannot be read: {message_of(error)}") from None
        if not is_source:
            raise TableError(f"the fitted table {self.source} has changed since the fit")
        return table

    def some_rows(self, table: Table, most: int) -> tuple[pa.RecordBatch, NDArray[np.int64]] | None:
        """Return at most ``most`` usable rows of a table, with the fitted columns, and their row numbers; None if no
        row is usable.

        The rows are chosen by a hash of their numbers.
        """
        chosen = RowSample(most)
        for piece in pieces(table, self.schema.check(table), self.missing):
            chosen.update(piece.batch.append_column(ROW, pa.array(piece.numbers)), piece.numbers)
        rows = chosen.table().combine_chunks()
        if not len(rows):
            return None
        numbers: NDArray[np.int64] = rows.column(ROW).to_numpy()
        return rows.drop_columns([ROW]).to_batches()[0], numbers

    # --- samples ---

    def sample(
        self,
        n: int,
        given: Given = None,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        complete: bool = False,
        constraints: Sequence[str] = (),
    ) -> pa.Table:
        """Draw ``n`` rows with the table's own columns, types and words.

        Args:
            n: the number of rows.
            given: a value for each context column. A model of columns also takes conditions on other columns,
                ``["cut=Ideal", "price>5000"]`` or a mapping.
            temperature: the factor of the standard deviation of a flow's base; a model of columns has no temperature.
            seed: the seed of the draws; by default a random one.
            complete: whether a model of columns draws rows without missing values.
            constraints: constraints that the rows meet, in addition to those of the fit.
        """
        options: dict[str, Any] = {"complete": complete, "constraints": constraints}
        return pa.Table.from_batches(self.sample_batches(n, given, temperature, seed, **options))

    def sample_batches(
        self,
        n: int,
        given: Given = None,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        complete: bool = False,
        constraints: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of :meth:`sample` in batches; a single empty batch for ``n = 0``.

        ``say`` is called with a line on the quality of rows under conditions.
        """
        n = whole_number("the number of samples", n, 0)
        if not self.model.takes_temperature and temperature != 1:
            raise TableError(
                f"{self.model.phrase} has no temperature, got {temperature:g}; leave the temperature out, or fit a "
                "flow",
                model="flow",
            )
        kept = sample.all_constraints(self, constraints)
        yield from sample.sample_batches(
            self, n, given, temperature, seed, complete=complete, constraints=kept, say=say
        )

    def sample_like(self, rows: pa.RecordBatch, number: int, *, seed: int) -> pa.RecordBatch:
        """Draw ``number`` rows. A conditional model draws one row for each of ``rows`` instead, given the context of
        that row. Such rows keep the sums of the fit; they may break its other constraints.
        """
        if not self.schema.context:
            return self.sample(number, seed=seed).combine_chunks().to_batches()[0]
        context, generator = self.encoder.read_context(rows), self.generator(seed)
        parts = [context[i : i + sample.SAMPLE_ROWS] for i in range(0, len(context), sample.SAMPLE_ROWS)]
        kept = self.constraints
        drawn = [sample.draw_rows(self.model, len(part), part, generator, constraints=kept) for part in parts]
        return self.encoder.decode(np.concatenate(drawn))

    def keeps_constraints(self, rows: pa.RecordBatch, context: pa.RecordBatch | None = None) -> NDArray[np.bool_]:
        """Return which rows keep the constraints of the fit. ``context`` has the context columns, if ``rows`` lack
        them."""
        if context is not None:
            for column in self.schema.context:
                rows = rows.append_column(column.name, context.column(column.name))
        return kept_rows(self.constraints, rows, self.schema)

    def usual_context(self) -> dict[str, object]:
        """Return a usual value for every context column: the first level, or a number near the median."""
        found: dict[str, object] = {}
        for column in self.schema.context:
            y = self.model.usual(column)
            middle = y[len(y) // 2 :][:1]
            value = with_gaps(column, np.floor(middle) if column.counts_mass else middle)[0].as_py()
            found[column.name] = column.labels[0] if column.is_list else value
        return found

    def decimals(self, given: Given = None) -> dict[str, int]:
        """Return the digits after the point with which columns are written as text.

        A context column whose given value has more digits is left out.
        """
        found = {column.name: column.decimals for column in self.schema.columns}
        values = context_values(read_conditions(given, self.schema), self.schema)
        written = {name: _digits_of(value) for name, value in values.items()}
        return {name: digits for name, digits in found.items() if digits is not None and written.get(name, 0) <= digits}

    def generator(self, seed: int | None) -> torch.Generator:
        """Return a generator on the model's device; a random one without a seed."""
        generator = torch.Generator(next(self.model.network.parameters()).device)
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return generator

    # --- questions ---

    def conditional(
        self, column: str, given: Given = None, *, effective_size: float = SIZE, seed: int = 0
    ) -> Conditional:
        """Return the distribution of one column given conditions on any columns.

        Args:
            column: the name of a modelled column.
            given: texts such as ``["cut=Ideal", "price>5000"]``, or a mapping such as
                ``{"cut": "Ideal", "price": (5000, None)}``.
            effective_size: the effective size of the weighted rows behind an answer that is not exact. Errors fall as
                one over its square root.
            seed: the seed of the weighted rows.
        """
        return Conditional(self.question(given), column, effective_size, self.generator(seed))

    def probability(self, given: Given, *, effective_size: float = SIZE, seed: int = 0) -> Estimates:
        """Return the probability that a row meets conditions, and its standard error. The arguments are as in
        :meth:`conditional`.

        With constraints of the fit, the probability is that of rows which keep the constraints. The error of an exact
        probability is 0. The probability is a density if a condition is a single real number.
        """
        return probability_given(self.question(given), effective_size, self.generator(seed))

    def marginals(
        self,
        given: Given,
        axes: Sequence[Axis],
        drawn: Pool | Floats,
        *,
        refine: bool = False,
        between: Callable[[], None] = lambda: None,
    ) -> Marginals:
        """Return the distributions of all columns given conditions, in the bins of their axes.

        ``drawn`` is a pool of a model of columns, or rows (N, D) of a flow for the context in ``given``. For a pool,
        ``refine`` and ``between`` are as in :func:`cubicflow.tables.query.all_columns.marginals`.
        """
        if isinstance(drawn, Pool):
            return marginals(self.question(given), axes, drawn, refine=refine, between=between)
        return marginals_of_rows(drawn, self.meets(drawn, given), axes)

    def meets(self, y: Floats, given: Given) -> NDArray[np.bool_]:
        """Return which rows (N, D) of plain numbers, drawn from a flow, meet conditions on modelled columns."""
        return meeting(y, given, self.schema)

    def impute(
        self, rows: pa.Table | pa.RecordBatch, *, draws: int = 1, most_likely: bool = False, seed: int | None = None
    ) -> list[pa.Table]:
        """Return the rows with their missing values filled, one table per draw.

        Missing values are drawn given all other values of their row. Other values do not change. The column ``filled``
        lists the filled columns of each row, separated by commas. ``most_likely`` fills a missing value with the most
        probable word or with the median instead of a draw.
        """
        return impute_rows(self, rows, draws=draws, most_likely=most_likely, seed=seed)

    def question(self, given: Given, constraints: Sequence[Constraint] | None = None, **how: bool) -> Question:
        """Return conditions, with the constraints of the fit or others, as a question to the model of columns.

        ``how`` are keyword arguments of :class:`~cubicflow.tables.query.question.Question`. Raises TableError for a
        flow, which answers no conditions.
        """
        if not self.model.has_laws:
            raise TableError(
                f"this run is {self.model.phrase}, so conditions can be values of its context columns only; for "
                "conditions on any column, fit a model of columns",
                model="columns",
            )
        kept = self.constraints if constraints is None else constraints
        return Question(self.model.laws(), given, kept, **how)


def _digits_of(value: object) -> int:
    try:
        exponent = Decimal(str(value)).normalize().as_tuple().exponent
    except InvalidOperation:
        return 0
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def score_all(
    models: Sequence[FittedTable],
    table: Table,
    missing: Missing | str,
    *,
    weights: bool = False,
    observed_only: bool = False,
    unseen: str = "count",
) -> Iterator[list[Scores]]:
    """Yield the scores of each model, from one pass over the table. Raises TableError if the table does not suit all
    schemas.
    """
    if unseen not in ("count", "error"):
        raise TableError(f"unseen should be count or error, got {unseen!r}")
    if Missing(missing) is Missing.MODEL and not all(one.model.takes_gaps for one in models):
        raise TableError(
            "a flow cannot model missing values; fit a model of columns, or leave out rows that lack a value",
            missing="drop",
        )
    weights_column = models[0].schema.weights
    weights = weights and weights_column is not None and weights_column.name in table.types
    columns = [model.schema.check(table, weights=weights) for model in models]
    try:
        for piece in pieces(table, list(dict.fromkeys(chain.from_iterable(columns))), missing):
            found = []
            for model in models:
                numbers = model.encoder.read(piece.batch, weights=weights)
                scored = model.model.score(numbers, observed_only=observed_only)
                counts: Mapping[str, int] = {}
                if scored.unseen is not None and scored.unseen.any():
                    if unseen == "error":
                        raise _first_unseen(model.model.order, scored.unseen, piece)
                    by_column = zip(model.model.order, scored.unseen.sum(axis=0).tolist(), strict=True)
                    counts = {name: count for name, count in by_column if count}
                about = piece.numbers, model.split.parts_of(piece.numbers), piece.read, piece.gaps
                found.append(Scores(scored.log_p, numbers.weights, *about, scored.baseline, counts))
            yield found
    except TableError as error:
        raise error.about(table.name) from None


def _first_unseen(order: Sequence[str], unseen: NDArray[np.bool_], piece: Piece) -> TableError:
    """Return the error for the first value that the fitted table did not have."""
    row, i = np.argwhere(unseen)[0].tolist()
    name = order[i]
    value = shown(piece.batch.column(name)[row : row + 1])[0]
    return TableError(
        f"row {int(piece.numbers[row]) + 1} holds {value} in column {name!r}, which the fitted table did not have; "
        "leave the row out, or score unseen values",
        unseen="count",
    )


def checked_device(name: str | None) -> str | None:
    """Return the name of a device if torch can use it. Raises TableError with the reason if not."""
    if name is None:
        return None
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise TableError(f"the device {name!r} cannot be used ({str(error).splitlines()[0]}); choose another") from None
    return name


def _unpickled(section: dict[str, Any], packed: dict[str, Any]) -> FittedTable:
    return FittedTable._from_json(Path("the pickle"), section, lambda: unpack(packed))


def _score_batch(values: NDArray[np.float64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, from_pandas=True)], names=[SCORE_COLUMN])
