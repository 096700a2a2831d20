"""Training rows behind one interface: rows in memory, rows in memory-mapped files, and rows without columns.

The order of rows is a function of the seed, the epoch and the number of the batch. So a resumed run gets the same
batches as an uninterrupted one, and several processes divide the same global batches.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.data.row_summary import Summary, summarise
from cubicflow.seeds import Stream, derive_seed

SCAN_ROWS = 65_536  # rows in memory during a pass over all rows


class Batch(NamedTuple):
    """Batch of rows: data x (B, ...), context (B, C) and row weights (B,).

    >>> Batch(torch.zeros(2, 3)).to(torch.device("cpu"), torch.float64).x.dtype
    torch.float64
    """

    x: Tensor
    context: Tensor | None = None
    weights: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return a batch with ``change`` applied to every part that is not None."""
        context, weights = (None if part is None else change(part) for part in self[1:])
        return Batch(change(self.x), context, weights)

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """Return the batch on a device, in a floating dtype."""
        return self.map(lambda part: part.to(device, dtype, non_blocking=True))

    def take(self, rows: Tensor) -> Batch:
        """Return the rows with these numbers."""
        return self.map(lambda part: part.index_select(0, rows))

    def between(self, first: int, last: int) -> Batch:
        """Return the rows from number ``first`` to before ``last``, as views."""
        return self.map(lambda part: part[first:last])

    @property
    def nbytes(self) -> int:
        """The size of all parts in bytes."""
        return sum(part.nbytes for part in self if part is not None)


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Return the rows of all batches as one batch."""
    x, context, weights = (None if part[0] is None else torch.cat(part) for part in zip(*batches, strict=True))
    assert x is not None  # noqa: S101 - for the type checker: every batch has x
    return Batch(x, context, weights)


@dataclass(frozen=True)
class Order:
    """Order of the rows, and this process's share of each global batch.

    Attributes:
        batch_size: B, rows of a global batch.
        seed: seed of the shuffling.
        rank: number of this process.
        world_size: number of processes.

    >>> [Order(7, rank=rank, world_size=2).share for rank in (0, 1)]
    [slice(0, 3, None), slice(3, 7, None)]
    """

    batch_size: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    @property
    def share(self) -> slice:
        """This process's slice of every global batch. The sizes of all processes differ by at most one row."""
        cut = [self.batch_size * rank // self.world_size for rank in (self.rank, self.rank + 1)]
        return slice(*cut)

    def permutation(self, n: int, *keys: int) -> Tensor:
        """Return a random permutation of ``range(n)``, the same in every process."""
        return torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(self.seed, Stream.EPOCH, *keys)))


