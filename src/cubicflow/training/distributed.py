"""Training in several processes, started by torchrun and connected by torch.distributed.

Every process holds the whole model and computes its share of each global batch. Gradients are summed over the
processes, so all processes take the same step. Only process 0 writes files.
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
class Processes:
    """This process's device and rank, and the number of processes."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_writer(self) -> bool:
        """True if this process writes files and shows progress."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place, and return it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients_(self, gradients: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Sum the gradients in place and return the sum of the losses, with a single all-reduce."""
        if self.size == 1:
            return loss
        parts = [*gradients, loss.to(gradients[0].dtype)]
        summed = self.sum_(torch.cat([part.flatten() for part in parts])).split([part.numel() for part in parts])
        for gradient, total in zip(gradients, summed, strict=False):
            gradient.copy_(total.view_as(gradient))
        total_loss: Tensor = summed[-1][0]
        return total_loss.to(loss.dtype)

    def copy_from_first_(self, tensors: Iterable[Tensor]) -> None:
        """Copy process 0's tensors to all processes, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def broadcast(self, value: Any) -> Any:
        """Return process 0's plain value in every process."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def agree(self, stop: bool, elapsed: float) -> tuple[bool, float]:
        """Return whether any process wants to stop, and the ``elapsed`` seconds of process 0."""
        if self.size == 1:
            return stop, elapsed
        flags = torch.tensor([float(stop), elapsed * self.is_writer], dtype=torch.float64, device=self.device)
        any_stop, clock = self.sum_(flags).tolist()
        return any_stop > 0, clock


_joins = itertools.count()  # number of joins so far; the same in all processes of a job


@contextmanager
def join(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, and leave them at the end of the block.

    Without torchrun there is one process. An existing process group is used and not closed.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    begun = not (dist.is_available() and dist.is_initialized()) and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if begun:
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                f"WORLD_SIZE is set but {', '.join(missing)} is not; start the processes with torchrun, or unset "
                "WORLD_SIZE"
            )
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        _connect("nccl" if chosen.type == "cuda" else "gloo")
    try:
        if dist.is_available() and dist.is_initialized():
            yield Processes(chosen, dist.get_rank(), dist.get_world_size())
        else:
            yield Processes(chosen)
    finally:
        if begun and dist.is_initialized():
            dist.destroy_process_group()


def _connect(backend: str) -> None:
    store, rank, size = next(rendezvous("env://"))
    # The store keeps the addresses of a closed group. A prefix for each join hides them from later groups.
    store = PrefixStore(f"join-{next(_joins)}", store)
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        # On one machine torchrun keeps its store when it restarts the processes. A prefix for each attempt hides the
        # addresses of the dead processes.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device for ``"auto"``, ``"cuda"`` or any name that torch knows.

    Raises ValueError if the device does not exist here.

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
            raise ValueError(f"device={name!r} was requested, but torch finds no GPU; use device='cpu' or 'auto'")
        index = device.index if device.index is not None else local_rank
        if index >= torch.cuda.device_count():
            raise ValueError(
                f"device {index} was requested, but this machine has {torch.cuda.device_count()} GPUs; start at most "
                "one process per GPU"
            )
        return torch.device("cuda", index)
    return device
