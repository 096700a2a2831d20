"""The random numbers of a fit: they depend only on its seed and the step, not on what other threads draw."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from cubicflow.nets.replaced_methods import replaced_in_class, replaced_method
from cubicflow.nets.rng import SHARED_GENERATOR, use_generator

# torch's modules that draw no random numbers.
DRAW_NOTHING = tuple(
    f"torch.nn.modules.{name}" for name in ("batchnorm", "container", "conv", "linear", "normalization", "sparse")
)


class Randomness:
    """Seeding of the random numbers that a fit draws.

    On the CPU, cubicflow's modules and losses draw from a generator that the fit owns. Other modules draw from torch's
    generator, which all threads share. Then the fits of several threads take turns: each locks torch's generator for
    one step.

    Attributes:
        own: the fit's own generator; None if the fit uses torch's generator.
    """

    def __init__(self, flow: nn.Module, device: torch.device, *, known_loss: bool) -> None:
        self.device = device
        known = known_loss and device.type == "cpu" and _is_known(flow)
        self.own = torch.Generator() if known else None

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed the generators for the draws inside the block."""
        if self.own is None:
            with SHARED_GENERATOR:
                seed_everything(seed, self.device)
                yield
            return
        with SHARED_GENERATOR:  # module hooks may draw from torch's generator
            seed_everything(seed, self.device)
        self.own.manual_seed(seed)
        with use_generator(self.own):
            yield


def _is_known(flow: nn.Module) -> bool:
    """Return whether all modules of a flow are cubicflow's, or torch's that draw nothing, with unchanged methods."""
    kinds = {type(module) for module in flow.modules()}
    listed = all(kind.__module__.startswith("cubicflow.") or kind.__module__ in DRAW_NOTHING for kind in kinds)
    replaced = any(map(replaced_method, flow.modules())) or any(map(replaced_in_class, kinds))
    return listed and not replaced


def seed_everything(seed: int, device: torch.device) -> None:
    """Seed torch's generators of the CPU and of the device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)


_this_thread = threading.local()  # ``keeps`` is True inside random_state_kept
_threads = 0  # number of threads inside random_state_kept
_restoring = ExitStack()  # restores the state that the first of them found


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Restore the state of torch's generators at the end of the block.

    If several threads are inside the block at once, the first to enter saves the state and the last to leave restores
    it.
    """
    global _threads
    kept = torch.random.fork_rng(range(torch.cuda.device_count()) if device.type == "cuda" else [])
    if getattr(_this_thread, "keeps", False):
        with kept:
            yield
        return
    with SHARED_GENERATOR:
        if _threads == 0:
            _restoring.enter_context(kept)
        _threads += 1
    _this_thread.keeps = True
    try:
        yield
    finally:
        _this_thread.keeps = False
        with SHARED_GENERATOR:
            _threads -= 1
            if _threads == 0:
                _restoring.close()
