"""The precision of matrix products on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def float32_products(tf32: bool, device: torch.device) -> Iterator[None]:
    """Allow or forbid TF32 inside the block, for products of float32 matrices and for convolutions. On devices other
    than a GPU, the block has no effect."""
    backends: list[Any] = []
    if device.type == "cuda":
        backends = [torch.backends.cuda.matmul, torch.backends.cudnn.conv]  # type: ignore[attr-defined] # made at import
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


@contextmanager
def exactly(device: torch.device) -> Iterator[None]:
    """Compute products inside the block in the precision of their operands, without autocast and TF32."""
    with torch.autocast(device.type, enabled=False), float32_products(tf32=False, device=device):
        yield
