"""Sources of rows: every epoch is a shuffle, a resumed epoch continues, and processes share the global batch."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
import torch

from cubicflow.data.parquet_rows import ParquetRows
from cubicflow.data.rows import NoColumns, NpyRows, Order, TensorRows, concatenated, endless
from cubicflow.seeds import uniform_hash

from .numbered_rows import D, N, write_parquet


def make_rows(kind, table, folder):
    if kind == "tensor":
        return TensorRows(torch.tensor(table))
    if kind == "npy":
        np.save(folder / "x.npy", table)
        return NpyRows(folder / "x.npy")
    group = N if kind == "one row group" else 70
    path = write_parquet(folder / "x.parquet", table, group)
    if kind == "several files":
        path = folder / "files"
        path.mkdir()
        write_parquet(path / "a.parquet", table[:300], 70)
        write_parquet(path / "b.parquet", table[300:], 700)
    return ParquetRows(path, window_rows=200)


KINDS = ["tensor", "npy", "row groups", "one row group", "several files"]


@pytest.fixture(params=KINDS)
def rows(request, table, tmp_path):
    return make_rows(request.param, table, tmp_path)


def numbers(batches):
    return [batch.x[:, 0].int().tolist() for batch in batches]


def flat(batches):
    return list(itertools.chain.from_iterable(numbers(batches)))


def test_an_epoch_is_a_shuffle_of_whole_batches(rows, table):
    order = Order(batch_size=64, seed=3)
    seen = list(rows.epoch(order, 0))
    assert [len(batch.x) for batch in seen] == [64] * (N // 64)
    everything = flat(seen)
    assert len(set(everything)) == len(everything)
    assert everything != sorted(everything)
    for batch in seen:
        np.testing.assert_array_equal(batch.x.numpy(), table[batch.x[:, 0].int().numpy()])


def test_epochs_and_seeds_differ_and_repeat(rows):
    first = flat(rows.epoch(Order(64, seed=3), 0))
    assert first == flat(rows.epoch(Order(64, seed=3), 0))
    assert first != flat(rows.epoch(Order(64, seed=3), 1))
    assert first != flat(rows.epoch(Order(64, seed=4), 0))


@pytest.mark.parametrize("first", [1, 3, 7, 14])
def test_an_epoch_can_be_entered_anywhere(rows, first):
    order = Order(64, seed=3)
    assert numbers(rows.epoch(order, 2, first)) == numbers(rows.epoch(order, 2))[first:]


def test_rows_that_are_kept_on_a_device_give_the_same_batches(rows, monkeypatch):
    """The meta device stands for a GPU: it shows which rows move. Copies on the CPU show their values."""
    monkeypatch.setattr(
        "cubicflow.data.rows.fits", lambda nbytes, device: nbytes == N * D * 8 and device.type == "meta"
    )
    kept = rows.fixed_on(torch.device("meta"))
    assert isinstance(kept, TensorRows)
    assert [batch.x.shape for batch in kept.in_order(300)] == [batch.x.shape for batch in rows.in_order(300)]
    assert all(batch.x.is_meta for batch in kept.in_order(300))
    copied = TensorRows(*concatenated(list(rows.in_order(170))))
    assert all(torch.equal(one.x, other.x) for one, other in zip(copied.in_order(64), rows.in_order(64), strict=True))
    monkeypatch.setattr("cubicflow.data.rows.fits", lambda *_: False)
    assert rows.fixed_on(torch.device("meta")) is rows


def test_endless_goes_on_from_any_step(rows):
    order = Order(100, seed=1)
    begun = numbers(itertools.islice(endless(rows, order), 25))
    assert numbers(itertools.islice(endless(rows, order, 13), 12)) == begun[13:]


@pytest.mark.parametrize("world_size", [2, 3])
def test_shares_make_up_the_global_batch(rows, world_size):
    whole = numbers(rows.epoch(Order(64, seed=3), 1))
    shares = [numbers(rows.epoch(Order(64, 3, rank, world_size), 1)) for rank in range(world_size)]
    together = [list(itertools.chain(*parts)) for parts in zip(*shares, strict=True)]
    if isinstance(rows, ParquetRows):  # each process reads its own stretch of rows: other batches, but the same number
        assert [len(batch) for batch in together] == [64] * (N // 64)
        assert len(set(itertools.chain(*together))) == 64 * (N // 64)
    else:
        assert together == whole
    sizes = [len(share[0]) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("world_size", [2, 3, 7])
@pytest.mark.parametrize("batch_size", [7, 50, 333])
def test_each_process_reads_only_its_own_stretch(tmp_path, table, world_size, batch_size):
    """Files hold 100 rows in row groups of 40. A process reads only the row groups of its stretch."""
    for i in range(0, N, 100):
        write_parquet(tmp_path / f"{i:04d}.parquet", table[i : i + 100], 40)
    rows = ParquetRows(tmp_path, window_rows=200)
    plain, read, seen = rows.encode, [], []

    def counting(batch):
        read.append(batch.num_rows)
        return plain(batch)

    for rank in range(world_size):
        order = Order(batch_size, 3, rank, world_size)
        rows.encode = counting
        batches = numbers(rows.epoch(order, 1))
        rows.encode = plain
        assert [len(batch) for batch in batches] == [order.share.stop - order.share.start] * (N // batch_size)
        assert numbers(rows.epoch(order, 1, 2)) == batches[2:]
        seen += itertools.chain(*batches)
    assert len(set(seen)) == len(seen) == N // batch_size * batch_size
    # Two neighbouring processes may both read the row group of 40 rows at their common border.
    assert N // batch_size * batch_size <= sum(read) <= N + (world_size - 1) * 40


def test_in_order_gives_every_row_once(rows, table):
    batches = list(rows.in_order(96))
    assert [len(batch.x) for batch in batches] == [96] * 10 + [40]
    np.testing.assert_array_equal(torch.cat([batch.x for batch in batches]).numpy(), table)


def test_split_is_disjoint_complete_and_repeatable(rows):
    training, validation = rows.split(100, seed=5)
    kept, held_out = flat(training.in_order(50)), flat(validation.in_order(50))
    assert sorted(kept + held_out) == list(range(N))
    assert len(kept) == training.num_rows
    assert len(held_out) == validation.num_rows
    # A stream draws row by row, so the count is binomial. The tolerance is 4 standard deviations.
    assert abs(len(held_out) - 100) <= 40
    assert flat(rows.split(100, seed=5)[1].in_order(50)) == held_out
    assert flat(rows.split(100, seed=6)[1].in_order(50)) != held_out
    epoch = flat(training.epoch(Order(50, seed=0), 0))
    assert set(epoch) <= set(kept)
    assert len(epoch) == training.num_rows // 50 * 50
    assert numbers(training.epoch(Order(50, seed=0), 0, 9)) == numbers(training.epoch(Order(50, seed=0), 0))[9:]


def test_the_summary_has_the_shape_and_the_mean_weight(rows, table):
    assert rows.summary.shape == (D,)
    assert rows.summary.mean_weight == 1
    counts = np.random.default_rng(1).integers(1, 4, size=N)
    weighted = TensorRows(torch.tensor(table), weights=torch.tensor(counts)).summary
    assert weighted.mean_weight == pytest.approx(counts.mean())


def test_different_rows_have_different_fingerprints(table, tmp_path):
    changed = table.copy()
    changed[1, 2] += 1
    prints = {make_rows(kind, table, tmp_path).fingerprint() for kind in KINDS}
    assert len(prints) == 1  # the values alone decide, not the storage or the batches
    for kind in ("tensor", "npy", "row groups"):
        assert make_rows(kind, changed, tmp_path).fingerprint() not in prints
        assert make_rows(kind, table[:-1], tmp_path).fingerprint() not in prints


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.bfloat16, torch.float64], ids=str)
def test_fingerprints_of_every_dtype(dtype):
    x = torch.arange(24).reshape(4, 1, 2, 3).remainder(2).to(dtype)
    changed = x.clone()
    changed[3, 0, 1, 2] = 1 - int(changed[3, 0, 1, 2])
    assert TensorRows(x).fingerprint() == TensorRows(x.clone()).fingerprint()
    assert TensorRows(x).fingerprint() != TensorRows(changed).fingerprint()
    assert TensorRows(x).fingerprint() != TensorRows(x.flatten(1)).fingerprint()
    assert TensorRows(x).fingerprint() != TensorRows(x.to(torch.int16)).fingerprint()


def test_fingerprints_distinguish_context_from_weights():
    x, ones = torch.zeros(5, 2), torch.ones(5)
    given = [(x,), (x, ones[:, None]), (x, None, ones), (x, ones[:, None], ones), (x, 2 * ones[:, None], ones)]
    assert len({TensorRows(*parts).fingerprint() for parts in given}) == len(given)
    assert NoColumns(10).fingerprint() == NoColumns(10).fingerprint() != NoColumns(11).fingerprint()


def test_fingerprints_of_very_many_rows():
    """The last row's number is not exact in float32. The expanded tensor takes no memory."""
    rows = TensorRows(torch.zeros(1, 1, dtype=torch.uint8).expand(2**25, 1))
    assert len(rows.fingerprint()) == 32


