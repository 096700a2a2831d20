"""A job folder holds the parts of one job: after a kill, beside another process, and with files from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers.command_line import Command
from tests.helpers.forks import KILLED, die_at, forked
from tests.helpers.processes import start, wait_until

from cubicflow.clusters import sample_files, score_files, stores
from cubicflow.clusters.job_folder import JOB, LOCK, JobFolder
from cubicflow.clusters.stores import StoreFiles
from cubicflow.owned_folder import LocalFiles
from cubicflow.tables import FittedTable, TableError

from .lake import Scene, parts

ROWS, SMALL_BLOCKS = 40, 20
LEFT = [JOB, "part-00000000.parquet", "part-00000001.parquet"]
LOCAL = ("--engine", "local", "--block-rows", SMALL_BLOCKS, "--seed", 1)


@pytest.fixture(scope="module")
def model(scene: Scene) -> FittedTable:
    return scene.model("columns")


@pytest.fixture(scope="module")
def whole(model: FittedTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished job of two blocks."""
    folder = tmp_path_factory.mktemp("jobs") / "whole"
    draw(model, folder)
    return folder


def draw(model: FittedTable, folder: Path | str, seed: int = 1, **how: Any) -> None:
    sample_files(model, ROWS, str(folder), seed=seed, block_rows=SMALL_BLOCKS, workers=1, **how)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- kills ---


@pytest.mark.parametrize("begun", ["new", "overwrite", "resume"])
def test_a_killed_job_can_be_resumed_and_overwritten(
    model: FittedTable, whole: Path, tmp_path: Path, begun: str
) -> None:
    """The job is killed just before each operation on the file system in turn."""
    killed, again = tmp_path / "killed", tmp_path / "again"
    kills = 0
    while True:
        shutil.rmtree(killed, ignore_errors=True)
        if begun != "new":
            draw(model, killed, seed=2 if begun == "overwrite" else 1)
        if begun == "resume":
            (killed / LEFT[1]).unlink()

        def work(at: int = kills) -> None:
            die_at(at, killed)
            draw(model, killed, **({} if begun == "new" else {begun: True}))

        ended = forked(work)
        if ended.status == 0:
            break
        assert ended.status == KILLED, ended.errors
        kills += 1
        started = killed.exists() and JOB in names(killed)
        for flag in ("resume", "overwrite", None):
            shutil.rmtree(again, ignore_errors=True)
            if killed.exists():
                shutil.copytree(killed, again)
            if flag is None and started:
                with pytest.raises(TableError, match="already holds a job"):
                    draw(model, again)
            elif flag == "resume" and started and json.loads((again / JOB).read_text())["seed"] != 1:
                with pytest.raises(TableError, match="with another seed; choose another name, or replace that job"):
                    draw(model, again, resume=True)
            else:
                draw(model, again, **({} if flag is None else {flag: True}))
                assert names(again) == LEFT
                assert parts(again) == parts(whole)
    assert kills >= 6  # the lock and its removal, the temporary files of the parts, and their new names
    assert names(killed) == LEFT
    assert parts(killed) == parts(whole)


# --- files from elsewhere ---


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def rewritten(path: Path, key: bytes, value: bytes) -> None:
    """Replace an entry of a part's footer."""
    rows = parquet.read_table(path)
    parquet.write_table(rows.replace_schema_metadata({**rows.schema.metadata, key: value}), path)


def with_rows(path: Path, rows: int) -> None:
    """Change the number of rows of a part. Its footer keeps the outcome of the block."""
    parquet.write_table(parquet.read_table(path)[:rows], path)


def deep() -> bytes:
    return b"[" * 200_000 + b"]" * 200_000


