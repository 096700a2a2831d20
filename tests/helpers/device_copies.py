"""The copies between Python and the device that a repeated step makes, seen on the meta device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch.overrides import TorchFunctionMode

COPIES = ("tensor", "as_tensor", "new_tensor", "from_numpy", "item", "cpu", "tolist")


class CopiesSeen(TorchFunctionMode):
    """The names of the calls that copy between Python or the CPU and the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        parts = index if isinstance(index, tuple) else (index,)
        if name in COPIES or any(isinstance(part, list) for part in parts):
            self.names.add(name)
        return func(*args, **(kwargs or {}))


def copies(step: Callable[[], object]) -> set[str]:
    """Take a first step on the meta device, and return the copies that a second step makes.

    Tensors there have a device that is not the CPU, as on a GPU, but no values. Networks ask for autocast, which that
    device lacks.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        patch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
        step()
        with CopiesSeen() as seen:
            step()
    return seen.names