def test_has_weight_finds_any_positive_weight(table, tmp_path):
    weights = np.zeros(N)
    path = write_parquet(tmp_path / "x.parquet", table, 100, w=weights)
    assert not ParquetRows(path, weights="w").has_weight()
    assert ParquetRows(path).has_weight()
    weights[-1] = 1e-300
    path = write_parquet(tmp_path / "x.parquet", table, 100, w=weights)
    assert ParquetRows(path, weights="w").has_weight()


# --- Parquet ---


def test_parquet_columns_context_and_weights(table, tmp_path):
    weights, count = np.linspace(1, 2, N), np.arange(N, dtype=np.int32)
    path = write_parquet(tmp_path / "x.parquet", table, 100, w=weights, count=count)
    rows = ParquetRows(path, context=["count"], weights="w")
    assert rows.names == ["c0", "c1", "c2"]
    batch = next(rows.epoch(Order(10, seed=0), 0))
    chosen = batch.x[:, 0].int().numpy()
    np.testing.assert_array_equal(batch.context.numpy()[:, 0], chosen)
    np.testing.assert_array_equal(batch.weights.numpy(), weights[chosen])
    validation = rows.split(100, seed=0)[1]
    np.testing.assert_array_equal(validation.weights.numpy(), weights[validation.x[:, 0].int().numpy()])


