"""Whose random numbers are drawn: those of torch's generator, which all threads share, or of one that a fit owns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Held by whoever seeds torch's generator, until the numbers that the seed is for are drawn.
SHARED_GENERATOR = threading.RLock()

_own: ContextVar[torch.Generator | None] = ContextVar("own_generator", default=None)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Inside, in this thread alone, modules of cubicflow draw from this generator where it is on their device.

    >>> x, layer = torch.ones(5), Dropout(0.5)
    >>> with drawing_from(torch.Generator().manual_seed(0)):
    ...     own = layer(x)
    >>> _ = torch.manual_seed(0)
    >>> torch.equal(own, layer(x))
    True
    """
    token = _own.set(generator)
    try:
        yield
    finally:
        _own.reset(token)


def own_generator(device: torch.device) -> torch.Generator | None:
    """The generator to draw from on a device; None is torch's, and the one that compiled code knows."""
    if torch.compiler.is_compiling():
        return None
    generator = _own.get()
    return generator if generator is not None and generator.device == device else None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What is drawn inside from torch's generator is told by the seed, and that generator goes on as it would have. For
    short work, such as making a network: other threads that need the generator wait. A generator of one's own goes on
    where the seeded one ends.

    >>> with seeded(0):
    ...     one = torch.rand(2)
    >>> with seeded(0):
    ...     print(torch.equal(one, torch.rand(2)))
    True
    """
    with SHARED_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
        if (generator := own_generator(torch.device("cpu"))) is not None:
            generator.set_state(torch.default_generator.get_state())


class Dropout(nn.Dropout):
    """Dropout by the own generator, where there is one. The same seed drops the same elements either way."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """The same as a function."""
    generator = own_generator(x.device)
    if generator is None or not training or not 0 < p < 1:
        return F.dropout(x, p, training)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)
