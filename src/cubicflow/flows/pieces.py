"""Large calls in pieces of so many rows: the hook of the flows, in which a GPU may replay one piece for all others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cubicflow.hooks import hook

# (rows, context) -> tensors with a row for each row
RowFunction = Callable[[Tensor, Tensor | None], tuple[Tensor, ...]]


class Pieces:
    """The plain way: one piece after the other."""

    def apply(
        self, function: RowFunction, rows: Tensor, context: Tensor | None, size: int, module: nn.Module
    ) -> tuple[Tensor, ...]:
        """``function``, a method of ``module``, of ``size`` rows at a time: memory is that of one piece.

        >>> function = lambda x, _: (x, x.sum(1))
        >>> Pieces().apply(function, torch.arange(6.0).reshape(3, 2), None, 2, torch.nn.Identity())[1]
        tensor([1., 5., 9.])
        """
        parts = rows.split(size)  # no rows are one empty part, so an empty batch works too
        contexts = [None] * len(parts) if context is None else context.split(size)
        results = [function(parts[0], contexts[0])]
        if len(parts) == 1:
            return results[0]
        function = self.repeated(function, parts, contexts[0], module)
        results += [function(part, told) for part, told in zip(parts[1:], contexts[1:], strict=True)]
        return tuple(torch.cat(output) for output in zip(*results, strict=True))

    def repeated(
        self,
        function: RowFunction,
        parts: tuple[Tensor, ...],  # noqa: ARG002
        context: Tensor | None,  # noqa: ARG002
        module: nn.Module,  # noqa: ARG002
    ) -> RowFunction:
        """The function as it is called for all pieces but the first. ``context`` is that of the first."""
        return function


pieces = hook("flows", Pieces)