FIRST, SECOND, BEYOND = LEFT[1], LEFT[2], "part-00000007.parquet"
SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a pipe as the description": (lambda at: pipe(at / JOB), f"{JOB} is not a plain file"),
    "a deep description": (lambda at: (at / JOB).write_bytes(deep()), f"{JOB}: this is not the description of a job"),
    "a list as the description": (lambda at: (at / JOB).write_bytes(b"[]"), "this is not the description of a job"),
    "bytes as the description": (lambda at: (at / JOB).write_bytes(b"\xff"), "this is not the description of a job"),
    "a pipe as a part": (lambda at: pipe(at / FIRST), f"{FIRST} is not a plain file"),
    "a folder as a part": (
        lambda at: ((at / FIRST).unlink(), (at / FIRST).mkdir()),
        f"holds a folder {FIRST}, but a job needs a file there",
    ),
    "a renamed part": (lambda at: (at / SECOND).rename(at / FIRST), f"{FIRST}: this is the part of block 1"),
    "a part beyond the last block": (lambda at: shutil.copy(at / FIRST, at / BEYOND), f"{BEYOND}: the job has no"),
    "a second name of a block": (
        lambda at: (at / SECOND).rename(at / "part-000000001.parquet"),
        "part-000000001.parquet: the job has no",
    ),
    "a truncated part": (
        lambda at: (at / FIRST).write_bytes((at / FIRST).read_bytes()[:-9]),
        f"{FIRST}: this file is not a part of this job",
    ),
    "an empty part": (lambda at: (at / FIRST).write_bytes(b""), f"{FIRST}: this file is not a part of this job"),
    "a foreign file": (
        lambda at: parquet.write_table(pa.table({"a": [1]}), at / FIRST),
        f"{FIRST}: this file is not a part of this job",
    ),
    "too few rows": (lambda at: with_rows(at / FIRST, 19), f"{FIRST}: this part has 19 rows, and its block has 20"),
    "a deep outcome": (
        lambda at: rewritten(at / FIRST, b"cubicflow.block", deep()),
        f"{FIRST}: this file is not a part of this job",
    ),
    "an outcome of other types": (
        lambda at: rewritten(at / FIRST, b"cubicflow.block", b'{"block": 0, "rows": "20", "skipped": []}'),
        f"{FIRST}: this file is not a part of this job",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_resumed_job_refuses_files_that_it_did_not_write(
    model: FittedTable, whole: Path, tmp_path: Path, case: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    spoil, words = SPOILED[case]
    spoil(out)
    ended = forked(lambda: refused(model, out, words))  # in a process of its own: a pipe could block for ever
    assert ended.status == 0, ended.errors[-500:] or "no answer"
    assert LOCK not in names(out)


def refused(model: FittedTable, out: Path, words: str) -> None:
    with pytest.raises(TableError) as error:
        draw(model, out, resume=True)
    assert words in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


def test_a_part_with_a_changed_byte_is_refused(whole: Path, tmp_path: Path) -> None:
    """Arrow accepts many changed footers. Then the rows cannot be read, or are other rows."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    content = (out / FIRST).read_bytes()
    folder = JobFolder(str(out))

    def all_are_refused() -> None:
        for position in range(0, len(content), 7):
            (out / FIRST).write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
            with pytest.raises(TableError, match="; remove the file"), folder.begin(folder.read_job(), resume=True):
                pytest.fail(f"byte {position} of {len(content)} was changed")

    ended = forked(all_are_refused)
    assert ended.status == 0, ended.errors[-500:]


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_a_job_folder_with_other_files_is_not_changed(
    model: FittedTable, whole: Path, tmp_path: Path, flag: str
) -> None:
    """A reader of the folder would take another Parquet file for a part."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(TableError, match=r"out holds files that no job wrote \(mine.parquet\); choose another folder"):
        draw(model, out, **{flag: True})
    assert names(out) == sorted([*LEFT, "mine.parquet"])
    assert parts(out) == parts(whole)


def test_a_part_of_another_job_is_refused(model: FittedTable, whole: Path, tmp_path: Path) -> None:
    """Both parts have the same name, block, and number of rows."""
    draw(model, tmp_path / "other", seed=2)
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.copy(tmp_path / "other" / FIRST, out / FIRST)
    refused(model, out, f"{FIRST}: another job wrote this part; remove the file")
    (out / FIRST).unlink()
    draw(model, out, resume=True)
    assert parts(out) == parts(whole)


def test_a_damaged_description_can_be_overwritten(model: FittedTable, whole: Path, tmp_path: Path) -> None:
    for content in (b"", deep()):
        out = tmp_path / str(len(content))
        shutil.copytree(whole, out)
        (out / JOB).write_bytes(content)
        refused(model, out, "choose another folder, or start the job again with")
        draw(model, out, overwrite=True)
        assert parts(out) == parts(whole)


def test_a_pipe_among_the_inputs(model: FittedTable, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    os.mkfifo(tmp_path / "lake" / "a.parquet")

    def score() -> None:
        with pytest.raises(TableError, match=r"a.parquet: this is not a plain file; remove it"):
            score_files(model, str(tmp_path / "lake"), str(tmp_path / "out"))

    ended = forked(score)
    assert ended.status == 0, ended.errors[-500:] or "no answer"


# --- two jobs in one folder ---


def held(model: FittedTable, folder: Path, begun: Path, ended: Path) -> None:
    """Draw rows, and wait after the first block until a file exists."""

    def wait(_: str) -> None:
        begun.touch()
        while not ended.exists():
            threading.Event().wait(0.01)

    draw(model, folder, progress=wait)


def test_two_processes_in_one_folder(
    scene: Scene, model: FittedTable, whole: Path, tmp_path: Path, cubicflow: Command
) -> None:
    out, begun, ended = tmp_path / "out", tmp_path / "begun", tmp_path / "ended"
    first = start(held, model, out, begun, ended, log=tmp_path / "log")
    try:
        wait_until(begun.exists, first)
        assert first.poll() is None, first.log.read_text()
        for flag in ((), ("--resume",), ("--overwrite",)):
            done = cubicflow("sample", scene.columns, "-n", ROWS, "-o", out, *LOCAL, *flag)
            assert done.status == 2
            assert f"{out} is in use by process {first.pid} on " in done.errors
            assert done.errors.count("\n") == 1
        ended.touch()
        assert first.wait() == 0, first.log.read_text()
    finally:
        first.kill()
    assert names(out) == LEFT
    assert parts(out) == parts(whole)


def test_a_link_as_the_lock(model: FittedTable, tmp_path: Path) -> None:
    out, thesis = tmp_path / "out", tmp_path / "thesis.tex"
    out.mkdir()
    thesis.write_text("mine")
    (out / LOCK).symlink_to(thesis)
    with pytest.raises(TableError, match=f"{LOCK} is a link to .*thesis.tex.*remove the link"):
        draw(model, out)
    assert thesis.read_text() == "mine"


def test_a_job_runs_where_files_cannot_be_locked(
    model: FittedTable, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    draw(model, tmp_path / "out")
    assert parts(tmp_path / "out") == parts(whole)


def test_a_replaced_job_stops(model: FittedTable, tmp_path: Path) -> None:
    """An object store has no lock. A job that was replaced writes no more parts."""
    fsspec = pytest.importorskip("fsspec")
    store, place = fsspec.filesystem("memory"), "memory://shared-jobs"
    draw(model, tmp_path / "second", seed=2)

    def replace(line: str) -> None:
        if line.startswith("block 1 of 2"):
            draw(model, place, seed=2, overwrite=True)

    try:
        with pytest.raises(TableError, match="holds a job that replaced this one; choose another"):
            draw(model, place, progress=replace)
        found = {path.rpartition("/")[2]: store.cat_file(path) for path in store.ls("/shared-jobs", detail=False)}
        assert {name: found[name] for name in (FIRST, SECOND)} == parts(tmp_path / "second")
        assert sorted(found) == LEFT
    finally:
        store.rm("/shared-jobs", recursive=True)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_part_that_vanishes_while_it_is_written(
    model: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """A job that replaces another one removes its temporary files, perhaps just before they get their names."""
    out = tmp_path / "out"

    def vanish(_: LocalFiles, name: str, content: bytes) -> None:
        if replaced:
            (out / JOB).write_text("{}")
        raise FileNotFoundError

    monkeypatch.setattr(LocalFiles, "write", vanish)
    why = "holds a job that replaced this one" if replaced else "there is no such file"
    with pytest.raises(TableError, match=why):
        draw(model, out)


def test_two_jobs_that_start_at_once_in_a_store(model: FittedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both jobs find an empty folder. The store creates a file only once."""
    fsspec = pytest.importorskip("fsspec")
    store, place = fsspec.filesystem("memory"), "memory://new-jobs"
    try:
        draw(model, place)
        before = store.cat_file(f"/new-jobs/{JOB}")
        monkeypatch.setattr(StoreFiles, "names", lambda _: {})
        monkeypatch.setattr(StoreFiles, "remove", lambda *_: None)
        with pytest.raises(TableError, match="holds a job that another process has just started"):
            draw(model, place, seed=2)
        assert store.cat_file(f"/new-jobs/{JOB}") == before
    finally:
        store.rm("/new-jobs", recursive=True)


def test_a_store_that_cannot_refuse_a_second_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own stores replace a file. The job that is replaced sees another description when it reads its own."""
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr("cubicflow.clusters.stores.can_create", lambda _: False)
    first, second = StoreFiles("memory://plain-jobs"), StoreFiles("memory://plain-jobs")
    upload = stores.upload

    def late(store: Any, path: str, content: bytes) -> None:
        upload(store, path, content)
        if content == b"first":
            assert second.create(JOB, b"second")

    monkeypatch.setattr("cubicflow.clusters.stores.upload", late)
    try:
        assert not first.create(JOB, b"first")
        assert first.open(JOB).read() == b"second"
    finally:
        fsspec.filesystem("memory").rm("/plain-jobs", recursive=True)


def test_parts_of_one_job_name_the_job(whole: Path) -> None:
    """A reader can check which job wrote a part: the footer holds the SHA-256 of _job.json."""
    import hashlib

    expected = hashlib.sha256((whole / JOB).read_bytes()).hexdigest()
    for name in LEFT[1:]:
        assert parquet.read_metadata(whole / name).metadata[b"cubicflow.job"].decode() == expected
    assert JobFolder(str(whole)).read_job()["seed"] == 1
