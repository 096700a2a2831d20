"""A fitted table: the model of a run folder together with the schema, the split and the file it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cubicflow.flows import Flow, Mixture
from cubicflow.flows.packed_flows import pack, unpack
from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, load_model, read_config
from cubicflow.tables.arrow_types import Floats, shown, without_views
from cubicflow.tables.asking.constraints import Constraint, constraints_from_json
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.columns_likelihood import draw_rows, log_probability
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.encoder import Numbers, TableEncoder
from cubicflow.tables.independent import IndependentColumns
from cubicflow.tables.likelihood import log_likelihood, placed
from cubicflow.tables.sampled_table import SAMPLE_ROWS, SampledTable
from cubicflow.tables.schema import Schema
from cubicflow.tables.source import PARTS, MemoryTable, Missing, Piece, Split, Table, pieces
from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.reading import DEFAULT_READING, Reading
from cubicflow.tables.usable_numbers import check_drawn, checked_scores
from cubicflow.training.unfinished import is_unfinished, load_unfinished

SECTION = "table"
MOST_SAID = 500  # characters of what is wrong with a stranger's file
SCORE_COLUMN = "log_likelihood"


class Scores(NamedTuple):
    """Log likelihoods of the complete rows among ``read`` rows, their ``numbers``, and their ``parts`` of the split;
    ``unseen`` counts the cells of each column that hold what no training row had."""

    log_likelihood: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    numbers: NDArray[np.int64]
    parts: NDArray[np.int8]
    read: int
    gaps: int  # values that the rows lack
    independent: NDArray[np.float64] | None  # scores by independent columns, where they were asked for and are known
    unseen: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class FittedTable(SampledTable):
    """The density of a table, as ``cubicflow fit`` leaves it in a run folder.

    It takes and gives Arrow: :meth:`score` works on one batch and keeps nothing, so any engine that hands out Arrow
    batches can call it. A copy that was pickled is on the CPU.

    Attributes:
        flow: the model: a flow of the encoded columns, or a :class:`~cubicflow.tables.columns_model.ColumnsModel`.
        schema: what each column is taken for.
        split: which rows of the fitted table were for training, validation and test.
        missing: what :meth:`score` does with rows that lack a value, unless told.
        source, fingerprint: the path and a hash of the file that was fitted.
        parts: the number of rows in each part of it.
        independent: the marginals of its columns; None in runs of older versions, and where ``cells`` have them.
        cells: what a model of columns sees of each column; None for a flow.
        reading: how its file was read, and so how others like it are, by ``open_table(path, fitted.reading)``.
        constraints: what every sample keeps.

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

    flow: Flow | Mixture | ColumnsModel
    schema: Schema
    split: Split
    missing: Missing
    source: str
    fingerprint: str
    parts: dict[str, int]
    independent: IndependentColumns | None = None
    cells: CellEncoder | None = None
    reading: Reading = DEFAULT_READING
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None, *, unfinished: bool = False) -> FittedTable:
        """Read a run that was fitted to a table. Nothing in the folder is trusted, and nothing is executed.

        ``unfinished`` takes the best weights of the newest checkpoint, on the CPU, where a run is still training."""
        config = read_config(Path(folder))
        about = config.get(SECTION)
        path = Path(folder) / CONFIG_FILE
        if not isinstance(about, dict):
            raise FlowFileError(path, "the run was not fitted to a table with 'cubicflow fit'")
        if unfinished and is_unfinished(Path(folder), config):
            return cls._from_json(path, about, lambda: load_unfinished(Path(folder), config).model)
        return cls._from_json(path, about, lambda: load_model(folder, checked_device(device), config))

    def to_json(self) -> dict[str, Any]:
        """What a run's config keeps of its table: all but the weights of its model."""
        about = {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "missing": str(self.missing),
            "split": self.split.to_json(),
            "parts": self.parts,
            "schema": self.schema.to_json(),
            **({} if self.independent is None else {"independent": self.independent.to_json()}),
            **({"reading": reading} if (reading := self.reading.to_json()) else {}),
            **({"constraints": [each.to_json() for each in self.constraints]} if self.constraints else {}),
        }
        return about if self.cells is None else {**about, "columns": self.cells.to_json()}

    @classmethod
    def _from_json(cls, path: Path, about: dict[str, Any], model: Callable[[], Any]) -> FittedTable:
        """``model`` is called when all that stands in ``about`` has been checked."""
        cells = None
        try:
            schema, split = Schema.from_json(about.get("schema")), Split.from_json(about.get("split"))
            reading = Reading.from_json(about.get("reading", {}))
            missing = Missing(about.get("missing"))  # type: ignore[arg-type] # refuses what is none
            known = "independent" in about
            independent = IndependentColumns.from_json(about["independent"], schema.model) if known else None
            constraints = constraints_from_json(about.get("constraints", []), schema)
            if "columns" in about:
                cells = CellEncoder.from_json(schema, about["columns"])
        except Exception as error:  # whatever it is: all of this came from a stranger's file
            raise FlowFileError(path, f"its table is not described rightly: {str(error)[:MOST_SAID]}") from None
        source, mark, parts = (about.get(key) for key in ("source", "fingerprint", "parts"))
        counted = isinstance(parts, dict) and sorted(parts) == sorted(PARTS)
        if not isinstance(source, str) or not isinstance(mark, str) or not counted:
            raise FlowFileError(path, "its table is not described rightly: source, fingerprint or parts is wrong")
        described = split, missing, source, mark, dict(parts), independent, cells, reading, constraints  # type: ignore[arg-type] # checked above
        fitted = cls(model(), schema, *described)
        if isinstance(fitted.flow, ColumnsModel):
            columns = {} if cells is None else cells.described
            if any(getattr(fitted.flow, name) != value for name, value in columns.items()) or not columns:
                raise FlowFileError(path, "its model is not one of the columns of its table")
            return fitted
        encoder, shape = fitted.encoder, getattr(fitted.flow, "shape", None)
        if tuple(shape or ()) != (encoder.features,) or fitted.flow.context_features != encoder.context_features:
            raise FlowFileError(path, f"its table has {encoder.features} columns to model, its flow has another shape")
        return fitted

    def __reduce__(self) -> tuple[Callable[..., FittedTable], tuple[Any, ...]]:
        return _unpickled, (self.to_json(), pack(self.flow))

    @cached_property
    def encoder(self) -> TableEncoder | CellEncoder:
        """Between rows of the table and the model's matrices."""
        return TableEncoder(self.schema) if self.cells is None else self.cells

    @property
    def needed_cells(self) -> CellEncoder:
        """What a model of columns sees."""
        if self.cells is None:
            raise TableError("this run is a flow, which has no cells")
        return self.cells

    def log_likelihood(self, numbers: Numbers, *, observed_only: bool = False) -> NDArray[np.float64]:
        """log p of rows that the encoder has read. ``observed_only`` counts the values that are there, given that they
        are there, and not whether they are."""
        return score_numbers(self.flow, self.encoder, numbers, observed_only=observed_only)

    # --- scores ---

    def score(
        self, batch: pa.RecordBatch | pa.Table, missing: Missing | str | None = None, *, observed_only: bool = False
    ) -> NDArray[np.float64]:
        """The log likelihood of every row, in nats and in the data's own units; NaN for a row that lacks a value, if
        such rows are dropped.

        Raises TableError where columns of the fitted table are missing and, with ``missing="error"``, where a row lacks
        a value. A flow also refuses a value that does not belong, such as an unseen word; a model of columns has a
        probability for it. The column of weights is not needed. ``observed_only`` gives the log likelihood of the
        values that are there, without that of the pattern of gaps.
        """
        rows = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        table = MemoryTable(rows.cast(without_views(rows.schema)), "the batch")
        scores = self.score_batches(table, missing, observed_only=observed_only)
        return np.concatenate([batch.column(0).to_numpy(zero_copy_only=False) for batch in scores])

    def score_table(
        self,
        table: Table,
        missing: Missing | str | None = None,
        *,
        weights: bool = False,
        independent: bool = False,
        observed_only: bool = False,
        unseen: str = "count",
    ) -> Iterator[Scores]:
        """The log likelihood of every row, piece by piece; with their weights, and with the scores of independent
        columns, if asked for and there. ``unseen="error"`` refuses values that no training row had, and names the
        first."""
        how: dict[str, Any] = {"weights": weights, "independent": independent}
        how |= {"observed_only": observed_only, "unseen": unseen}
        for (scores,) in score_all([self], table, missing or self.missing, **how):
            yield scores

    def score_batches(
        self,
        table: Table,
        missing: Missing | str | None = None,
        *,
        observed_only: bool = False,
        unseen: str = "count",
        counts: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches with the one column ``log_likelihood``, a line for each row of the table, null where it lacks a
        value. The first has no rows, so that a table without rows has a score without rows. ``counts`` is told how
        many cells of each column held what no training row had."""
        yield _score_batch(np.empty(0))
        start = 0
        for scores in self.score_table(table, missing, observed_only=observed_only, unseen=unseen):
            if counts is not None:
                counts.update(scores.unseen)
            values = np.full(scores.read, np.nan)
            values[scores.numbers - start] = scores.log_likelihood
            start += scores.read
            yield _score_batch(values)

    def is_source(self, table: Table) -> bool:
        """Whether this is the very table that the model was fitted to."""
        return table.fingerprint() == self.fingerprint

    # --- samples ---

    def log_independent(self, y: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """What independent columns score, of plain numbers (N, D); None where the marginals are not known."""
        if self.cells is not None:
            return self.cells.log_independent(y)
        return None if self.independent is None else self.independent.log_prob(y)

    def _draw(
        self,
        n: int,
        context: NDArray[np.float64] | None,
        generator: torch.Generator,
        temperature: float = 1.0,
        complete: bool = False,
    ) -> NDArray[np.float64]:
        """What the encoder decodes: rows of a flow, or plain numbers."""
        if isinstance(self.flow, ColumnsModel):
            return draw_rows(self.flow, self.needed_cells, n, context, generator, complete=complete)
        how: dict[str, Any] = {"temperature": temperature, "generator": generator}
        x = self.flow.sample(n, **how) if context is None else self.flow.sample(1, placed(self.flow, context), **how)[0]
        check_drawn(x)
        found: Floats = x.double().cpu().numpy()
        return found

    def sample_like(self, rows: pa.RecordBatch, number: int, *, seed: int) -> pa.RecordBatch:
        """``number`` samples; of a conditional model one for each of the rows, given that row's context."""
        if not self.schema.context:
            return self.sample(number, seed=seed).combine_chunks().to_batches()[0]
        context = self.encoder.read_context(rows)
        if isinstance(self.flow, ColumnsModel):
            generator = torch.Generator(next(self.flow.parameters()).device).manual_seed(seed)
            parts = [context[i : i + SAMPLE_ROWS] for i in range(0, len(context), SAMPLE_ROWS)]
            return self.encoder.decode(np.concatenate([self._draw(len(part), part, generator) for part in parts]))
        x = self.flow.sample(1, placed(self.flow, context), seed=seed, batch_size=SAMPLE_ROWS)[0]
        check_drawn(x)
        return self.encoder.decode(x.double().cpu().numpy())


def score_all(
    models: Sequence[FittedTable],
    table: Table,
    missing: Missing | str,
    *,
    weights: bool = False,
    independent: bool = False,
    observed_only: bool = False,
    unseen: str = "count",
) -> Iterator[list[Scores]]:
    """The scores of each model, from one pass over the table. Refuses a table that does not fit all schemas."""
    if unseen not in ("count", "error"):
        raise TableError(f"unseen should be count or error, got {unseen!r}")
    if Missing(missing) is Missing.MODEL and any(model.cells is None for model in models):
        raise TableError("a flow has no place for gaps; leave rows that lack a value out", "--missing drop")
    weighing = models[0].schema.weights
    weights = weights and weighing is not None and weighing.name in table.types
    columns = [model.schema.check(table, weights=weights) for model in models]
    try:
        for piece in pieces(table, list(dict.fromkeys(chain.from_iterable(columns))), missing):
            found = []
            for model in models:
                numbers = model.encoder.read(piece.batch, weights=weights)
                strange = {} if model.cells is None else model.cells.unseen(numbers.y)
                if strange and unseen == "error":
                    raise _first_unseen(model.needed_cells, numbers, piece)
                scores = model.log_likelihood(numbers, observed_only=observed_only)
                parts = model.split.parts_of(piece.numbers)
                alone = model.log_independent(numbers.y) if independent else None
                read = piece.read, piece.gaps
                found.append(Scores(scores, numbers.weights, piece.numbers, parts, *read, alone, strange))
            yield found
    except TableError as error:
        raise error.about(table.path) from None


def score_numbers(
    flow: Flow | Mixture | ColumnsModel,
    encoder: TableEncoder | CellEncoder,
    numbers: Numbers,
    *,
    observed_only: bool = False,
) -> NDArray[np.float64]:
    """log p of rows that the encoder of a model has read."""
    if isinstance(flow, ColumnsModel) and isinstance(encoder, CellEncoder):
        return checked_scores(log_probability(flow, encoder, numbers, observed_only=observed_only))
    if isinstance(flow, ColumnsModel) or isinstance(encoder, CellEncoder):
        raise TypeError("a model of columns goes with an encoder of cells, a flow with a TableEncoder")
    return checked_scores(log_likelihood(flow, encoder, numbers))


def _first_unseen(cells: CellEncoder, numbers: Numbers, piece: Piece) -> TableError:
    """The refusal of the first cell that holds what no training row had."""
    row, name = cells.first_unseen(numbers.y)
    value = shown(piece.batch.column(name)[row : row + 1])[0]
    return TableError(
        f"row {int(piece.numbers[row]) + 1} holds {value} in column {name!r}, which the fitted table did not; leave it "
        "out, or let it have the probability that is left for the unseen",
        "--unseen count",
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


def _score_batch(values: NDArray[np.float64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, from_pandas=True)], names=[SCORE_COLUMN])
