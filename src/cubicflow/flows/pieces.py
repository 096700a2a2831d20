"""Large calls in pieces of so many rows: memory is that of one piece, and on a GPU many are replays of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from cubicflow.flows.capture import capture

# (rows, context) -> tensors with a row for each row
RowFunction = Callable[[Tensor, Tensor | None], tuple[Tensor, ...]]
PIECES_WORTH_A_CAPTURE = 8


def worth_a_capture(rows: int, size: int) -> bool:
    """Whether there are so many pieces of that size that one is better captured.

    >>> worth_a_capture(1_000, 100), worth_a_capture(1_000, 500)
    (True, False)
    """
    return rows > PIECES_WORTH_A_CAPTURE * size


def in_pieces(
    function: RowFunction, rows: Tensor, context: Tensor | None, size: int, *, replay: bool = False
) -> tuple[Tensor, ...]:
    """``function`` of ``size`` rows at a time. ``replay`` says that it does nothing but launch kernels on a GPU, always
    the same ones: they may be launched again without it.

    >>> in_pieces(lambda x, _: (x, x.sum(1)), torch.arange(6.0).reshape(3, 2), None, 2)[1]
    tensor([1., 5., 9.])
    """
    parts = rows.split(size)  # no rows are one empty part, so an empty batch works too
    contexts = [None] * len(parts) if context is None else context.split(size)
    pieces = [function(parts[0], contexts[0])]
    if replay:
        with suppress(RuntimeError):  # such as too little memory for a capture: then it goes as without
            function = replayed(function, parts[0], contexts[0])
    pieces += [function(part, told) for part, told in zip(parts[1:], contexts[1:], strict=True)]
    if len(pieces) == 1:
        return pieces[0]
    return tuple(torch.cat(output) for output in zip(*pieces, strict=True))


def replayed(function: RowFunction, rows: Tensor, context: Tensor | None) -> RowFunction:
    """The same function, by replaying the kernels of one call where there are as many rows."""
    buffers = rows.clone(), None if context is None else context.clone()
    graph, outputs = capture(lambda: function(*buffers), rows.device)

    def replay(part: Tensor, told: Tensor | None) -> tuple[Tensor, ...]:
        if part.shape != buffers[0].shape:
            return function(part, told)
        buffers[0].copy_(part)
        if buffers[1] is not None and told is not None:
            buffers[1].copy_(told)
        graph.replay()
        return tuple(output.clone() for output in outputs)

    return replay
