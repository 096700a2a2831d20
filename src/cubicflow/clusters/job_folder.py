"""The folder of a job: one part for each block, written atomically, and a description of the job.

    _job.json                the description of the job; a folder with another job is refused
    part-00000000.parquet    the rows of block 0; its footer holds the outcome of the block, the job's digest,
                             and the SHA-256 of the part
    _skipped.jsonl           skipped files and rows, one line each; written at the end
    _lock                    the lock of the process that runs the job; removed at the end

Readers of Parquet folders ignore names that begin with _. A part that exists is complete, and names its job. So an
interrupted job continues with the missing parts. An object store has no lock. There a worker compares the job in the
folder with its own before it writes a part, so a job that was replaced stops.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from cubicflow.clusters.blocks import Block, Outcome, Skipped, blocks_of
from cubicflow.clusters.stores import below, files_of, is_local, opened, readable_errors, shown
from cubicflow.owned_folder import OwnedFolder
from cubicflow.tables import TableError

JOB = "_job.json"
SKIPPED = "_skipped.jsonl"
LOCK = "_lock"
PART = re.compile(r"part-(\d{8,})\.parquet")
OUTCOME_KEY, JOB_KEY, SUM_KEY = b"cubicflow.block", b"cubicflow.job", b"cubicflow.sha256"  # keys of a part's footer
NO_SUM = b"0" * 64
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


class JobFolder(OwnedFolder):
    """The output folder of a job, on this machine or in an object store, with one Parquet file for each block.

    Attributes:
        place: the folder, a path or a URL.
        digest: the SHA-256 of the job's description, its identity. :meth:`begin` sets it; the workers get a copy.
    """

    what, marker, lock, shared = "job", JOB, LOCK, False

    def __init__(self, place: str, digest: str = "") -> None:
        super().__init__(files_of(place))
        self.place, self.digest = place, digest

    def owns(self, name: str) -> bool:
        return name == SKIPPED or PART.fullmatch(name) is not None

    def refusal(self, problem: str, **arguments: Any) -> TableError:
        return TableError(f"{shown(self.place)} {problem}", **arguments)

    def writing(self) -> AbstractContextManager[None]:
        return readable_errors(self.place)

    @contextmanager
    def begin(
        self, job: dict[str, Any], *, resume: bool = False, overwrite: bool = False
    ) -> Iterator[dict[int, Outcome]]:
        """Make and lock the folder, and write the description of the job, or resume the job in the folder.

        ``job`` has the keys of ``NAMED``. Yields the outcomes of the finished blocks, by block number.

        An existing folder raises TableError, with three exceptions: an empty folder; a folder with the same job if
        ``resume`` is set; a folder with any job if ``overwrite`` is set, which removes that job's files. A folder in
        which another process runs a job always raises TableError.
        """
        if is_local(self.place) and not (above := Path(opened(self.place)[1]).parent).is_dir():
            raise self.refusal(f"cannot be made: there is no folder {above}; make it first")
        with self.opened(resume=resume, overwrite=overwrite) as resumed:
            yield self._finished(job) if resumed else self._started(job)

    def read_job(self) -> dict[str, Any]:
        """Read the description of the job in the folder."""
        try:
            job = json.loads(self._description())
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
            job = None
        if not isinstance(job, dict):
            raise TableError(
                f"{below(shown(self.place), JOB)}: this is not the description of a job; choose another folder, or "
                "start the job again",
                overwrite=True,
            )
        return job

    def write(self, block: Block, rows: pa.Table, outcome: Outcome) -> None:
        """Write the part of a block, with the outcome in its footer."""
        sink = pa.BufferOutputStream()
        own = {OUTCOME_KEY: outcome.to_json().encode(), JOB_KEY: self.digest.encode(), SUM_KEY: NO_SUM}
        parquet.write_table(rows.replace_schema_metadata({**(rows.schema.metadata or {}), **own}), sink)
        content = _with_sum(sink.getvalue().to_pybytes(), NO_SUM)
        self._check_own()
        name = part_name(block.number)
        try:
            with readable_errors(below(self.place, name)):
                self.files.write(name, content)
        except TableError:  # a job that replaces this one removes its files, temporary ones included
            self._check_own()
            raise

    def finish(self, skipped: Sequence[Skipped]) -> None:
        """Write the list of skipped files and rows, and remove temporary files of killed workers."""
        self._check_own()
        self.tidy()
        if skipped:
            with self.writing():
                self.files.write(SKIPPED, skipped_lines(skipped))

    def _started(self, job: dict[str, Any]) -> dict[int, Outcome]:
        """Remove the job in the folder, if there is one, and write the description of this one."""
        content = json.dumps(job, indent=1).encode() + b"\n"
        self.clear()
        with self.writing():
            self.files.remove([JOB])
            if not self.files.create(JOB, content):
                raise self.refusal("holds a job that another process has just started; choose another folder")
        self.digest = hashlib.sha256(content).hexdigest()
        return {}

    def _finished(self, job: dict[str, Any]) -> dict[int, Outcome]:
        """Return the outcomes of the finished blocks. Raises TableError if the folder holds another job."""
        before, now = self.read_job(), json.loads(json.dumps(job))
        if different := [words for key, words in NAMED.items() if before.get(key) != now.get(key)]:
            raise self.refusal(
                f"holds another job, with {' and '.join(different)}; choose another name, or replace that job",
                overwrite=True,
            )
        self.digest = hashlib.sha256(self._description()).hexdigest()
        blocks = {part_name(block.number): block for block in blocks_of(job["rows"], job["block_rows"])}
        with self.writing():
            parts = [name for name in self.files.names() if PART.fullmatch(name)]
        return {outcome.block: outcome for outcome in (self._outcome(name, blocks.get(name)) for name in parts)}

    def _description(self) -> bytes:
        with readable_errors(below(self.place, JOB)), self.files.open(JOB) as file:
            return file.read()

    def _check_own(self) -> None:
        """Raise TableError if the folder has no job, or another one.

        On another machine the same path may be another folder. Another process may have replaced the job.
        """
        try:
            description = self._description()
        except TableError:
            raise self.refusal(
                f"has no job that a worker on {socket.gethostname()} can see; give a path that all workers share, or "
                "an object store"
            ) from None
        if hashlib.sha256(description).hexdigest() != self.digest:
            raise self.refusal("holds a job that replaced this one; choose another folder")

    def _outcome(self, name: str, block: Block | None) -> Outcome:
        """Return the outcome in the footer of a part. Raises TableError if the part is not that of this block.

        The whole part is read: Arrow accepts many damaged footers, and then finds other rows.
        """
        place = shown(below(self.place, name))
        if block is None:
            raise TableError(f"{place}: the job has no block with a part of this name; remove the file")
        with readable_errors(place), self.files.open(name) as file:
            content = file.read()
        try:
            footer = parquet.read_metadata(pa.BufferReader(content))
            about = footer.metadata or {}
            outcome, digest = Outcome.from_json(about[OUTCOME_KEY]), about[JOB_KEY].decode()
            is_intact = _with_sum(content, about[SUM_KEY]) == content
        except (pa.ArrowException, OSError, KeyError, ValueError):
            raise TableError(f"{place}: this file is not a part of this job; remove the file") from None
        problem = None
        if digest != self.digest:
            problem = "another job wrote this part"
        elif outcome.block != block.number:
            problem = f"this is the part of block {outcome.block}, not of block {block.number}"
        elif footer.num_rows != block.rows or outcome.rows != block.rows:
            problem = f"this part has {footer.num_rows:,} rows, and its block has {block.rows:,}"
        elif not is_intact:
            problem = "this part is damaged"
        if problem is not None:
            raise TableError(f"{place}: {problem}; remove the file")
        return outcome


def _with_sum(content: bytes, found: bytes) -> bytes:
    """Return a part with its SHA-256 in place of ``found``. The sum is that of the part with zeros in this place."""
    before, _, after = content.rpartition(found)
    return before + hashlib.sha256(before + NO_SUM + after).hexdigest().encode() + after


def skipped_lines(skipped: Sequence[Skipped]) -> bytes:
    """Return one line of JSON for each skipped file or range of rows."""
    return "".join(f"{json.dumps(asdict(each))}\n" for each in skipped).encode()
