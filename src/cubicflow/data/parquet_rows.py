"""Rows streamed from Parquet files, shuffled, in bounded memory.

An epoch takes the row groups in a shuffled order, reads them a few thousand rows at a time, and shuffles within a
window of rows; the next window is read while the current one is used. Nothing larger than a window is ever held, not
even a row group. A file that is one giant row group can only be read from its start, so there rows mix within a window
and no further: shuffle such a file once, or write it with smaller row groups.

Of several processes each reads a stretch of its own of the shuffled row groups, so that none reads what another needs.
A global batch is made of rows from every stretch: which rows those are depends on the number of processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.data.rows import SPLIT, Batch, Order, Rows, TensorRows, derive_seed
from cubicflow.near_names import no_such

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_ROWS = 2**18
WINDOW_BYTES = 2**26
CHUNK_ROWS = 2**14

EXACT_IN_FLOAT32 = (torch.float32, torch.float16, torch.bool, torch.int8, torch.uint8, torch.int16)

Encode = Callable[["pa.RecordBatch"], tuple[Tensor, Tensor | None, Tensor | None]]


class RowGroup(NamedTuple):
    """One row group: its file, its number there, its rows among those of all files."""

    path: Path
    number: int
    first_row: int
    num_rows: int


class ParquetRows(Rows):
    """Rows of one or more Parquet files.

    Args:
        paths: a file, a folder of ``*.parquet`` files, or several files; their schemas must agree.
        columns: the columns of x, by default all that are not named below.
        context: columns that x is conditioned on.
        weights: the column of row weights.
        encode: what turns a pyarrow RecordBatch into (x, context, weights), for tables with columns that are not
            plain numbers. Without it x and context are the columns' values. It must work row by row.
        read: the columns ``encode`` needs; by default all.
        window_rows: rows that are shuffled together; by default 262,144, or what 64 MiB hold.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> table = pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "w": [1.0, 2.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/rows.parquet")
    ...     rows = ParquetRows(f"{folder}/rows.parquet", context=["b"], weights="w")
    ...     rows.names, next(rows.in_order(2)).context.tolist()
    (['a'], [[3.0], [4.0]])
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        columns: Sequence[str] | None = None,
        context: Sequence[str] = (),
        weights: str | None = None,
        *,
        encode: Encode | None = None,
        read: Sequence[str] | None = None,
        window_rows: int | None = None,
    ) -> None:
        self.paths = _files(paths)
        schema, self.groups, self.footers = _survey(self.paths)
        named = [*(columns or ()), *context, *([weights] if weights else ()), *(read or ())]
        for name in named:
            if name not in schema.names:
                raise ValueError(no_such(str(self.paths[0]), "column", name, schema.names))
        if encode is None:
            taken = {*context, weights}
            x_columns = list(columns) if columns is not None else [name for name in schema.names if name not in taken]
            if not x_columns:
                raise ValueError(f"{self.paths[0]} has no columns left for x")
            read = [*x_columns, *context, *([weights] if weights else [])]
            _refuse_other_than_numbers(schema, read)
            encode = partial(_plain_columns, x_columns, list(context), weights)
            self.names = x_columns
        self.encode = encode
        self.read = list(read) if read is not None else None
        self.window_rows = window_rows
        self.drawn: tuple[int, float, bool] | None = None  # seed, share of rows for validation, and whether these are
        self.group_rows = [group.num_rows for group in self.groups]
        self.num_rows = sum(self.group_rows)

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        windows = self._windows(order, epoch, first)
        reader = ThreadPoolExecutor(max_workers=1)
        try:
            coming = reader.submit(next, windows, None)
            while (window := coming.result()) is not None:
                coming = reader.submit(next, windows, None)
                yield from window
        finally:  # No wait: the garbage collector may close an abandoned epoch from the reader's own thread.
            reader.shutdown(wait=False, cancel_futures=True)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        return _regroup(self._chunks(range(len(self.groups))), batch_size)

    def split(self, num_validation: int, seed: int) -> tuple[Rows, Rows]:
        """Every row is drawn for validation by a hash of its number, so that no list of rows is kept; those for
        validation are read into memory."""
        draw = derive_seed(seed, SPLIT), num_validation / self.num_rows
        training, validation = self._part((*draw, False)), self._part((*draw, True))
        rows = list(validation.in_order(CHUNK_ROWS))
        return training, TensorRows(*_concatenate(rows), names=self.names) if rows else validation

    def _kept(self, first_row: int, n: int) -> NDArray[np.bool_]:
        """Which of n rows from ``first_row`` on are these rows'."""
        if self.drawn is None:
            return np.ones(n, dtype=bool)
        seed, share, for_validation = self.drawn
        drawn = uniform_hash(np.arange(first_row, first_row + n, dtype=np.uint64), seed) < share
        return np.asarray(drawn == for_validation)

    def _part(self, drawn: tuple[int, float, bool]) -> ParquetRows:
        part = copy.copy(self)
        part.__dict__.pop("summary", None)
        part.drawn = drawn
        part.group_rows = [int(part._kept(group.first_row, group.num_rows).sum()) for group in self.groups]
        part.num_rows = sum(part.group_rows)
        return part

    def _chunks(self, groups: Iterable[int]) -> Iterator[Batch]:
        """The rows of these groups, a few thousand at a time."""
        import pyarrow.parquet as pq

        for group in (self.groups[g] for g in groups):
            # Memory-mapped and not buffered ahead: of a giant row group only the pages in use are in memory.
            opened = {"metadata": self.footers[group.path], "memory_map": True, "pre_buffer": False}
            with pq.ParquetFile(group.path, **opened) as file:
                row = group.first_row
                for part in file.iter_batches(CHUNK_ROWS, row_groups=[group.number], columns=self.read):
                    kept = self._kept(row, part.num_rows)
                    row += part.num_rows
                    batch = Batch(*self.encode(part))
                    yield batch if kept.all() else _take(batch, torch.from_numpy(kept.nonzero()[0]))

    def _windows(self, order: Order, epoch: int, first: int) -> Iterator[list[Batch]]:
        """This process's batches, window by window. Windows are whole batches, so the position in an epoch is known
        without reading, and row groups before it are not read."""
        share = order.share.stop - order.share.start  # rows of a batch that are this process's
        per_epoch = self.num_rows // order.batch_size
        groups = order.permutation(len(self.groups), epoch).tolist()
        window_batches = max(self._window_rows() // order.batch_size, 1)
        window, skipped_batches = divmod(first, window_batches)
        # This process's stretch of the epoch; the last process also has the rows that make no whole batch.
        is_last = order.rank == order.world_size - 1
        stretch_end = self.num_rows if is_last else per_epoch * order.share.stop
        skip_rows = per_epoch * order.share.start + window * window_batches * share
        rest = stretch_end - skip_rows
        while groups and self.group_rows[groups[0]] <= skip_rows:
            skip_rows -= self.group_rows[groups.pop(0)]
        rows = _regroup(_only_first(_without_first(self._chunks(groups), skip_rows), rest), window_batches * share)
        own = () if order.world_size == 1 else (order.rank,)
        for number, content in enumerate(rows, start=window):
            shuffled = order.permutation(len(content.x), epoch, number, *own)
            count = min(len(content.x) // share, per_epoch - number * window_batches)
            batches = [_take(content, shuffled[i * share : (i + 1) * share]) for i in range(count)]
            yield batches[skipped_batches:] if number == window else batches

    def _window_rows(self) -> int:
        if self.window_rows is not None:
            return self.window_rows
        first = next(self.in_order(1))
        row_bytes = sum(part.nbytes for part in first if part is not None)
        return min(WINDOW_ROWS, WINDOW_BYTES // max(row_bytes, 1))


def _plain_columns(columns: list[str], context: list[str], weights: str | None, batch: pa.RecordBatch) -> Batch:
    """Columns of numbers as they are."""
    given = _stack(batch, context) if context else None
    return Batch(_stack(batch, columns), given, _stack(batch, [weights])[:, 0] if weights else None)


def _stack(batch: pa.RecordBatch, names: list[str]) -> Tensor:
    """(rows, columns); a missing value is NaN."""
    arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
    # NumPy has no missing truth value: a column of them with one would become Python objects.
    plain = [array.cast("float32") if str(array.type) == "bool" else array for array in arrays]
    columns = [torch.tensor(array.to_numpy(zero_copy_only=False)) for array in plain]
    wide = torch.float32 if all(column.dtype in EXACT_IN_FLOAT32 for column in columns) else torch.float64
    return torch.stack([column.to(wide) for column in columns], dim=1)


def uniform_hash(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each whole number: the finaliser of splitmix64.

    >>> values = uniform_hash(np.arange(100_000, dtype=np.uint64), seed=1)
    >>> bool(abs(values.mean() - 0.5) < 0.005)
    True
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _regroup(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """The same rows in batches of ``rows``, the last perhaps shorter."""
    waiting: list[Batch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch.x)
        while count >= rows:
            whole = _concatenate(waiting)
            yield _cut(whole, 0, rows)
            waiting, count = [_cut(whole, rows, count)], count - rows
    if count:
        yield _concatenate(waiting)


def _without_first(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    for batch in batches:
        if rows < len(batch.x):
            yield _cut(batch, rows, len(batch.x))
        rows = max(rows - len(batch.x), 0)


def _only_first(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """So many rows; what comes after them is not read."""
    for batch in batches:
        yield _cut(batch, 0, rows)
        rows -= len(batch.x)
        if rows <= 0:
            return


def _cut(batch: Batch, start: int, end: int) -> Batch:
    return batch.map(lambda part: part[start:end])


def _take(batch: Batch, rows: Tensor) -> Batch:
    return batch.map(lambda part: part.index_select(0, rows))


def _concatenate(batches: Sequence[Batch]) -> Batch:
    parts = zip(*batches, strict=True)
    return Batch(*(None if part[0] is None else torch.cat(part) for part in parts))  # type: ignore[arg-type]


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    files: list[Path] = []
    for path in given:
        found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"the folder {path} holds no *.parquet files")
        files += found
    if not files:
        raise ValueError("no Parquet files were given")
    return files


def _survey(paths: list[Path]) -> tuple[Any, list[RowGroup], dict[Path, Any]]:
    """The common schema, all row groups, and the files' footers, which are all that is read."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("reading Parquet needs pyarrow: pip install 'cubicflow[cli]'") from None
    from pyarrow import ArrowInvalid

    schema, rows = None, 0
    groups, footers = [], {}
    for path in paths:
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                found, metadata = file.schema_arrow, file.metadata
        except ArrowInvalid as error:
            raise ValueError(f"{path} is not a whole Parquet file: {error}") from None
        if schema is not None and not found.equals(schema):
            raise ValueError(f"{path} has other columns than {paths[0]}; all files of a table need the same schema")
        schema, footers[path] = found, metadata
        for index in range(metadata.num_row_groups):
            count = metadata.row_group(index).num_rows
            groups.append(RowGroup(path, index, rows, count))
            rows += count
    if not rows:
        raise ValueError(f"{paths[0]} holds no rows" if len(paths) == 1 else f"the {len(paths)} files hold no rows")
    return schema, groups, footers


def _refuse_other_than_numbers(schema: Any, columns: list[str]) -> None:
    import pyarrow.types as kinds

    for name in columns:
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            raise ValueError(f"column {name!r} holds {kind}, not numbers; leave it out, or give encode=")
