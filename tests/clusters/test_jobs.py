"""Whole jobs in one process give the numbers of one batch, for any number of workers and after interruptions."""

from __future__ import annotations

import json
import math
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers.command_line import Command

from cubicflow.clusters import evaluate_files, sample_files, score_files
from cubicflow.clusters.blocks import block_seed
from cubicflow.clusters.job_folder import JOB, SKIPPED
from cubicflow.tables import open_table
from cubicflow.tables.run.scored_parts import score_parts

from .lake import BLOCK_ROWS, PER_FILE, ROWS, Scene, parts, scores

BLOCKS = -(-ROWS // BLOCK_ROWS)


def test_scores_agree_with_the_model_in_the_order_of_the_rows(scene: Scene, tmp_path: Path) -> None:
    result = score_files(scene.columns, scene.files, str(tmp_path / "out"), keys=["id"], block_rows=BLOCK_ROWS)
    found = parquet.read_table(tmp_path / "out")
    assert found.column("id").to_pylist() == list(range(ROWS))
    # The expected scores are computed independently: all rows in one batch, without blocks.
    expected = scene.model("columns").score(scene.rows)
    np.testing.assert_allclose(found.column("log_likelihood").to_numpy(), expected, rtol=1e-9)
    assert (result.rows, result.blocks, result.before, result.skipped) == (ROWS, BLOCKS, 0, [])


@pytest.mark.parametrize("model", ["columns", "flow"])
def test_workers_change_nothing(scene: Scene, tmp_path: Path, model: str) -> None:
    folders = {n: tmp_path / str(n) for n in (1, 2, 4)}
    for n, folder in folders.items():
        folder.mkdir()
        score_files(getattr(scene, model), scene.files, str(folder / "s"), block_rows=BLOCK_ROWS, workers=n)
        sample_files(getattr(scene, model), 300, str(folder / "d"), seed=5, block_rows=BLOCK_ROWS, workers=n)
    for name in ("s", "d"):
        assert parts(folders[1] / name) == parts(folders[2] / name) == parts(folders[4] / name)


def test_every_finished_block_is_reported(scene: Scene, tmp_path: Path) -> None:
    lines: list[str] = []

    def blocks() -> list[str]:
        found = [line.split("  ")[0] for line in lines]
        lines.clear()
        return found

    how = {"seed": 7, "block_rows": 10, "workers": 2, "progress": lines.append}
    sample_files(scene.columns, 45, str(tmp_path / "out"), **how)
    assert blocks() == [f"block {i} of 5" for i in (1, 2, 3, 4, 5)]
    (tmp_path / "out" / "part-00000003.parquet").unlink()
    sample_files(scene.columns, 45, str(tmp_path / "out"), resume=True, **how)
    assert blocks() == ["block 5 of 5"]
    evaluate_files(scene.columns, scene.files, block_rows=ROWS, progress=lines.append)
    assert blocks() == ["block 1 of 1"]


def test_each_block_is_sampled_with_its_own_seed(scene: Scene, tmp_path: Path) -> None:
    sample_files(scene.columns, 150, str(tmp_path / "out"), seed=7, block_rows=BLOCK_ROWS)
    model = scene.model("columns")
    expected = [model.sample(n, seed=block_seed(7, i)) for i, n in enumerate((64, 64, 22))]
    assert parquet.read_table(tmp_path / "out").equals(pa.concat_tables(expected))


def test_conditions_hold_in_every_block(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    asked = ["--given", "kind=oak", "--given", "size>3", "--engine", "local", "--block-rows", 20, "--seed", 1]
    done = cubicflow("sample", scene.columns, "-n", 50, "-o", tmp_path / "out", *asked)
    assert done.status == 0, done.errors
    rows = parquet.read_table(tmp_path / "out")
    assert len(rows) == 50
    assert set(rows.column("kind").to_pylist()) == {"oak"}
    assert min(rows.column("size").to_pylist()) > 3


def test_an_evaluation_is_that_of_one_pass(scene: Scene) -> None:
    path = scene.folder / "whole.parquet"
    found = evaluate_files(scene.columns, str(path), block_rows=BLOCK_ROWS)
    expected = score_parts(scene.model("columns"), open_table(path))
    assert found.is_source
    assert found.scored.used == expected.used
    for one, other in zip(
        (found.scored.whole, *found.scored.parts.values()), (expected.whole, *expected.parts.values()), strict=True
    ):
        assert (one.near, other.near) == (None, None)
        for mean, known in zip(one[:3], other[:3], strict=True):
            assert mean.rows == known.rows
            np.testing.assert_allclose((mean.mean, mean.error), (known.mean, known.error), rtol=1e-9)


def test_evaluate_says_the_same_by_an_engine(scene: Scene, cubicflow: Command) -> None:
    path = scene.folder / "whole.parquet"
    plain = cubicflow("evaluate", scene.columns, path)
    blockwise = cubicflow("evaluate", scene.columns, path, "--engine", "local", "--block-rows", BLOCK_ROWS)
    assert blockwise.status == 0, blockwise.errors
    assert "only its test rows are new to the model" in plain.output
    assert blockwise.output == plain.output


def test_an_interrupted_job_resumes(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        score_files(scene.columns, scene.files, str(folder), block_rows=BLOCK_ROWS)
    done = {name: (cut / name).stat().st_mtime_ns for name in sorted(parts(cut))}
    for name in list(done)[1::3]:
        (cut / name).unlink()
        del done[name]
    (cut / ".part-00000001.parquet.0123456789abcdef").write_bytes(b"half")  # the temporary file of a killed worker
    again = ["score", scene.columns, scene.files, "-o", cut, "--engine", "local", "--block-rows", BLOCK_ROWS]
    ended = cubicflow(*again, "--resume")
    assert ended.status == 0, ended.errors
    assert f"{len(done)} of {BLOCKS} blocks were finished in an earlier run" in ended.errors
    assert parts(cut) == parts(whole)
    assert {name: (cut / name).stat().st_mtime_ns for name in done} == done  # no finished block was computed again
    assert sorted(path.name for path in cut.iterdir()) == sorted(path.name for path in whole.iterdir())


def test_a_resumed_job_keeps_the_seed_that_it_drew(scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sample_files(scene.columns, 150, str(out), block_rows=BLOCK_ROWS)
    whole = parts(out)
    (out / "part-00000001.parquet").unlink()
    sample_files(scene.columns, 150, str(out), block_rows=BLOCK_ROWS, resume=True)
    assert parts(out) == whole


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"seed": 2}, "another seed"),
        ({"block_rows": 32}, "another size of blocks"),
        ({"number": 99}, "another number of rows"),
        ({"run": "flow"}, "another run"),
        ({"complete": True}, "other options"),
    ],
)
def test_a_folder_of_another_job_is_refused(scene: Scene, tmp_path: Path, other: dict, words: str) -> None:
    job = {"run": "columns", "number": 100, "seed": 1, "block_rows": 64, "complete": False}

    def begin(resume: bool, run: str, number: int, **settings: object) -> None:
        sample_files(getattr(scene, run), number, str(tmp_path / "out"), resume=resume, **settings)

    begin(False, **job)
    whole = parts(tmp_path / "out")
    with pytest.raises(ValueError, match=f"out holds another job, with {words}"):
        begin(True, **{**job, **other})
    assert parts(tmp_path / "out") == whole


