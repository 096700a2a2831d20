"""Rows streamed from Parquet files, shuffled, in bounded memory.

An epoch shuffles the row groups, reads them in chunks of a few thousand rows, and shuffles the rows within a window.
The next window is read while the current one is used. The window bounds the memory, even if a row group is larger. A
file with a single huge row group can only be read from its start, so its rows mix only within a window: shuffle such a
file once, or write it with smaller row groups.

With several processes, each process reads its own part of the shuffled row groups, so no row group is read twice
except at the borders of the parts. A global batch combines rows of all parts, so its rows depend on the number of
processes.
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

from cubicflow.arguments import unknown_name
from cubicflow.data.rows import Batch, Order, Rows, TensorRows, concatenated
from cubicflow.extras import need
from cubicflow.seeds import Stream, derive_seed, uniform_hash

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_ROWS = 2**18  # most rows of a window
WINDOW_BYTES = 2**26  # most bytes of a window
CHUNK_ROWS = 2**14  # rows that are read at once

EXACT_IN_FLOAT32 = (torch.float32, torch.float16, torch.bool, torch.int8, torch.uint8, torch.int16)

Encode = Callable[["pa.RecordBatch"], tuple[Tensor, Tensor | None, Tensor | None]]


class RowGroup(NamedTuple):
    """Row group: its file, its number in that file, the number of its first row over all files, and its row count."""

    path: Path
    number: int
    first_row: int
    num_rows: int


class ParquetRows(Rows):
    """Rows of one or more Parquet files.

    Args:
        paths: a file, a folder of Parquet files, which is searched recursively, or several files with the same schema.
        columns: the columns of x. Default: all columns that are not in ``context`` or ``weights``.
        context: the columns that x is conditioned on.
        weights: the column of row weights.
        encode: a function that turns a pyarrow RecordBatch into (x, context, weights), for columns that are not plain
            numbers. The result for a row must not depend on other rows. Default: the columns' values.
        read: the columns that ``encode`` needs. Default: all columns.
        window_rows: number of rows that are shuffled together. Default: 262,144, or as many as fit into 64 MiB.

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
                raise ValueError(unknown_name(str(self.paths[0]), "column", name, schema.names))
        if encode is None:
            taken = {*context, weights}
            x_columns = list(columns) if columns is not None else [name for name in schema.names if name not in taken]
            if not x_columns:
                raise ValueError(
                    f"{self.paths[0]} has no columns left for x; take a column out of context= or weights="
                )
            read = [*x_columns, *context, *([weights] if weights else [])]
            _refuse_other_than_numbers(schema, read)
            encode = partial(_plain_columns, x_columns, list(context), weights)
            self.names = x_columns
        self.encode = encode
        self.read = list(read) if read is not None else None
        self.window_rows = window_rows
        self.drawn: tuple[int, float, bool] | None = None  # seed, validation fraction, True for the validation part
        self.group_rows = [group.num_rows for group in self.groups]
        self.num_rows = sum(self.group_rows)

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        windows = self._windows(order, epoch, first)
        reader = ThreadPoolExecutor(max_workers=1)
        try:
            next_window = reader.submit(next, windows, None)
            while (window := next_window.result()) is not None:
                next_window = reader.submit(next, windows, None)
                yield from window
        finally:  # Do not wait: the garbage collector may close an abandoned epoch in the reader's own thread.
            reader.shutdown(wait=False, cancel_futures=True)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        return _regroup(self._chunks(range(len(self.groups))), batch_size)

    def split(self, num_validation: int, seed: int) -> tuple[Rows, Rows]:
        """Split off validation rows by a hash of the row number, so that no list of rows is kept.

        Validation rows are read into memory.
        """
        draw = derive_seed(seed, Stream.SPLIT), num_validation / self.num_rows
        training, validation = self._part((*draw, False)), self._part((*draw, True))
        rows = list(validation.in_order(CHUNK_ROWS))
        return training, TensorRows(*concatenated(rows), names=self.names) if rows else validation

    def _kept(self, first_row: int, n: int) -> NDArray[np.bool_]:
        """Return which of the n rows from ``first_row`` on belong to this part of a split."""
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
        """Yield the rows of these groups in batches of at most CHUNK_ROWS rows."""
        from cubicflow.data.parquet_files import checked_batches, opened

        for group in (self.groups[g] for g in groups):
            # Memory-mapped and not pre-buffered: only the pages in use of a huge row group are in memory.
            how: dict[str, Any] = {"metadata": self.footers[group.path], "memory_map": True, "pre_buffer": False}
            with opened(group.path, group.path, **how) as file:
                row = group.first_row
                for part in checked_batches(file, self.read, CHUNK_ROWS, [group.number]):
                    kept = self._kept(row, part.num_rows)
                    row += part.num_rows
                    batch = Batch(*self.encode(part))
                    yield batch if kept.all() else batch.take(torch.from_numpy(kept.nonzero()[0]))

    def _windows(self, order: Order, epoch: int, first: int) -> Iterator[list[Batch]]:
        """Yield this process's batches, a list for each window, from batch number ``first`` on.

        A window holds a whole number of batches, so the position of batch ``first`` is known without reading, and
        earlier row groups are skipped.
        """
        share = order.share.stop - order.share.start  # rows of a global batch that belong to this process
        per_epoch = self.num_rows // order.batch_size
        groups = order.permutation(len(self.groups), epoch).tolist()
        window_batches = max(self._window_rows() // order.batch_size, 1)
        window, skipped_batches = divmod(first, window_batches)
        # This process's part of the epoch. The last process also has the rows that do not fill a batch.
        is_last = order.rank == order.world_size - 1
        part_end = self.num_rows if is_last else per_epoch * order.share.stop
        skip_rows = per_epoch * order.share.start + window * window_batches * share
        while groups and self.group_rows[groups[0]] <= skip_rows:
            skipped = self.group_rows[groups.pop(0)]
            skip_rows, part_end = skip_rows - skipped, part_end - skipped
        rows = _regroup(_rows_between(self._chunks(groups), skip_rows, part_end), window_batches * share)
        own = () if order.world_size == 1 else (order.rank,)
        for number, content in enumerate(rows, start=window):
            shuffled = order.permutation(len(content.x), epoch, number, *own)
            count = min(len(content.x) // share, per_epoch - number * window_batches)
            batches = [content.take(shuffled[i * share : (i + 1) * share]) for i in range(count)]
            yield batches[skipped_batches:] if number == window else batches

    def _window_rows(self) -> int:
        if self.window_rows is not None:
            return self.window_rows
        return min(WINDOW_ROWS, WINDOW_BYTES // max(next(self.in_order(1)).nbytes, 1))


def _plain_columns(columns: list[str], context: list[str], weights: str | None, batch: pa.RecordBatch) -> Batch:
    """Return columns of numbers without any encoding."""
    conditions = _stack(batch, context) if context else None
    return Batch(_stack(batch, columns), conditions, _stack(batch, [weights])[:, 0] if weights else None)


def _stack(batch: pa.RecordBatch, names: list[str]) -> Tensor:
    """Return columns as a tensor (rows, columns). A missing value becomes NaN."""
    arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
    # Cast booleans: with a missing value, to_numpy would return Python objects.
    plain = [array.cast("float32") if str(array.type) == "bool" else array for array in arrays]
    columns = [torch.tensor(array.to_numpy(zero_copy_only=False)) for array in plain]
    dtype = torch.float32 if all(column.dtype in EXACT_IN_FLOAT32 for column in columns) else torch.float64
    return torch.stack([column.to(dtype) for column in columns], dim=1)


def _regroup(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """Yield the same rows in batches of ``rows`` rows; the last batch may be shorter."""
    waiting: list[Batch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch.x)
        while count >= rows:
            whole = concatenated(waiting)
            yield whole.between(0, rows)
            waiting, count = [whole.between(rows, count)], count - rows
    if count:
        yield concatenated(waiting)


def _rows_between(batches: Iterable[Batch], first: int, last: int) -> Iterator[Batch]:
    """Yield the rows from number ``first`` to before ``last``, and read no further."""
    for batch in batches:
        if first < len(batch.x):
            yield batch.between(max(first, 0), last)
        first, last = first - len(batch.x), last - len(batch.x)
        if last <= 0:
            return


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    need("pyarrow", "reading Parquet")
    from cubicflow.data.parquet_files import files_in

    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    files: list[Path] = []
    for path in given:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder; check the path")
        if not (found := files_in(path)):
            raise ValueError(f"the folder {path} has no *.parquet files; give a folder that has some")
        files += found
    if not files:
        raise ValueError("paths is empty; give at least one Parquet file")
    return files


def _survey(paths: list[Path]) -> tuple[Any, list[RowGroup], dict[Path, Any]]:
    """Return the common schema, all row groups and the footer of each file. Reads only the footers."""
    from cubicflow.data.parquet_files import difference, opened

    schema, rows = None, 0
    groups, footers = [], {}
    for path in paths:
        with opened(path, path, memory_map=True) as file:
            found, metadata = file.schema_arrow, file.metadata
        if schema is not None and not found.equals(schema):
            raise ValueError(f"the files are not parts of one table: {difference(paths[0], schema, path, found)}")
        schema, footers[path] = found, metadata
        for index in range(metadata.num_row_groups):
            count = metadata.row_group(index).num_rows
            groups.append(RowGroup(path, index, rows, count))
            rows += count
    if not rows:
        where = f"{paths[0]} has" if len(paths) == 1 else f"the {len(paths)} files have"
        raise ValueError(f"{where} no rows; give at least one row")
    return schema, groups, footers


def _refuse_other_than_numbers(schema: Any, columns: list[str]) -> None:
    import pyarrow.types as kinds

    for name in columns:
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            raise ValueError(f"column {name!r} holds {kind}, not numbers; leave it out, or give encode=")
