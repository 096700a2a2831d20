"""Scoring ten million rows takes about as much memory as scoring a few."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.command_line import Command

MEASURE = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], check=True)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
)


def peak_megabytes(*command: object) -> int:
    arguments = [sys.executable, "-c", MEASURE, sys.executable, "-m", "cubicflow", *map(str, command)]
    return int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


@pytest.mark.soak
def test_scores_of_ten_million_rows(cubicflow: Command, tmp_path: Path) -> None:
    """The table takes 160 MB. A program that held the table, its encoding and its scores would need four times as much
    on top of the memory for few rows. The bound is two thirds of that, because torch and arrow cache some memory."""
    rng = np.random.default_rng(0)
    schema = pa.schema({"a": pa.float64(), "b": pa.float64()})
    with pq.ParquetWriter(tmp_path / "big.parquet", schema) as big:
        for _ in range(10):
            piece = pa.table({"a": rng.standard_normal(1_000_000), "b": rng.gamma(2.0, 1.0, 1_000_000)}, schema=schema)
            big.write_table(piece)
    pq.write_table(piece.slice(0, 2000), tmp_path / "small.parquet")
    small = ("--steps", 5, "--model", "flow", "--num-layers", 1, "--hidden-features", 8)
    assert cubicflow("fit", tmp_path / "small.parquet", "-o", tmp_path / "run", *small).status == 0
    few = peak_megabytes("score", tmp_path / "run", tmp_path / "small.parquet", "-o", tmp_path / "few.npy")
    many = peak_megabytes("score", tmp_path / "run", tmp_path / "big.parquet", "-o", tmp_path / "many.npy")
    assert np.load(tmp_path / "many.npy", mmap_mode="r").shape == (10_000_000,)
    assert many < few + 420
