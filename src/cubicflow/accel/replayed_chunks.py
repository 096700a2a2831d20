"""Large calls on a GPU: capture the kernels of one chunk and replay them for the other chunks."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from cubicflow.accel.capture import Replay
from cubicflow.accel.safety import why_unsafe
from cubicflow.flows.chunks import Chunks, RowFunction
from cubicflow.hooks import use_faster

CHUNKS_WORTH_A_CAPTURE = 8  # chunks; with fewer, a capture costs more than it saves


class FastChunks(Chunks):
    """Chunks that replay the captured kernels of one chunk, if there are many chunks."""

    def repeated(
        self, function: RowFunction, parts: tuple[Tensor, ...], context: Tensor | None, module: nn.Module
    ) -> RowFunction:
        if not parts[0].is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function
        if len(parts) <= CHUNKS_WORTH_A_CAPTURE or torch.cuda.is_current_stream_capturing() or why_unsafe(module):
            return function
        with suppress(RuntimeError):  # a failed capture, for example for lack of memory; the plain function still works
            return replayed(function, parts[0], context)
        return function


def replayed(function: RowFunction, rows: Tensor, context: Tensor | None) -> RowFunction:
    """Return an equivalent function that replays the kernels of one call. Inputs with another number of rows go to
    ``function`` itself."""
    replay = Replay(function, (rows, context), rows.device)

    def call(rows: Tensor, context: Tensor | None) -> tuple[Tensor, ...]:
        if not replay.takes((rows, context)):
            return function(rows, context)
        return tuple(output.clone() for output in replay(rows, context))

    return call


use_faster("flows", FastChunks)