def test_input_that_changed_is_another_job(scene: Scene, tmp_path: Path) -> None:
    source, out = tmp_path / "a.parquet", str(tmp_path / "out")
    parquet.write_table(scene.rows, source)
    score_files(scene.columns, str(source), out)
    parquet.write_table(scene.rows[:-1], source)
    with pytest.raises(ValueError, match="other input files, or files that have changed"):
        score_files(scene.columns, str(source), out, resume=True)


def test_overwrite_replaces_a_job_and_nothing_else(scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sample_files(scene.columns, 300, str(out), seed=1, block_rows=BLOCK_ROWS)
    sample_files(scene.columns, 64, str(out), seed=2, block_rows=BLOCK_ROWS, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == [JOB, "part-00000000.parquet"]
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds files that no job wrote \(thesis.txt\)"):
        sample_files(scene.columns, 64, str(out), seed=2, overwrite=True)
    assert len(list(out.iterdir())) == 3


# --- invalid input ---


def spoiled(scene: Scene, folder: Path) -> tuple[str, dict[int, str]]:
    """Return files with values in rows 5 and 400 that no density has, and a word of the error for each row."""
    folder.mkdir()
    heights = scene.rows.column("height").to_pylist()
    heights[5], heights[400] = math.inf, 1e300
    rows = scene.rows.set_column(scene.rows.schema.get_field_index("height"), "height", pa.array(heights))
    parquet.write_table(rows[:300], folder / "0.parquet")
    parquet.write_table(rows[300:], folder / "1.parquet")
    return str(folder), {5: "infinite", 400: "1e+300"}


def test_a_bad_row_is_named(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    data, _ = spoiled(scene, tmp_path / "lake")
    how = ["--engine", "local", "--block-rows", BLOCK_ROWS, "--workers", 1]
    stopped = cubicflow("score", scene.flow, data, "-o", tmp_path / "out", *how)
    assert stopped.status == 2
    assert stopped.errors.count("\n") == 1
    assert "lake/0.parquet, row 6: " in stopped.errors
    assert "column 'height' holds 1 infinite value" in stopped.errors


def test_a_stopped_job_leaves_no_worker_behind(scene: Scene, tmp_path: Path) -> None:
    """A traceback that holds the workers would keep them alive until the error is garbage collected, in any thread."""
    data, _ = spoiled(scene, tmp_path / "lake")
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="infinite") as scored:
        score_files(scene.flow, data, str(tmp_path / "out"), block_rows=BLOCK_ROWS, workers=2)
    assert set(threading.enumerate()) <= before, scored
    with pytest.raises(ValueError, match="infinite") as evaluated:
        evaluate_files(scene.flow, data, block_rows=BLOCK_ROWS, workers=2)
    assert set(threading.enumerate()) <= before, evaluated


def test_bad_rows_are_set_aside(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    data, bad = spoiled(scene, tmp_path / "lake")
    how = ["--engine", "local", "--block-rows", BLOCK_ROWS, "--on-error", "skip"]
    done = cubicflow("score", scene.flow, data, "-o", tmp_path / "out", *how)
    assert done.status == 0, done.errors
    assert "warning: skipped 2 rows, see" in done.errors
    found = scores(tmp_path / "out")
    assert np.flatnonzero(np.isnan(found)).tolist() == list(bad)
    expected = scene.model("flow").score(scene.rows)
    np.testing.assert_allclose(np.delete(found, list(bad)), np.delete(expected, list(bad)), rtol=1e-4)
    lines = [json.loads(line) for line in (tmp_path / "out" / SKIPPED).read_text().splitlines()]
    named = [(Path(line["file"]).name, line["first"], line["last"]) for line in lines]
    assert named == [("0.parquet", 6, 6), ("1.parquet", 101, 101)]
    assert all(word in line["reason"] for word, line in zip(bad.values(), lines, strict=True))


def test_rows_with_gaps_are_bad_rows_if_gaps_are_errors(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    gaps = np.flatnonzero(scene.rows.column("size")[-PER_FILE[-1] :].is_null().to_numpy())
    data = scene.folder / "lake" / "3.parquet"
    how = ["--engine", "local", "--block-rows", BLOCK_ROWS, "--missing", "error", "--workers", 1]
    stopped = cubicflow("score", scene.columns, data, "-o", tmp_path / "stopped", *how)
    assert stopped.status == 2
    remedy = "fit a model of columns, or leave such rows out with --missing drop"
    said = f"3.parquet, row {gaps[0] + 1}: it lacks a value, in 'size'; {remedy}\n"
    assert stopped.errors.endswith(said)
    done = cubicflow("score", scene.columns, data, "-o", tmp_path / "out", *how, "--on-error", "skip")
    assert f"warning: skipped {len(gaps)} rows, see" in done.errors
    assert np.flatnonzero(np.isnan(scores(tmp_path / "out"))).tolist() == gaps.tolist()


def test_an_evaluation_sets_bad_rows_aside(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    data, bad = spoiled(scene, tmp_path / "lake")
    how = ["--engine", "local", "--block-rows", BLOCK_ROWS, "--on-error", "skip", "--skipped", tmp_path / "aside.jsonl"]
    done = cubicflow("evaluate", scene.flow, data, *how)
    assert done.status == 0, done.errors
    assert f"over {ROWS - len(bad)} rows" in done.output
    assert len((tmp_path / "aside.jsonl").read_text().splitlines()) == len(bad)


def damage(path: Path) -> None:
    """Overwrite the pages in the first half of a file with zeros. Its footer stays intact."""
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)


def test_bad_files_are_set_aside(scene: Scene, tmp_path: Path, cubicflow: Command) -> None:
    lake, out = tmp_path / "lake", tmp_path / "out"
    lake.mkdir()
    for i in range(4):
        parquet.write_table(scene.rows[i * 100 : i * 100 + 100], lake / f"{i}.parquet")
    (lake / "1.parquet").write_bytes(b"PAR1 and no more")
    damage(lake / "2.parquet")
    how = ["--engine", "local", "--block-rows", BLOCK_ROWS, "--key", "id", "--workers", 1]
    stopped = cubicflow("score", scene.columns, lake, "-o", out, *how)
    assert stopped.status == 2
    assert f"{lake}/1.parquet: not a complete Parquet file" in stopped.errors
    assert not out.exists()
    done = cubicflow("score", scene.columns, lake, "-o", out, *how, "--on-error", "skip")
    assert done.status == 0, done.errors
    assert "warning: skipped 1 file and 100 rows, see" in done.errors
    table = parquet.read_table(out)  # the number of rows of a file without a footer is unknown
    good = [*range(100), *range(300, 400)]
    assert [i for i in table.column("id").to_pylist() if i is not None] == good
    found = table.column("log_likelihood").to_numpy()
    np.testing.assert_allclose(found[~np.isnan(found)], scene.model("columns").score(scene.rows)[good], rtol=1e-9)
    lines = [json.loads(line) for line in (out / SKIPPED).read_text().splitlines()]
    assert {Path(line["file"]).name for line in lines} == {"1.parquet", "2.parquet"}


class Ranges(SimpleHTTPRequestHandler):
    """A web server that sends parts of files."""

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), len(content) - 1)) if asked else (0, len(content) - 1)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[first : last + 1])

    def log_message(self, *_: object) -> None:
        pass


