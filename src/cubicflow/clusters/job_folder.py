"""The folder of a job: one part for each block, written atomically, and a description of the job.

    _job.json                the description of the job; a folder with another job is refused
    part-00000000.parquet    the rows of block 0; its footer holds the outcome of the block, and the job's digest
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from cubicflow.clusters.blocks import Block, blocks_of
from cubicflow.clusters.outcomes import JobResult, Outcome
from cubicflow.clusters.stores import (
    below,
    create_whole,
    is_local,
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
from cubicflow.files import InUseError, NotPlainError, take_lock
from cubicflow.tables.table_error import TableError, some

JOB = "_job.json"
SKIPPED = "_skipped.jsonl"
LOCK = "_lock"
PART = re.compile(r"part-(\d{8,})\.parquet")
TEMPORARY = re.compile(rf"\.(?:{re.escape(JOB)}|{re.escape(SKIPPED)}|{PART.pattern})\.[0-9a-f]{{16}}")
OUTCOME_KEY, JOB_KEY = b"cubicflow.block", b"cubicflow.job"  # keys of a part's footer
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


@dataclass
class JobFolder:
    """The output folder of a job, on this machine or in an object store, with one Parquet file for each block.

    Attributes:
        place: the folder, a path or a URL.
        digest: the SHA-256 of the job's description. :meth:`begin` sets it; the workers get a copy.
    """

    place: str
    digest: str = ""

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
        if not names_in(self.place):
            make_folder(self.place)
        with self._locked():
            yield self._begun(job, resume, overwrite)

    def read_job(self) -> dict[str, Any]:
        """Read the description of the job in the folder."""
        try:
            job = json.loads(read_whole(below(self.place, JOB)))
        except (ValueError, RecursionError) as error:
            if isinstance(error, TableError):
                raise
            job = None
        if not isinstance(job, dict):
            raise TableError(
                f"{below(shown(self.place), JOB)}: this is not the description of a job; choose another folder, or "
                "start the job again with",
                "--overwrite",
            )
        return job

    def write(self, block: Block, rows: pa.Table, outcome: Outcome) -> None:
        """Write the part of a block, with the outcome in its footer."""
        sink = pa.BufferOutputStream()
        own = {OUTCOME_KEY: outcome.to_json().encode(), JOB_KEY: self.digest.encode()}
        parquet.write_table(rows.replace_schema_metadata({**(rows.schema.metadata or {}), **own}), sink)
        self._check_own()
        try:
            write_whole(below(self.place, part_name(block.number)), sink.getvalue().to_pybytes())
        except TableError:  # a job that replaces this one removes its files, temporary ones included
            if not self._is_own():
                raise self._replaced() from None
            raise

    def finish(self, result: JobResult) -> None:
        """Write the list of skipped files and rows, and remove temporary files of killed workers."""
        self._check_own()
        remove(self.place, [name for name in names_in(self.place) or [] if TEMPORARY.fullmatch(name)])
        if result.skipped:
            write_skipped(below(self.place, SKIPPED), result)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder for this process, if it is on this machine's own file system."""
        if not is_local(self.place):
            yield
            return
        path = Path(opened(self.place)[1], LOCK)
        with readable_errors(self.place):
            try:
                file = take_lock(path)
            except InUseError as error:
                raise TableError(
                    f"{shown(self.place)}: the folder is in use by {error}; wait for it, or choose another folder"
                ) from None
            except NotPlainError as error:
                raise TableError(str(error)) from None
        with file:
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def _begun(self, job: dict[str, Any], resume: bool, overwrite: bool) -> dict[int, Outcome]:
        names = [name for name in names_in(self.place) or [] if name != LOCK]
        temporary = [name for name in names if TEMPORARY.fullmatch(name)]
        kept = [name for name in names if name not in temporary]
        if kept and overwrite:
            self._clear(kept)
            kept = []
        elif kept and not resume:
            raise TableError(
                f"{shown(self.place)}: the folder exists already; choose another name, replace its job with "
                "--overwrite, or continue it",
                "--resume",
            )
        elif kept and JOB not in kept:
            raise TableError(f"{shown(self.place)}: no job was started in this folder; choose another name")
        if kept:
            self._check_same(job)
        remove(self.place, temporary)
        if not kept:
            content = json.dumps(job, indent=1).encode() + b"\n"
            if not create_whole(below(self.place, JOB), content):
                raise TableError(
                    f"{shown(self.place)}: another process has just started a job in this folder; choose another folder"
                )
            self.digest = hashlib.sha256(content).hexdigest()
            return {}
        self.digest = self._digest()
        blocks = {part_name(block.number): block for block in blocks_of(job["rows"], job["block_rows"])}
        return {
            outcome.block: outcome
            for outcome in (self._outcome(name, blocks.get(name)) for name in kept if PART.fullmatch(name))
        }

    def _clear(self, names: Sequence[str]) -> None:
        """Remove the files of a job. Raises TableError if the folder holds other files."""
        ours = [name for name in names if PART.fullmatch(name) or name in (JOB, SKIPPED)]
        if others := [name for name in names if name not in ours]:
            raise TableError(
                f"{shown(self.place)}: the folder holds {some(others)}, which no job wrote; choose another name"
            )
        # Remove _job.json last: if the removal is interrupted, the folder can still be recognised as a job's.
        remove(self.place, sorted(ours, key=lambda name: name == JOB))

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

    def _digest(self) -> str:
        """Return the SHA-256 of the description in the folder."""
        return hashlib.sha256(read_whole(below(self.place, JOB))).hexdigest()

    def _check_own(self) -> None:
        """Raise TableError if the folder has no job, or another one.

        On another machine the same path may be another folder. Another process may have replaced the job.
        """
        try:
            digest = self._digest()
        except TableError:
            raise TableError(
                f"{shown(self.place)}: a worker on {socket.gethostname()} does not see this folder; give a path that "
                "all workers share, or an object store"
            ) from None
        if digest != self.digest:
            raise self._replaced()

    def _is_own(self) -> bool:
        try:
            return self._digest() == self.digest
        except TableError:
            return False

    def _replaced(self) -> TableError:
        return TableError(
            f"{shown(self.place)}: another process has replaced the job in this folder; choose another folder"
        )

    def _outcome(self, name: str, block: Block | None) -> Outcome:
        """Return the outcome in the footer of a part. Raises TableError if the part is not that of this block."""
        place = below(self.place, name)
        if block is None:
            raise TableError(f"{shown(place)}: the job has no block with a part of this name; remove the file")
        stamp(place)  # raises for a pipe, which would block
        store, path = opened(place)
        with readable_errors(place), store.open_input_file(path) as stream:
            try:
                footer = parquet.read_metadata(stream)
                about = footer.metadata or {}
                outcome, digest = Outcome.from_json(about[OUTCOME_KEY]), about[JOB_KEY].decode()
            except (pa.ArrowException, KeyError, TypeError, ValueError):
                raise TableError(f"{shown(place)}: this file is not a part of this job; remove the file") from None
        problem = None
        if digest != self.digest:
            problem = "another job wrote this part"
        elif outcome.block != block.number:
            problem = f"this is the part of block {outcome.block}, not of block {block.number}"
        elif footer.num_rows != block.rows or outcome.rows != block.rows:
            problem = f"this part has {footer.num_rows:,} rows, and its block has {block.rows:,}"
        if problem is not None:
            raise TableError(f"{shown(place)}: {problem}; remove the file")
        return outcome


def write_skipped(place: str, result: JobResult) -> None:
    """Write one line of JSON for each skipped file or range of rows."""
    lines: Iterable[str] = (json.dumps(each.to_json()) for each in result.skipped)
    write_whole(place, "".join(f"{line}\n" for line in lines).encode())
