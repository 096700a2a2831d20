"""What becomes of a block: how many rows, what was odd in them, what was set aside, or why the job stops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cubicflow.tables.table_error import TableError


class Skipped(NamedTuple):
    """Rows that were set aside, ``first`` to ``last`` of a file counted from 1, and why; both None for a whole file.

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
    """Of one block.

    Attributes:
        block: its number.
        rows: that it gave.
        unseen: cells of each column that held what no training row had.
        skipped: rows that were set aside.
        notes: what should be said once.
        refused: why the job stops, and the option that would help; None where the block is done.
        found: what the work computed, where it is not a file.
    """

    block: int
    rows: int = 0
    unseen: dict[str, int] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: tuple[str, str | None] | None = None
    found: Any = None

    def check(self) -> Outcome:
        """Return the outcome itself, or the error that it carries."""
        if self.refused is not None:
            raise TableError(*self.refused)
        return self

    def to_json(self) -> str:
        """What a part keeps of it."""
        kept = asdict(self)
        del kept["refused"], kept["found"]
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """
        >>> Outcome.from_json(Outcome(3, 10, skipped=[Skipped("a", 1, 1, "no")]).to_json()).skipped
        [Skipped(file='a', first=1, last=1, reason='no')]
        """
        kept = json.loads(text)
        return cls(**{**kept, "skipped": [Skipped(*each) for each in kept["skipped"]]})


@dataclass
class JobResult:
    """A finished job.

    Attributes:
        rows: that were scored or drawn, or set aside.
        blocks: of the job, and how many of them were there ``before``.
        unseen: cells of each column that held what no training row had.
        skipped: files and rows that were set aside.
        notes: what should be said.

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
        """Everything that the blocks report, in their order."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.block)
        unseen: Counter[str] = Counter()
        for outcome in ordered:
            unseen.update(outcome.unseen)
        aside = [*skipped, *(each for outcome in ordered for each in outcome.skipped)]
        notes = list(dict.fromkeys(note for outcome in ordered for note in outcome.notes))
        return cls(sum(outcome.rows for outcome in ordered), len(ordered), before, unseen, aside, notes)