def test_input_from_a_web_server(scene: Scene, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=scene.folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/whole.parquet"
        score_files(scene.columns, url, str(tmp_path / "out"), block_rows=BLOCK_ROWS)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    score_files(scene.columns, scene.files, str(tmp_path / "expected"), block_rows=BLOCK_ROWS)
    # The description of a job names its input files, so the footers of the parts differ.
    assert parquet.read_table(tmp_path / "out").equals(parquet.read_table(tmp_path / "expected"))
    assert list(parts(tmp_path / "out")) == list(parts(tmp_path / "expected"))


def test_input_and_output_in_a_store(scene: Scene, tmp_path: Path) -> None:
    """fsspec's memory store stands for stores that are not on this machine."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.mkdir("/lake")
    for name in ("0", "1", "2", "3"):
        store.pipe_file(f"/lake/{name}.parquet", (scene.folder / "lake" / f"{name}.parquet").read_bytes())
    expected = tmp_path / "out"
    score_files(scene.columns, scene.files, str(expected), block_rows=BLOCK_ROWS)
    try:
        for resume in (False, True):
            score_files(
                scene.columns, "memory://lake/*.parquet", "memory://scores", block_rows=BLOCK_ROWS, resume=resume
            )
            found = {name.rpartition("/")[2]: store.cat_file(name) for name in store.ls("/scores", detail=False)}
            assert {*found} - {JOB} == {*parts(expected)}
            for name in parts(expected):
                assert parquet.read_table(pa.BufferReader(found[name])).equals(parquet.read_table(expected / name))
            store.rm("/scores/part-00000003.parquet")
    finally:
        store.rm("/lake", recursive=True)
        store.rm("/scores", recursive=True)
