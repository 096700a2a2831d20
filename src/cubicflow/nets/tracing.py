"""Calls that are recorded as a graph: whether a call is, and tensors that every graph can hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def is_traced() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` records this call. A graph should not
    depend on the number of rows, nor on whether gradients are on."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined] # public, but not listed


def constant_tensor(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Return a tensor of these values. It may be shared, so do not change it in place.

    On a GPU the tensor is made once per process. A CUDA graph cannot capture a copy from the CPU, so a step that made
    the tensor again could not be captured.

    >>> constant_tensor([2, 0, 1], torch.device("cpu"))
    tensor([2, 0, 1])
    """
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(values, dtype=dtype, device=device)
    return _made_once(tuple(values), device, dtype)


@lru_cache(maxsize=4096)
def _made_once(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # a later training step may save the tensor for its backward pass
        return torch.tensor(values, dtype=dtype, device=device)
