"""Large calls on a GPU: capture the kernels of one piece and replay them for the other pieces."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from cubicflow.accel.capture import capture
from cubicflow.accel.safety import why_unsafe
from cubicflow.flows.pieces import Pieces, RowFunction
from cubicflow.hooks import fill

PIECES_WORTH_A_CAPTURE = 8  # pieces; with fewer, a capture costs more than it saves


class ReplayedPieces(Pieces):
    """Pieces that replay the captured kernels of one piece, if there are many pieces."""

    def repeated(
        self, function: RowFunction, parts: tuple[Tensor, ...], context: Tensor | None, module: nn.Module
    ) -> RowFunction:
        if not parts[0].is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function
        if len(parts) <= PIECES_WORTH_A_CAPTURE or torch.cuda.is_current_stream_capturing() or why_unsafe(module):
            return function
        with suppress(RuntimeError):  # a failed capture, for example for lack of memory; the plain function still works
            return replayed(function, parts[0], context)
        return function


def replayed(function: RowFunction, rows: Tensor, context: Tensor | None) -> RowFunction:
    """Return an equivalent function that replays the kernels of one call. Inputs with another number of rows go to
    ``function`` itself."""
    buffers = rows.clone(), None if context is None else context.clone()
    graph, outputs = capture(lambda: function(*buffers), rows.device)

    def replay(part: Tensor, part_context: Tensor | None) -> tuple[Tensor, ...]:
        if part.shape != buffers[0].shape:
            return function(part, part_context)
        buffers[0].copy_(part)
        if buffers[1] is not None and part_context is not None:
            buffers[1].copy_(part_context)
        graph.replay()
        return tuple(output.clone() for output in outputs)

    return replay


fill("flows", ReplayedPieces)
