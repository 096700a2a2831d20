"""Blocks cover every row once. The content of a block does not depend on other blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cubicflow.clusters import TableSampler, TableScorer, block_table
from cubicflow.clusters.blocks import Block, block_seed, blocks_of
from cubicflow.clusters.inputs import plan_inputs, read_segment
from cubicflow.clusters.stores import files_of, find_files, opened
from cubicflow.tables.table_error import TableError

from .lake import PER_FILE, Scene


@pytest.mark.parametrize(("rows", "size"), [(0, 7), (1, 7), (7, 7), (8, 7), (100, 1), (1000, 64)])
def test_every_row_is_in_one_block(rows: int, size: int) -> None:
    blocks = list(blocks_of(rows, size))
    assert [row for block in blocks for row in range(block.first, block.last)] == list(range(rows))
    assert [block.number for block in blocks] == list(range(max(-(-rows // size), 1)))
    assert all(block.first == block.number * size for block in blocks)


def test_seeds_of_blocks_differ() -> None:
    seeds = {block_seed(seed, number) for seed in range(50) for number in range(200)}
    assert len(seeds) == 50 * 200
    assert max(seeds) < 2**63


@pytest.mark.parametrize("size", [1, 64, 90, 301, 10_000])
def test_a_block_is_read_from_the_files_that_hold_it(scene: Scene, size: int) -> None:
    inputs = plan_inputs(scene.files)
    assert [file.rows for file in inputs.files] == list(PER_FILE)
    some = list(blocks_of(inputs.rows, size))
    for block in some if size > 1 else [some[0], some[299], some[300], some[-1]]:
        read = pa.concat_tables(read_segment(segment, ["id", "kind"]) for segment in inputs.segments(block))
        assert read.equals(scene.rows.select(["id", "kind"])[block.first : block.last])


def test_no_block_of_an_empty_table_reads_anything(scene: Scene, tmp_path: Path) -> None:
    parquet.write_table(scene.rows[:0], tmp_path / "none.parquet")
    inputs = plan_inputs(str(tmp_path))
    assert [list(inputs.segments(block)) for block in blocks_of(inputs.rows)] == [[]]


def test_patterns_match_the_files_that_a_shell_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a1.parquet", "a2.parquet", "b.parquet", "sub/a3.parquet", "sub/deep/a4.pq", "_temporary/a5.parquet"]
    for name in [*names, "sub/.a6.parquet", "notes.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for pattern, expected in {
        "a*.parquet": names[:2],
        "a?.parquet": names[:2],
        "[ab].parquet": names[2:3],
        "*/a*.parquet": names[3:4],
        "**/a*": [*names[:2], *names[3:5]],
        "sub": names[3:5],
        ".": names[:5],
        "b.parquet": names[2:3],
    }.items():
        found = find_files(f"{tmp_path}/{pattern}")
        assert sorted(Path(file).relative_to(tmp_path) for file in found) == sorted(map(Path, expected)), pattern
        if "?" not in pattern:  # in a URL, ? starts the query
            urls = find_files(f"file://{tmp_path}/{pattern}")
            assert [Path(url.removeprefix("file://")) for url in urls] == [Path(file) for file in found]
    monkeypatch.chdir(tmp_path)
    assert find_files("a*.parquet") == names[:2]
    assert find_files("sub/*.parquet") == names[3:4]


def test_a_file_in_a_store_is_whole_under_its_name() -> None:
    """In fsspec's memory store a rename is a copy and a removal, as in an object store."""
    pytest.importorskip("fsspec")
    files_of("memory://shelf").write("part", b"12345")
    store, path = opened("memory://shelf/part")
    with store.open_input_file(path) as file:
        assert file.read() == b"12345"
    assert files_of("memory://shelf").names() == {"part": False}
    assert files_of("memory://no-such-shelf").names() == {}


def test_functions_of_batches_agree_with_the_model(scene: Scene) -> None:
    model = scene.model("columns")
    scorer = TableScorer(scene.columns, "cpu")
    scored = scorer(scene.rows)
    np.testing.assert_array_equal(scored.column("log_likelihood").to_numpy(), model.score(scene.rows))
    assert scored.drop(["log_likelihood"]).equals(scene.rows)
    sampler, blocks = TableSampler(model, "cpu", seed=3), block_table(100, 40)
    rows = sampler(blocks)
    assert rows.equals(pa.concat_tables(sampler(blocks[i : i + 1]) for i in range(3)))
    assert rows[40:80].equals(model.sample(40, seed=block_seed(3, 1)))


def test_a_run_that_a_worker_does_not_see(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"there is no such run folder on .*; put it on a path that every worker sees"):
        TableScorer(tmp_path / "elsewhere", "cpu")(pa.table({"a": [1]}))


def test_a_block_tells_its_rows() -> None:
    assert Block(2, 20, 30).rows == 10
