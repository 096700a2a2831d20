"""The processes that train together: torchrun starts them, torch.distributed connects them.

Every process holds the whole model and takes its share of each global batch; gradients are summed over processes, so
all take the same step. Process 0 alone writes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous


@dataclass(frozen=True)
class World:
    """This process, and how many there are."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_writer(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients_(self, gradients: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Sum the gradients in place and return the sum of the losses, in one exchange."""
        if self.size == 1:
            return loss
        parts = [*gradients, loss.to(gradients[0].dtype)]
        summed = self.sum_(torch.cat([part.flatten() for part in parts])).split([part.numel() for part in parts])
        for gradient, total in zip(gradients, summed, strict=False):
            gradient.copy_(total.view_as(gradient))
        total_loss: Tensor = summed[-1][0]
        return total_loss.to(loss.dtype)

    def copy_from_first_(self, tensors: Iterable[Tensor]) -> None:
        """Process 0's values for everyone, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def tell(self, value: Any) -> Any:
        """Process 0's plain value for everyone."""
        if self.size == 1:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0, device=self.device)
        return told[0]

    def agree(self, stop: bool, elapsed: float) -> tuple[bool, float]:
        """Whether anyone wants to stop, and process 0's clock."""
        if self.size == 1:
            return stop, elapsed
        flags = torch.tensor([float(stop), elapsed * self.is_writer], dtype=torch.float64, device=self.device)
        any_stop, clock = self.sum_(flags).tolist()
        return any_stop > 0, clock


_joins = itertools.count()  # of this process; all processes of a job join as often


@contextmanager
def join(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, or be alone. A process group that exists already is used as it is."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    begun = not (dist.is_available() and dist.is_initialized()) and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if begun:
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                f"WORLD_SIZE is set but {', '.join(missing)} is not; start several processes with torchrun, or unset it"
            )
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        _connect("nccl" if chosen.type == "cuda" else "gloo")
    try:
        if dist.is_available() and dist.is_initialized():
            yield World(chosen, dist.get_rank(), dist.get_world_size())
        else:
            yield World(chosen)
    finally:
        if begun and dist.is_initialized():
            dist.destroy_process_group()


def _connect(backend: str) -> None:
    store, rank, size = next(rendezvous("env://"))
    # The store outlives a group, and with it the addresses of its members: a later one must not find them there.
    store = PrefixStore(f"join-{next(_joins)}", store)
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        # On one machine torchrun keeps its store when it restarts the processes, and with it the addresses of the dead
        # ones: every attempt needs keys of its own.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """``"auto"``, ``"cuda"`` or any name torch knows, as a device that is there.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {name!r}") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device={name!r} was asked for, but torch sees no GPU here; use device='cpu' or 'auto'")
        index = device.index if device.index is not None else local_rank
        if index >= torch.cuda.device_count():
            raise ValueError(
                f"device {index} was asked for, but there are {torch.cuda.device_count()} GPUs here; start at most one "
                "process per GPU"
            )
        return torch.device("cuda", index)
    return device
