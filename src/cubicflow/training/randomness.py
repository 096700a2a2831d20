"""The random numbers of a fit: functions of its seed and the step, whatever other threads draw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.nets.draws import SHARED_GENERATOR, drawing_from

# Modules of torch's that draw nothing.
QUIET = tuple(
    f"torch.nn.modules.{name}" for name in ("batchnorm", "container", "conv", "linear", "normalization", "sparse")
)


class Randomness:
    """Seeds what a fit draws.

    Modules and losses of cubicflow's draw on the CPU from a generator that the fit owns. Others know torch's alone,
    which all threads share. Then the fits of several threads take turns: each holds the generator for one step.

    Attributes:
        own: the generator, or None.
    """

    def __init__(self, flow: nn.Module, device: torch.device, *, known_loss: bool) -> None:
        self.device = device
        known = known_loss and device.type == "cpu" and all(map(_is_known, flow.modules()))
        self.own = torch.Generator() if known else None

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """What is drawn inside is told by the seed."""
        if self.own is None:
            with SHARED_GENERATOR:
                seed_everything(seed, self.device)
                yield
            return
        with SHARED_GENERATOR:  # for hooks, which may draw as well
            seed_everything(seed, self.device)
        self.own.manual_seed(seed)
        with drawing_from(self.own):
            yield


def _is_known(module: nn.Module) -> bool:
    where = type(module).__module__
    return (where.startswith("cubicflow.") or where in QUIET) and "forward" not in vars(module)


def seed_everything(seed: int, device: torch.device) -> None:
    """Torch's own generators, on the CPU and on the device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)


_here = threading.local()  # whether this thread keeps the state
_threads = 0  # that keep it
_kept: list[tuple[Callable[[Tensor], Any], Tensor]] = []


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Whatever is drawn or seeded inside, torch's generators go on as they would have. Of several threads that are
    inside, the first to come notes the state and the last to go restores it."""
    global _threads
    if getattr(_here, "keeps", False):
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
        return
    with SHARED_GENERATOR:
        if _threads == 0:
            _kept.append((torch.set_rng_state, torch.get_rng_state()))
            # By torch's functions: the list of generators is empty until the first call to the GPU.
            _kept.extend(
                (partial(torch.cuda.set_rng_state, device=index), torch.cuda.get_rng_state(index))
                for index in range(torch.cuda.device_count() if device.type == "cuda" else 0)
            )
        _threads += 1
    _here.keeps = True
    try:
        yield
    finally:
        _here.keeps = False
        with SHARED_GENERATOR:
            _threads -= 1
            if _threads == 0:
                for restore, state in _kept:
                    restore(state)
                _kept.clear()
