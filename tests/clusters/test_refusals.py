"""An invalid job prints one line, exits with status 2 and leaves no partial file."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers.command_line import Command

from cubicflow.clusters.blocks import Block
from cubicflow.clusters.job_folder import JobFolder
from cubicflow.clusters.tasks import SampleTask
from cubicflow.tables import TableError
from cubicflow.tables.read.fetched import with_limited_retries

from .lake import Scene
from .ray_workers import FullFolder

LOCAL = ("--engine", "local")


def check_refused(done: object, *words: str) -> None:
    assert done.status == 2, done.errors
    assert done.output == ""
    assert done.errors.startswith("error: ")
    assert done.errors.count("\n") == 1, done.errors
    for word in words:
        assert word in done.errors


def test_no_cluster_at_the_address(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    with socket.socket() as taken:  # bound but not listening, so connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        how = ["--engine", "ray", "--address", address]
        done = cubicflow("score", scene.columns, scene.files, "-o", tmp_path / "out", *how)
    check_refused(done, f"there is no Ray cluster at '{address}': Connection refused", "ray start --head")
    done = cubicflow("sample", scene.columns, "-n", 5, "-o", tmp_path / "out", *how[:3], "the-head-node")
    check_refused(done, "the address of a Ray cluster is auto, HOST:PORT or ray://HOST:PORT, got 'the-head-node'")
    assert not (tmp_path / "out").exists()


def test_ray_is_not_installed(
    scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = cubicflow("evaluate", scene.columns, scene.files, "--engine", "ray")
    check_refused(done, "the engine ray needs ray, which is not installed; use: pip install 'cubicflow[ray]'")


@pytest.mark.parametrize("data", ["*.parquet", "no-such-folder", "empty", "file://{}/*.parquet"])
def test_nothing_is_there(scene: Scene, tmp_path: Path, cubicflow: Command, data: str) -> None:
    (tmp_path / "empty").mkdir()
    place = data.format(tmp_path) if "{}" in data else tmp_path / data
    done = cubicflow("score", scene.columns, place, "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "there is no such file or folder" if "no-such" in data else "there is no Parquet file")
    assert not (tmp_path / "out").exists()


def test_files_of_different_schemas(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    parquet.write_table(scene.rows, lake / "a.parquet")
    parquet.write_table(scene.rows.drop(["kind"]), lake / "b.parquet")
    done = cubicflow("score", scene.columns, lake, "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "b.parquet lacks 'kind'")
    (lake / "b.parquet").unlink()
    parquet.write_table(scene.rows.drop(["kind"]), lake / "a.parquet")
    done = cubicflow("score", scene.columns, lake, "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "this table differs from the fitted table: column 'kind' is missing")
    assert not (tmp_path / "out").exists()


def test_an_output_that_exists(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for how in ((), ("--resume",), ("--overwrite",)):
        done = cubicflow("sample", scene.columns, "-n", 5, "-o", tmp_path / "out", *LOCAL, *how)
        check_refused(done, "out holds other files and no job (mine.txt); choose a new or empty folder")
    done = cubicflow("sample", scene.columns, "-n", 5, "-o", tmp_path / "file", *LOCAL)
    check_refused(done, "file is a file; a job needs a folder")
    done = cubicflow("sample", scene.columns, "-n", 5, "-o", tmp_path / "no" / "out", *LOCAL)
    check_refused(done, f"there is no folder {tmp_path / 'no'}; make it first")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_full_disk(scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.clusters.jobs.JobFolder", FullFolder)
    out = tmp_path / "out"
    asked = ["score", scene.columns, scene.files, "-o", out, *LOCAL, "--workers", 1]
    check_refused(cubicflow(*asked), f"{out}/part-00000000.parquet: File too large")
    assert [path.name for path in out.iterdir()] == ["_job.json"]
    monkeypatch.undo()
    again = cubicflow(*asked, "--resume")  # the disk has free space again
    assert again.status == 0, again.errors
    assert len(parquet.read_table(out)) == len(scene.rows)


def test_no_permission() -> None:
    """Everyone may read the folder, and no one may write to it.

    Root could write anyway, so the test runs as another user.
    """
    root = not os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder, "closed")
        closed.mkdir(mode=0o555)
        Path(folder).chmod(0o755)
        if root:
            os.seteuid(65534)
        try:
            refused = pytest.raises(TableError, match=r"out: no permission: Permission denied; check the owner")
            with refused, JobFolder(str(closed / "out")).begin({"rows": 1, "block_rows": 1}):
                pass
        finally:
            if root:
                os.seteuid(0)
        assert not list(closed.iterdir())


class Refusing(BaseHTTPRequestHandler):
    """An object store that refuses all credentials."""

    def do_GET(self) -> None:
        body = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"endpoint_override=127.0.0.1:{server.server_address[1]}&scheme=http&region=eu"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_object_store_without_credentials(scene: Scene, tmp_path: Path, cubicflow: Command, store: str) -> None:
    for name in ("rows.parquet", "*.parquet"):
        data = f"s3://someone:guess@bucket/{name}?{store}"
        done = cubicflow("score", scene.columns, data, "-o", tmp_path / "out", *LOCAL)
        check_refused(done, f"s3://bucket/{name}: ", "check the address and the credentials")
        assert "guess" not in done.errors
    assert not (tmp_path / "out").exists()
    done = cubicflow("sample", scene.columns, "-n", 5, "-o", f"s3://someone:guess@bucket/out?{store}", *LOCAL)
    check_refused(done, "s3://bucket/out", "check the address and the credentials")


def test_a_google_store_that_does_not_answer(
    scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's own limit is fifteen minutes of retries."""
    monkeypatch.setattr("cubicflow.tables.read.fetched.TIMEOUT", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        data = f"gs://anonymous@bucket/rows.parquet?scheme=http&endpoint_override=127.0.0.1:{taken.getsockname()[1]}"
        for how in (LOCAL, ()):
            done = cubicflow("score", scene.columns, data, "-o", tmp_path / "out.csv", *how)
            check_refused(done, "bucket/rows.parquet", "check the address and the credentials")
    assert not list(tmp_path.iterdir())


def test_retries_of_a_google_store_are_limited_unless_the_url_says() -> None:
    assert with_limited_retries("gs://b/x?scheme=http") == "gs://b/x?scheme=http&retry_limit_seconds=20.0"
    assert with_limited_retries("gcs://b/*.parquet") == "gcs://b/*.parquet?retry_limit_seconds=20.0"
    for kept in ("gs://b/x?retry_limit_seconds=900", "s3://b/x"):
        assert with_limited_retries(kept) == kept


def test_a_web_server_takes_no_output(scene: Scene, cubicflow: Command) -> None:
    done = cubicflow("sample", scene.columns, "-n", 5, "-o", "https://example.org/out", *LOCAL)
    check_refused(done, "https://example.org/out: a web server takes no files; give a folder or an object store")


def test_packages_that_a_url_needs(
    scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.implementations.http", None)
    from fsspec.registry import _registry

    monkeypatch.delitem(_registry, "https", raising=False)
    done = cubicflow("score", scene.columns, "https://example.org/a.parquet", "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "https://example.org/a.parquet: ", "use: pip install 'cubicflow[remote]'")


def test_a_folder_that_a_worker_does_not_see(scene: Scene, tmp_path: Path) -> None:
    """On another machine the same path is another folder, which has no job."""
    error = SampleTask(scene.model("columns"), JobFolder(str(tmp_path)), seed=0)(Block(0, 0, 5))
    assert isinstance(error, TableError)
    assert "can see; give a path that all workers share" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_other_files_than_parquet(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    (tmp_path / "t.csv").write_text("kind,size,height\noak,1,2\n")
    done = cubicflow("score", scene.columns, tmp_path / "t.csv", "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "t.csv: this is not a Parquet file, and an engine reads only Parquet")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (["--workers", 2], "--workers needs an engine; choose one with --engine"),
        (["--engine", "spark"], "engine 'spark'"),
        ([*LOCAL, "--address", "auto"], "only a Ray cluster has an address"),
        ([*LOCAL, "--on-error", "ignore"], "on_error must be stop or skip, got 'ignore'"),
        ([*LOCAL, "--key", "name"], "column 'name'"),
        ([*LOCAL, "--header", "1"], "--header cannot be combined with --engine local"),
        ([*LOCAL, "--missing", "drop", "--unseen", "guess"], "unseen should be count or error"),
        ([*LOCAL, "--device", "tpu"], "the device 'tpu' cannot be used"),
    ],
)
def test_options_that_do_not_go_together(
    scene: Scene, tmp_path: Path, cubicflow: Command, how: list, words: str
) -> None:
    out = tmp_path / "out.parquet"
    check_refused(cubicflow("score", scene.columns, scene.files, "-o", out, *how), words)
    assert not out.exists()


def test_skipped_rows_need_a_file(scene: Scene, cubicflow: Command) -> None:
    done = cubicflow("evaluate", scene.columns, scene.files, *LOCAL, "--on-error", "skip")
    check_refused(done, "--on-error skip and --skipped FILE go together")


def test_a_column_that_has_changed_its_type(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    changed = scene.rows.set_column(1, "kind", pa.array(range(len(scene.rows))))
    parquet.write_table(changed, tmp_path / "a.parquet")
    done = cubicflow("score", scene.columns, tmp_path / "a.parquet", "-o", tmp_path / "out", *LOCAL)
    check_refused(done, "column 'kind' should be")
    assert not (tmp_path / "out").exists()