class Rows(ABC):
    """Fixed number of rows, which are read in batches.

    Attributes:
        num_rows: number of rows.
        names: column names for messages, or None.

    >>> train, validation = TensorRows(torch.randn(100, 2)).split(10, seed=0)
    >>> train.num_rows, validation.num_rows
    (90, 10)
    """

    num_rows: int
    names: list[str] | None = None

    @abstractmethod
    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield this process's share of every complete batch of a shuffled epoch, from batch number ``first`` on."""

    @abstractmethod
    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield every row once, in order. The last batch may be shorter."""

    @abstractmethod
    def split(self, num_validation: int, seed: int) -> tuple[Rows, Rows]:
        """Return disjoint training and validation rows. The number of validation rows is about ``num_validation``."""

    @cached_property
    def summary(self) -> Summary:
        """Shapes, mean weight and digest, from one pass over all rows. Raises for rows that are not finite."""
        return summarise(self.in_order(SCAN_ROWS), self.names)

    def fingerprint(self) -> str:
        """Return a digest of all values, a short string."""
        return self.summary.digest

    def has_weight(self) -> bool:
        """Return whether any row has a positive weight. Reads no further than the first batch with such a row."""
        batches = self.in_order(SCAN_ROWS)
        return any(batch.weights is None or bool((batch.weights > 0).any()) for batch in batches)

    def on(self, device: torch.device) -> Rows:  # noqa: ARG002
        """Return these rows, on the device if they can be moved and fit there."""
        return self

    def fixed_on(self, device: torch.device) -> Rows:
        """Return rows that give the same batches in order. If they fit on a GPU, they are read and encoded only once.

        Epochs of the result may differ from those of these rows.
        """
        row_bytes = next(self.in_order(1)).nbytes
        if device.type == "cpu" or not fits(row_bytes * self.num_rows, device):
            return self
        return TensorRows(
            *concatenated([batch.map(lambda part: part.to(device)) for batch in self.in_order(SCAN_ROWS)])
        )


def endless(rows: Rows, order: Order, first_step: int = 0) -> Iterator[Batch]:
    """Yield the batches of one epoch after another, from batch number ``first_step`` on.

    >>> rows, order = TensorRows(torch.randn(10, 2)), Order(batch_size=4)
    >>> batches = endless(rows, order)
    >>> later = [next(batches) for _ in range(6)][-1]
    >>> torch.equal(later.x, next(endless(rows, order, first_step=5)).x)
    True
    """
    per_epoch = rows.num_rows // order.batch_size
    if per_epoch == 0:
        raise ValueError(
            f"{rows.num_rows} training rows are fewer than one batch of {order.batch_size}; use a smaller batch_size "
            "or leave it out"
        )
    epoch, first = divmod(first_step, per_epoch)
    while True:
        yield from rows.epoch(order, epoch, first)
        epoch, first = epoch + 1, 0


class IndexedRows(Rows):
    """Rows with random access by row number."""

    device = torch.device("cpu")  # the device on which ``take`` expects row numbers
    chosen: Tensor | None = None  # the numbers of the rows in this part, on the device; None for all rows

    @abstractmethod
    def take(self, rows: Tensor) -> Batch:
        """Return the rows with these numbers."""

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        places = order.permutation(self.num_rows, epoch).to(self.device)
        rows = places if self.chosen is None else self.chosen[places]
        for i in range(first, self.num_rows // order.batch_size):
            yield self.take(rows[i * order.batch_size : (i + 1) * order.batch_size][order.share])

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for part in self.row_numbers.split(batch_size):
            yield self.take(part)

    def split(self, num_validation: int, seed: int) -> tuple[Rows, Rows]:
        generator = torch.Generator().manual_seed(derive_seed(seed, Stream.SPLIT))
        shuffled = torch.randperm(self.num_rows, generator=generator)
        return self.part(shuffled[num_validation:]), self.part(shuffled[:num_validation])

    @property
    def row_numbers(self) -> Tensor:
        return torch.arange(self.num_rows, device=self.device) if self.chosen is None else self.chosen

    def part(self, rows: Tensor) -> Self:
        """Return the rows at these positions as rows of the same class."""
        part = copy.copy(self)
        part.__dict__.pop("summary", None)
        part.chosen = self.row_numbers[rows]
        part.num_rows = len(rows)
        return part


class TensorRows(IndexedRows):
    """Rows in memory. Training moves them to its device if they fit there.

    Args:
        x: tensor or array of shape (N, D) or (N, C, H, W). The dtype is kept: images in uint8 need a quarter of the
            memory of float32.
        context: (N, C) or None.
        weights: (N,) or None.
        names: names of the columns of x.

    >>> rows = TensorRows(torch.arange(6.0).reshape(3, 2))
    >>> [batch.x.tolist() for batch in rows.in_order(2)]
    [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(
        self,
        x: Tensor | NDArray[np.generic],
        context: Tensor | NDArray[np.generic] | None = None,
        weights: Tensor | NDArray[np.generic] | None = None,
        names: list[str] | None = None,
    ) -> None:
        self.x = _as_tensor(x)
        self.context, self.weights = (None if part is None else _as_tensor(part) for part in (context, weights))
        check_parts(*(None if part is None else tuple(part.shape) for part in self.all))
        self.num_rows = len(self.x)
        self.device = self.x.device
        self.names = names

    @property
    def all(self) -> Batch:
        """All rows as one batch."""
        return Batch(self.x, self.context, self.weights)

    def take(self, rows: Tensor) -> Batch:
        return self.all.take(rows)

    def fixed_on(self, device: torch.device) -> TensorRows:
        return self.on(device)

    def on(self, device: torch.device) -> TensorRows:
        if device == self.device or not fits(self.all.nbytes, device):
            return self
        moved = copy.copy(self)
        moved.x, moved.context, moved.weights = self.all.map(lambda part: part.to(device))
        moved.device = device
        moved.chosen = None if self.chosen is None else self.chosen.to(device)
        return moved


def fits(nbytes: int, device: torch.device) -> bool:
    """Return whether rows of this size fit on the device: on a GPU three times, to leave memory for the model."""
    return device.type != "cuda" or 3 * nbytes <= torch.cuda.mem_get_info(device)[0]


class NpyRows(IndexedRows):
    """Rows of memory-mapped .npy files. A batch reads only its own rows.

    Args:
        x: path of an array (N, ...).
        context: path of an array (N, C), or None.
        weights: path of an array (N,), or None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.arange(6.0).reshape(3, 2))
    ...     NpyRows(f"{folder}/rows.npy").take(torch.tensor([2])).x
    tensor([[4., 5.]], dtype=torch.float64)
    """

    def __init__(self, x: str | Path, context: str | Path | None = None, weights: str | Path | None = None) -> None:
        self.arrays = [None if path is None else _open_npy(Path(path)) for path in (x, context, weights)]
        check_parts(*(None if array is None else array.shape for array in self.arrays))
        assert self.arrays[0] is not None  # noqa: S101 - for the type checker: its path is not None
        self.num_rows = len(self.arrays[0])

    def take(self, rows: Tensor) -> Batch:
        numbers = rows.numpy()
        # Copy into torch's memory: its alignment, and so the rounding, is the same in every run.
        parts = (None if array is None else torch.from_numpy(array[numbers]).clone() for array in self.arrays)
        return Batch(*parts)  # type: ignore[arg-type] # x is never None


class NoColumns(Rows):
    """Rows without columns, for losses that draw their own samples.

    >>> next(NoColumns(1000).in_order(8)).x.shape
    torch.Size([8, 0])
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:  # noqa: ARG002
        rows = torch.empty(order.batch_size, 0)[order.share]
        return (Batch(rows) for _ in range(first, self.num_rows // order.batch_size))

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        return (Batch(part) for part in torch.empty(self.num_rows, 0).split(batch_size))

    def split(self, num_validation: int, seed: int) -> tuple[Rows, Rows]:  # noqa: ARG002
        return self, NoColumns(num_validation)


def check_parts(
    x: tuple[int, ...] | None, context: tuple[int, ...] | None = None, weights: tuple[int, ...] | None = None
) -> None:
    """Raise ValueError if the shapes of x, context and weights do not fit together."""
    if x is None or len(x) < 2:
        raise ValueError(
            f"x must have shape (rows, columns), or (rows, channels, height, width) for images, got {x}; give a single "
            "column as x.reshape(-1, 1)"
        )
    if context is not None and (len(context) < 2 or context[0] != x[0]):
        raise ValueError(f"context must have shape ({x[0]}, C, ...), one row for each row of x, got {context}")
    if weights is not None and weights != x[:1]:
        raise ValueError(f"weights must have shape ({x[0]},), one for each row of x, got {weights}")


def _as_tensor(part: Tensor | NDArray[np.generic]) -> Tensor:
    if isinstance(part, np.ndarray):
        if part.dtype.kind not in "fiub":
            raise TypeError(f"rows must be numbers, got an array of dtype {part.dtype}; convert it to floats")
        part = torch.tensor(part)  # a copy: arrays may be read-only, and torch aligns its own memory
    if not isinstance(part, Tensor):
        raise TypeError(f"rows must be a tensor or a NumPy array, got {type(part).__name__}")
    if part.is_complex():
        raise TypeError(f"rows must be numbers, got a tensor of dtype {part.dtype}; give real and imaginary parts")
    return part.detach()


def _open_npy(path: Path) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a complete .npy file of numbers ({error}); save it again") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} has dtype {array.dtype}, expected numbers; save it as floats")
    return array
