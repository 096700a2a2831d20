"""The choice of the random generator: torch's generator, which all threads share, or a generator that belongs to a
fit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The lock of torch's generator. Code that seeds the generator holds the lock until its numbers are drawn.
SHARED_GENERATOR = threading.RLock()

_thread_generator: ContextVar[torch.Generator | None] = ContextVar("current_generator", default=None)


@contextmanager
def use_generator(generator: torch.Generator) -> Iterator[None]:
    """Make cubicflow's modules draw from this generator inside the block, in this thread only. Modules on another
    device than the generator's still draw from torch's generator.

    >>> x, layer = torch.ones(5), Dropout(0.5)
    >>> with use_generator(torch.Generator().manual_seed(0)):
    ...     own = layer(x)
    >>> _ = torch.manual_seed(0)
    >>> torch.equal(own, layer(x))
    True
    """
    token = _thread_generator.set(generator)
    try:
        yield
    finally:
        _thread_generator.reset(token)


def current_generator(device: torch.device) -> torch.Generator | None:
    """Return the generator of this thread for a device. None means torch's generator, which compiled code always
    uses."""
    if torch.compiler.is_compiling():
        return None
    generator = _thread_generator.get()
    return generator if generator is not None and generator.device == device else None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator inside the block, and restore its state afterwards.

    Other threads that need the generator wait, so the block must be short, such as the construction of a network. If
    this thread has its own generator on the CPU, that generator continues from the state at the end of the block.

    >>> with seeded(0):
    ...     one = torch.rand(2)
    >>> with seeded(0):
    ...     print(torch.equal(one, torch.rand(2)))
    True
    """
    with SHARED_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
        if (generator := current_generator(torch.device("cpu"))) is not None:
            generator.set_state(torch.default_generator.get_state())


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Make functions of torch that take no generator draw from ``generator`` inside the block. None: from torch's own.
    Other threads that need torch's generator wait.

    >>> generator = torch.Generator().manual_seed(3)
    >>> with drawing_from(generator):
    ...     one = torch.rand(2)
    >>> torch.equal(one, torch.rand(2, generator=generator.manual_seed(3)))
    True
    """
    if generator is None:
        yield
        return
    on_cpu, index = generator.device.type == "cpu", generator.device.index
    default = torch.default_generator if on_cpu else torch.cuda.default_generators[index or 0]
    with SHARED_GENERATOR:
        state = default.get_state()
        default.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(default.get_state())
            default.set_state(state)


def normal_start(shape: tuple[int, ...], seed: int, like: Tensor) -> Tensor:
    """Return standard normal numbers that depend on the seed alone, in the dtype and on the device of ``like``. On the
    meta device they have a shape only: a constructor that runs there computes no values."""
    if like.is_meta:
        return like.new_empty(shape)
    return torch.randn(shape, device="cpu", generator=torch.Generator().manual_seed(seed)).to(like)


class Dropout(nn.Dropout):
    """A dropout layer that draws from the thread's own generator, if there is one. The same seed drops the same
    elements with either generator."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Return x after dropout with probability ``p``, drawn as in :class:`Dropout`."""
    generator = current_generator(x.device)
    if generator is None or not training or not 0 < p < 1:
        return F.dropout(x, p, training)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)
