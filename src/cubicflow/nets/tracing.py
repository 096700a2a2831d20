"""Whether code runs to make a graph."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` records this call. A graph should not
    depend on the number of rows, nor on whether gradients are on."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined] # public, but not listed
