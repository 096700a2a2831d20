"""Record kernels once as a CUDA graph, and launch them together from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def capture(run: Callable[[], T], device: torch.device) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a graph of the kernels that ``run`` launches, and the tensors that ``run`` returned. Every replay
    overwrites these tensors.

    The capture executes no kernel. Call ``run`` at least once before: kernels must not compile or choose an algorithm
    during a capture. A ``run`` that waits for the GPU cannot be captured and raises a RuntimeError.
    """
    # The context manager torch.cuda.graph also empties the allocator's cache, and in some versions collects garbage.
    # That takes longer than the capture.
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            returned = run()
        except BaseException:
            _abort(graph, device)
            raise
        graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, returned


class Replay:
    """One call of a function of tensors as a CUDA graph, for inputs of the same shapes.

    A call copies its inputs into the buffers that the graph reads, and launches the captured kernels. It returns the
    tensors of the captured call, which the next call overwrites.

    Args:
        function: the function. It was called at least once with inputs of these shapes; see :func:`capture`.
        inputs: the inputs of the captured call: tensors, or None.
        device: the GPU.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Tensor | None], device: torch.device) -> None:
        self.buffers = tuple(None if part is None else part.clone() for part in inputs)
        self.graph, self.outputs = capture(lambda: function(*self.buffers), device)

    def takes(self, inputs: Sequence[Tensor | None]) -> bool:
        """Return whether the inputs have the shapes of the captured call."""
        return shapes(inputs) == shapes(self.buffers)

    def __call__(self, *inputs: Tensor | None) -> Any:
        for buffer, part in zip(self.buffers, inputs, strict=True):
            if buffer is not None and part is not None:
                buffer.copy_(part)
        self.graph.replay()
        return self.outputs


def shapes(inputs: Sequence[Tensor | None]) -> tuple[torch.Size | None, ...]:
    """Return the shape of each input."""
    return tuple(None if part is None else part.shape for part in inputs)


def _abort(graph: torch.cuda.CUDAGraph, device: torch.device) -> None:
    """End a failed capture. A failed capture leaves the random generator in capture mode. A capture that succeeds
    resets the generator.

    torch warns about a graph without kernels, so that capture has one. A filter of warnings would act on all threads.
    """
    try:
        graph.capture_end()
    except RuntimeError:
        number = torch.zeros((), device=device)  # its kernel is loaded before the capture
        after = torch.cuda.CUDAGraph()
        after.capture_begin()
        number.zero_()
        after.capture_end()
