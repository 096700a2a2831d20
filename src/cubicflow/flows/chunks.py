"""The hook of the flows: large calls in chunks of a fixed number of rows. ``cubicflow.accel`` replaces the hook to
replay the kernels of one chunk on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cubicflow.hooks import hook

# (rows, context) -> tensors with one entry for each row
RowFunction = Callable[[Tensor, Tensor | None], tuple[Tensor, ...]]


class Chunks:
    """The default hook, which computes one chunk after the other."""

    def apply(
        self, function: RowFunction, rows: Tensor, context: Tensor | None, size: int, module: nn.Module
    ) -> tuple[Tensor, ...]:
        """Apply ``function``, a method of ``module``, to ``size`` rows at a time. Memory is needed for one chunk only.

        >>> function = lambda x, _: (x, x.sum(1))
        >>> Chunks().apply(function, torch.arange(6.0).reshape(3, 2), None, 2, torch.nn.Identity())[1]
        tensor([1., 5., 9.])
        """
        parts = rows.split(size)  # an empty batch gives one empty part
        contexts = [None] * len(parts) if context is None else context.split(size)
        if len(parts) == 1:
            return function(parts[0], contexts[0])
        function = self.repeated(function, parts, module)
        results = [function(part, part_context) for part, part_context in zip(parts, contexts, strict=True)]
        return tuple(torch.cat(output) for output in zip(*results, strict=True))

    def repeated(self, function: RowFunction, parts: tuple[Tensor, ...], module: nn.Module) -> RowFunction:  # noqa: ARG002
        """Return the function that is called for all chunks."""
        return function


chunks = hook("flows", Chunks)
