"""The pieces of a large call on a GPU as replays of one."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from cubicflow.accel.capture import capture
from cubicflow.accel.safety import why_unsafe
from cubicflow.flows.pieces import Pieces, RowFunction
from cubicflow.hooks import fill

PIECES_WORTH_A_CAPTURE = 8


class ReplayedPieces(Pieces):
    """Where there are many pieces, the kernels of one are captured and launched again for the others."""

    def repeated(
        self, function: RowFunction, parts: tuple[Tensor, ...], context: Tensor | None, module: nn.Module
    ) -> RowFunction:
        if not parts[0].is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function
        if len(parts) <= PIECES_WORTH_A_CAPTURE or torch.cuda.is_current_stream_capturing() or why_unsafe(module):
            return function
        with suppress(RuntimeError):  # such as too little memory for a capture: then it goes as without
            return replayed(function, parts[0], context)
        return function


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


fill("flows", ReplayedPieces)
