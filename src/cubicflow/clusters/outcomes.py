"""Outcomes of blocks and results of jobs: row counts, unseen values, skipped rows, or the error that stops the job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cubicflow.tables.table_error import TableError


class Skipped(NamedTuple):
    """Skipped rows of a file, from ``first`` to ``last`` inclusive, counted from 1, and the reason.

    For a skipped file, ``first`` and ``last`` are None.

    >>> str(Skipped("a.parquet", 7, 7, "column 'x' holds 'red'"))
    "a.parquet, row 7: column 'x' holds 'red'"
    """

    file: str
    first: int | None
    last: int | None
    reason: str

    def __str__(self) -> str:
        if self.first is None:
            return self.reason if self.reason.startswith(self.file) else f"{self.file}: {self.reason}"
        rows = f"row {self.first:,}" if self.first == self.last else f"rows {self.first:,} to {self.last:,}"
        return f"{self.file}, {rows}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


@dataclass
class Outcome:
    """The outcome of one block.

    Attributes:
        block: the block's number.
        rows: the number of rows written or scored.
        unseen: for each column, the number of cells with a value that no training row had.
        skipped: the skipped rows.
        notes: messages for the user; each is shown once per job.
        refused: the message that stops the job, and the option that helps; None if the block is done.
        found: the computed value, if the work writes no file.
    """

    block: int
    rows: int = 0
    unseen: dict[str, int] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: tuple[str, str | None] | None = None
    found: Any = None

    def check(self) -> Outcome:
        """Return this outcome. Raises TableError if the block was refused."""
        if self.refused is not None:
            raise TableError(*self.refused)
        return self

    def to_json(self) -> str:
        """Return the JSON text for the footer of the block's part, without ``refused`` and ``found``."""
        kept = asdict(self)
        del kept["refused"], kept["found"]
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """Read an outcome that :meth:`to_json` wrote. Raises ValueError, KeyError or TypeError for other text.

        >>> Outcome.from_json(Outcome(3, 10, skipped=[Skipped("a", 1, 1, "no")]).to_json()).skipped
        [Skipped(file='a', first=1, last=1, reason='no')]
        """
        try:
            kept = json.loads(text)
        except RecursionError:
            raise ValueError("the outcome is nested too deeply") from None
        found = cls(**{**kept, "skipped": [Skipped(*each) for each in kept["skipped"]]})
        counts = [found.block, found.rows, *dict(found.unseen).values()]
        counts += [row for each in found.skipped for row in (each.first, each.last) if row is not None]
        texts = [*found.notes, *(text for each in found.skipped for text in (each.file, each.reason))]
        if not all(type(count) is int for count in counts) or not all(isinstance(text, str) for text in texts):
            raise TypeError("an outcome holds whole numbers and texts")
        return found


@dataclass
class JobResult:
    """The result of a finished job.

    Attributes:
        rows: the number of rows drawn, or of rows scored or skipped.
        blocks: the number of blocks.
        before: the number of blocks that were done before this call.
        unseen: for each column, the number of cells with a value that no training row had.
        skipped: the skipped files and rows.
        notes: messages for the user.

    >>> result = JobResult.of([Outcome(1, 50, {"kind": 2}), Outcome(0, 100, {"kind": 1})], before=1)
    >>> result.rows, result.blocks, dict(result.unseen)
    (150, 2, {'kind': 3})
    """

    rows: int
    blocks: int
    before: int
    unseen: Counter[str]
    skipped: list[Skipped]
    notes: list[str]

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], before: int, skipped: Iterable[Skipped] = ()) -> JobResult:
        """Combine the outcomes of all blocks, in the order of their numbers."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.block)
        unseen: Counter[str] = Counter()
        for outcome in ordered:
            unseen.update(outcome.unseen)
        aside = [*skipped, *(each for outcome in ordered for each in outcome.skipped)]
        notes = list(dict.fromkeys(note for outcome in ordered for note in outcome.notes))
        return cls(sum(outcome.rows for outcome in ordered), len(ordered), before, unseen, aside, notes)