def test_parquet_applies_an_encoder_batch_by_batch(table, tmp_path):
    labels = pa.array(["a" if i % 3 else "b" for i in range(N)])
    path = write_parquet(tmp_path / "x.parquet", table, 300, label=labels)
    sizes = []

    def encode(batch):
        sizes.append(batch.num_rows)
        label = torch.tensor([float(value == "a") for value in batch.column("label").to_pylist()])
        return torch.stack([torch.tensor(batch.column("c0").to_numpy()), label.double()], 1), None, None

    rows = ParquetRows(path, encode=encode, read=["c0", "label"])
    for batch in rows.in_order(100):
        assert torch.equal(batch.x[:, 1], (batch.x[:, 0] % 3 != 0).double())
    assert sum(sizes) == N


def test_a_giant_row_group_is_read_a_few_rows_at_a_time(tmp_path, monkeypatch):
    values = np.zeros((50_000, 2))
    path = write_parquet(tmp_path / "x.parquet", values, 50_000)
    rows = ParquetRows(path, window_rows=1024)
    seen = []
    encode = rows.encode
    rows.encode = lambda batch: seen.append(batch.num_rows) or encode(batch)
    next(rows.epoch(Order(32), 0))
    assert max(seen) <= 2**14
    assert sum(seen) <= 4 * 2**14  # at most two windows are read ahead, and each window lies in one chunk


def test_resuming_skips_row_groups_without_reading_them(table, tmp_path):
    rows = make_rows("row groups", table, tmp_path)
    seen = []
    encode = rows.encode
    rows.encode = lambda batch: seen.append(batch.num_rows) or encode(batch)
    list(rows.epoch(Order(50), 0, 16))
    assert sum(seen) < 400  # 800 of 1000 rows are done


def test_uniform_hash_is_uniform():
    values = np.sort(uniform_hash(np.arange(100_000, dtype=np.uint64), seed=7))
    distance = np.abs(values - (np.arange(100_000) + 0.5) / 100_000).max()
    assert distance < 1.95 / np.sqrt(100_000)  # Kolmogorov-Smirnov at 0.1 %


def test_draws_have_rows_but_no_data():
    order = Order(8, rank=1, world_size=3)
    batches = list(NoColumns(30).epoch(order, 0, 1))
    assert [batch.x.shape for batch in batches] == [(3, 0)] * 2
    assert sum(len(batch.x) for batch in NoColumns(30).in_order(8)) == 30


def test_an_epoch_may_be_closed_by_the_thread_that_reads_ahead(table, tmp_path, monkeypatch):
    """The garbage collector runs in any thread that allocates, and closes an abandoned epoch there."""
    rows = make_rows("row groups", table, tmp_path)
    seen, closed, errors = threading.Event(), threading.Event(), []
    windows = rows._windows

    def watched(*arguments):
        for number, window in enumerate(windows(*arguments)):
            if number == 1:  # this runs in the reading thread while the epoch waits at its first batch
                seen.wait(300)
                try:
                    epoch.close()
                except RuntimeError as error:
                    errors.append(error)
                closed.set()
            yield window

    monkeypatch.setattr(rows, "_windows", watched)
    epoch = rows.epoch(Order(50, seed=3), 0)
    next(epoch)
    seen.set()
    assert closed.wait(300)
    assert errors == []
