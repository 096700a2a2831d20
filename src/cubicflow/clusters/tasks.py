"""The tasks on a block: score its rows, draw its rows, or sum its scores.

A task is pickled for the workers with its model, so only the process that starts a job needs the run folder. A task
writes only the block's own part. The error of bad input is returned, not raised, because Ray would wrap the exception
in its own.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.clusters.blocks import Block, Outcome, Skipped, block_seed
from cubicflow.clusters.inputs import Inputs, read_segment
from cubicflow.clusters.job_folder import JobFolder
from cubicflow.clusters.stores import shown
from cubicflow.tables import SCORE_COLUMN, FittedTable, Scores, TableError
from cubicflow.tables.read import in_memory
from cubicflow.tables.run import ScoreSums

Positions = NDArray[np.int64]
ROW_ONE = re.compile(r"\brow 1\b")  # the row number in an error message about a batch of one row


@dataclass
class Task(ABC):
    """A function of blocks. A task is pickled with its model on the CPU; a worker moves the model to its device."""

    name: ClassVar[str]
    model: FittedTable

    def __call__(self, block: Block) -> Outcome | TableError:
        """Run a block. A TableError, from bad rows or from a disk, is returned."""
        try:
            return self.do(block)
        except TableError as error:
            return error.with_traceback(None)  # its frames would keep the model alive

    def to(self, device: str | None) -> None:
        """Move the model to a device."""
        if device is not None:
            self.model.flow.to(device)

    @abstractmethod
    def do(self, block: Block) -> Outcome: ...


@dataclass
class SampleTask(Task):
    """A task that draws the rows of a block with the block's own seed, and writes its part.

    ``how`` are keyword arguments of :meth:`~cubicflow.tables.FittedTable.sample`.
    """

    name: ClassVar[str] = "sample"
    folder: JobFolder
    seed: int
    how: Mapping[str, Any] = field(default_factory=dict)

    def do(self, block: Block) -> Outcome:
        notes: list[str] = []
        rows = block_rows(self.model, block, self.seed, say=notes.append, **self.how)
        outcome = Outcome(block.number, len(rows), notes=[] if block.number else notes)
        self.folder.write(block, rows, outcome)
        return outcome


def block_rows(model: FittedTable, block: Block, seed: int, **how: Any) -> pa.Table:
    """Draw the rows of a block. ``how`` are keyword arguments of ``sample_batches``."""
    batches = model.sample_batches(block.rows, seed=block_seed(seed, block.number), **how)
    return pa.Table.from_batches(batches).combine_chunks()


@dataclass
class RowsTask(Task):
    """A task on rows of files. A row that cannot be read or scored stops the job, or is skipped if ``skip`` is set.

    ``how`` are keyword arguments of :meth:`~cubicflow.tables.FittedTable.score_table`.
    """

    inputs: Inputs
    how: Mapping[str, Any]
    skip: bool

    def columns(self) -> list[str]:
        """Return the names of the columns to read."""
        return self.model.schema.check(self.inputs.empty(), weights=False)

    def read(self, block: Block) -> tuple[pa.Table, list[Skipped], Positions]:
        """Return the readable rows of a block, the skipped rows, and the positions (N,) of the readable rows."""
        columns = self.columns()
        read = [self.inputs.schema.empty_table().select(columns)]
        skipped: list[Skipped] = []
        readable = np.ones(block.rows, dtype=bool)
        for segment in self.inputs.segments(block):
            try:
                read.append(read_segment(segment, columns))
            except TableError as error:
                if not self.skip:
                    raise
                readable[segment.start - block.first :][: segment.last - segment.first] = False
                file = shown(segment.file.place)
                reason = error.advice.message.removeprefix(f"{file}: ")
                skipped.append(Skipped(file, segment.first + 1, segment.last, reason))
        return pa.concat_tables(read).combine_chunks(), skipped, readable.nonzero()[0]

    def scores(
        self, block: Block, rows: pa.Table, skipped: list[Skipped], positions: Positions
    ) -> Iterator[tuple[Positions, Scores]]:
        """Yield the scores of what :meth:`read` returned, and the position of each score in the block.

        If the rows raise TableError, both halves are tried, and so on down to single rows. A bad row is appended to
        ``skipped``. Without ``skip``, the first bad row raises TableError with its file and row number.
        """
        try:
            found = list(self.model.score_table(in_memory(rows, "the rows"), **self.how))
        except TableError as error:
            if len(rows) > 1:
                middle = len(rows) // 2
                for half in (slice(middle), slice(middle, None)):
                    yield from self.scores(block, rows[half], skipped, positions[half])
                return
            if not len(rows):
                raise
            file, number = self.inputs.row_name(block.first + int(positions[0]))
            reason = ROW_ONE.sub("it", error.advice.message.removeprefix("the rows: "), count=1)
            if not self.skip:
                raise TableError(f"{file}, row {number:,}: {reason}", **error.advice.arguments) from None
            skipped.append(Skipped(file, number, number, reason))
            return
        for scores in found:
            yield positions[scores.numbers], scores


@dataclass
class ScoreTask(RowsTask):
    """A task that scores the rows of a block and writes its part. The score of a skipped row is null."""

    name: ClassVar[str] = "score"
    folder: JobFolder
    keys: Sequence[str] = ()

    def columns(self) -> list[str]:
        return list(dict.fromkeys([*super().columns(), *self.keys]))

    def do(self, block: Block) -> Outcome:
        rows, skipped, positions = self.read(block)
        unseen, values = Counter[str](), np.full(block.rows, np.nan)
        for at, scores in self.scores(block, rows, skipped, positions):
            values[at] = scores.log_likelihood
            unseen.update(scores.unseen)
        columns = [_spread(rows.column(name), positions, block.rows) for name in self.keys]
        part = pa.table([*columns, pa.array(values, from_pandas=True)], names=[*self.keys, SCORE_COLUMN])
        outcome = Outcome(block.number, block.rows, dict(unseen), skipped)
        self.folder.write(block, part, outcome)
        return outcome


def _spread(column: pa.ChunkedArray, positions: Positions, rows: int) -> pa.ChunkedArray:
    """Return a column of ``rows`` values: the given values at ``positions``, null at all other positions."""
    if len(positions) == rows:
        return column
    order = np.full(rows, -1)
    order[positions] = np.arange(len(positions))
    return column.take(pa.array(order, mask=order < 0))


@dataclass
class EvaluateTask(RowsTask):
    """A task that sums the scores of a block's rows."""

    name: ClassVar[str] = "evaluate"

    def columns(self) -> list[str]:
        weighing = self.model.schema.weights
        table = self.inputs.empty()
        return self.model.schema.check(table, weights=weighing is not None and weighing.name in table.types)

    def do(self, block: Block) -> Outcome:
        rows, skipped, positions = self.read(block)
        sums = ScoreSums()
        for at, scores in self.scores(block, rows, skipped, positions):
            parts = self.model.split.parts_of(at + block.first)  # by the row's number in the whole table
            sums += ScoreSums.of(scores, parts)
        return Outcome(block.number, block.rows, dict(sums.unseen), skipped, sums=sums)
