"""The folder of a job: one part for each block, written atomically, and a description of the job.

    _job.json                the description of the job; a folder with another job is refused
    part-00000000.parquet    the rows of block 0; its footer holds the outcome of the block
    _skipped.jsonl           skipped files and rows, one line each; written at the end

Readers of Parquet folders ignore names that begin with _. A part that exists is complete. So an interrupted job
continues with the missing parts, and two processes that run the same job in one folder write the same bytes under the
same names.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from cubicflow.clusters.blocks import Block
from cubicflow.clusters.outcomes import JobResult, Outcome
from cubicflow.clusters.stores import (
    below,
    leftovers,
    make_folder,
    names_in,
    opened,
    read_whole,
    readable_errors,
    remove,
    shown,
    stamp,
    write_whole,
)
from cubicflow.tables.table_error import TableError, some

JOB = "_job.json"
SKIPPED = "_skipped.jsonl"
PART = re.compile(r"part-(\d{8,})\.parquet")
KEY = b"cubicflow.block"
NAMED = {
    "task": "another task",
    "run": "another run",
    "inputs": "other input files, or files that have changed",
    "rows": "another number of rows",
    "block_rows": "another size of blocks",
    "seed": "another seed",
    "options": "other options",
}


def part_name(block: int) -> str:
    """Return the file name of a block's part.

    >>> part_name(12)
    'part-00000012.parquet'
    """
    return f"part-{block:08d}.parquet"


@dataclass(frozen=True)
class JobFolder:
    """The output folder of a job, on this machine or in an object store, with one Parquet file for each block."""

    place: str

    def begin(self, job: dict[str, Any], *, resume: bool = False, overwrite: bool = False) -> dict[int, Outcome]:
        """Make the folder and write the description of the job, or resume the job in the folder.

        ``job`` has the keys of ``NAMED``. Returns the outcomes of the finished blocks, by block number.

        An existing folder raises TableError, with three exceptions: an empty folder; a folder with the same job if
        ``resume`` is set; a folder with any job if ``overwrite`` is set, which removes that job's files.
        """
        names = names_in(self.place)
        if names and overwrite:
            names = self._cleared(names)
        elif names and not resume:
            raise TableError(
                f"{shown(self.place)}: the folder exists already; choose another name, replace its job with "
                "--overwrite, or continue it",
                "--resume",
            )
        if not names:
            make_folder(self.place)
            write_whole(below(self.place, JOB), json.dumps(job, indent=1).encode() + b"\n")
            return {}
        if JOB not in names:
            raise TableError(f"{shown(self.place)}: no job was started in this folder; choose another name")
        self._check_same(job)
        known = [name for name in names if PART.fullmatch(name)]
        remove(self.place, leftovers(names, [JOB, SKIPPED, *map(part_name, range(self._blocks(job)))]))
        return {outcome.block: outcome for outcome in map(self._reported, known)}

    def read_job(self) -> dict[str, Any]:
        """Read the description of the job in the folder."""
        try:
            job = json.loads(read_whole(below(self.place, JOB)))
        except ValueError as error:
            if isinstance(error, TableError):
                raise
            job = None
        if not isinstance(job, dict):
            raise TableError(
                f"{below(shown(self.place), JOB)}: this is not the description of a job; choose another folder"
            )
        return job

    def check_visible(self) -> None:
        """Raise TableError if the folder has no job: on another machine the same path may be another folder."""
        try:
            stamp(below(self.place, JOB))
        except TableError:
            raise TableError(
                f"{shown(self.place)}: a worker on {socket.gethostname()} does not see this folder; give a path that "
                "all workers share, or an object store"
            ) from None

    def write(self, block: Block, rows: pa.Table, outcome: Outcome) -> None:
        """Write the part of a block, with the outcome in its footer."""
        sink = pa.BufferOutputStream()
        about = {**(rows.schema.metadata or {}), KEY: outcome.to_json().encode()}
        parquet.write_table(rows.replace_schema_metadata(about), sink)
        self.check_visible()
        write_whole(below(self.place, part_name(block.number)), sink.getvalue().to_pybytes())

    def finish(self, result: JobResult) -> None:
        """Write the list of skipped files and rows, and remove temporary files of killed workers."""
        names = names_in(self.place) or []
        remove(self.place, leftovers(names, [JOB, SKIPPED, *map(part_name, range(result.blocks))]))
        if result.skipped:
            write_skipped(below(self.place, SKIPPED), result)

    def _blocks(self, job: dict[str, Any]) -> int:
        return max(-(-int(job["rows"]) // int(job["block_rows"])), 1)

    def _cleared(self, names: Sequence[str]) -> list[str]:
        """Remove the files of a job, and return an empty list. Raises TableError if the folder holds other files."""
        parts = [name for name in names if PART.fullmatch(name)]
        ours = [name for name in names if name in (JOB, SKIPPED)]
        left = leftovers(list(names), [*parts, *ours, *(f"part-{n[6:14]}.parquet" for n in names if n[:6] == ".part-")])
        if others := [name for name in names if name not in {*parts, *ours, *left}]:
            raise TableError(
                f"{shown(self.place)}: the folder holds {some(others)}, which no job wrote; choose another name"
            )
        # Remove _job.json last: if the removal is interrupted, the folder can still be recognised as a job's.
        remove(self.place, [*left, *parts, *(name for name in ours if name != JOB)])
        remove(self.place, [name for name in ours if name == JOB])
        return []

    def _check_same(self, job: dict[str, Any]) -> None:
        before = self.read_job()
        now = json.loads(json.dumps(job))
        different = [words for key, words in NAMED.items() if before.get(key) != now.get(key)]
        if different:
            raise TableError(
                f"{shown(self.place)}: the folder holds another job, with {' and '.join(different)}; choose another "
                "name, or replace that job",
                "--overwrite",
            )

    def _reported(self, name: str) -> Outcome:
        place = below(self.place, name)
        store, path = opened(place)
        try:
            with readable_errors(place), store.open_input_file(path) as stream:
                about = parquet.read_metadata(stream).metadata or {}
            return Outcome.from_json(about[KEY])
        except (KeyError, TypeError, ValueError):
            raise TableError(f"{shown(place)}: this file is not a part of this job; remove the file") from None


def write_skipped(place: str, result: JobResult) -> None:
    """Write one line of JSON for each skipped file or range of rows."""
    lines: Iterable[str] = (json.dumps(each.to_json()) for each in result.skipped)
    write_whole(place, "".join(f"{line}\n" for line in lines).encode())
