"""Rows that no source accepts: values that are not finite, bad weights, wrong shapes, damaged files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cubicflow.data.parquet_rows import ParquetRows
from cubicflow.data.rows import Order, TensorRows, endless
from cubicflow.training.fit_checks import as_rows

from .numbered_rows import N, write_parquet


def test_rows_that_are_not_finite_are_named(table, tmp_path):
    table[17, 2] = np.nan
    table[400, 0] = np.inf
    table[400, 1] = np.nan
    expected = r"2 of 1000 rows have NaN or infinite values: row 17 \(column 2\); row 400 \(columns 0, 1\)"
    with pytest.raises(ValueError, match=expected):
        _ = TensorRows(torch.tensor(table)).summary
    with pytest.raises(ValueError, match=r"row 17 \(column 'c2'\); row 400 \(columns 'c0', 'c1'\)"):
        _ = ParquetRows(write_parquet(tmp_path / "x.parquet", table, 70), window_rows=200).summary
    context = np.zeros((N, 1))
    context[3] = np.nan
    with pytest.raises(ValueError, match=r"row 3 \(context column 0\)"):
        _ = TensorRows(torch.zeros(N, 2), torch.tensor(context)).summary
    table[500:] = np.nan
    with pytest.raises(ValueError, match="and 497 more"):
        _ = TensorRows(torch.tensor(table)).summary
    images = torch.zeros(N, 2, 8, 8)
    images[3, 1, 7, 7] = torch.nan
    with pytest.raises(ValueError, match=rf"1 of {N} rows .*: row 3 \(context column 127\)\."):
        _ = TensorRows(torch.zeros(N, 2), images).summary


def test_missing_values_of_parquet_are_not_finite(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1, None, 3]), "b": [1.0, 2.0, 3.0]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"1 of 3 rows .* row 1 \(column 'a'\)"):
        _ = ParquetRows(tmp_path / "x.parquet").summary


def test_missing_truth_values_are_not_finite(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": pa.array([True, False, None]), "b": [1.0, 2.0, 3.0]}), path)
    with pytest.raises(ValueError, match=r"1 of 3 rows .* row 2 \(column 'a'\)"):
        _ = ParquetRows(path).summary
    pq.write_table(pa.table({"a": pa.array([True, False, True]), "b": [1.0, 2.0, 3.0]}), path)
    assert next(ParquetRows(path).in_order(3)).x.tolist() == [[1, 1], [0, 2], [1, 3]]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_negative_and_non_finite_weights_are_refused(bad):
    weights = torch.ones(5)
    weights[3] = bad
    with pytest.raises(ValueError, match="weights must be finite and 0 or more; row 3 has"):
        _ = TensorRows(torch.zeros(5, 1), weights=weights).summary


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"x must have shape \(rows, columns\).*reshape\(-1, 1\)"):
        TensorRows(torch.zeros(5))
    with pytest.raises(ValueError, match=r"context must have shape \(5, C, \.\.\.\), one row for each row of x"):
        TensorRows(torch.zeros(5, 2), torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"weights must have shape \(5,\)"):
        TensorRows(torch.zeros(5, 2), weights=torch.zeros(5, 1))
    with pytest.raises(TypeError, match="rows must be numbers"):
        TensorRows(np.array([["a"], ["b"]]))
    with pytest.raises(TypeError, match=r"rows must be numbers, got a tensor of dtype torch\.complex64"):
        TensorRows(torch.zeros(5, 2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="the weights of all rows are 0"):
        _ = TensorRows(torch.zeros(5, 2), weights=torch.zeros(5)).summary


def test_damaged_missing_and_unsuitable_files_are_refused(tmp_path, table):
    (tmp_path / "x.npy").write_bytes(b"not numpy")
    with pytest.raises(ValueError, match=r"not a complete .npy file"):
        as_rows(tmp_path / "x.npy")
    (tmp_path / "x.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match="not a complete Parquet file"):
        as_rows(tmp_path / "x.parquet")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        as_rows(tmp_path / "absent.npy")
    (tmp_path / "x.txt").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"give a .npy file, a .parquet file"):
        as_rows(tmp_path / "x.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no \*.parquet files"):
        as_rows(tmp_path / "empty")
    with pytest.raises(TypeError, match="cannot read rows from list; give a tensor"):
        as_rows([[1.0, 2.0]])
    path = write_parquet(tmp_path / "y.parquet", table, 100, label=pa.array(["a"] * N))
    with pytest.raises(ValueError, match="column 'label' holds string, not numbers"):
        ParquetRows(path)
    with pytest.raises(ValueError, match="has no column 'lable'; did you mean 'label'"):
        ParquetRows(path, columns=["c0", "lable"])
    with pytest.raises(ValueError, match=r"has no column 'zebra'\. It has: c0, "):
        ParquetRows(path, columns=["zebra"])
    other = write_parquet(tmp_path / "z.parquet", table[:, :2], 100)
    with pytest.raises(ValueError, match=r"z.parquet lacks 'c2'.* and adds no column compared with .*y.parquet"):
        ParquetRows([path, other])
    empty = write_parquet(tmp_path / "none.parquet", table[:0], 100)
    with pytest.raises(ValueError, match="has no rows"):
        ParquetRows(empty)


def test_pickles_in_npy_files_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"not a complete .npy file of numbers"):
        as_rows(tmp_path / "x.npy")


def test_fewer_rows_than_a_batch():
    with pytest.raises(ValueError, match="3 training rows are fewer than one batch of 4"):
        next(endless(TensorRows(torch.zeros(3, 1)), Order(4)))
