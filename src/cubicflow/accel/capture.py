"""Record kernels once as a CUDA graph, and launch them together from then on. The hook of large calls in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cubicflow.accel.safety import why_unsafe
from cubicflow.flows.chunks import Chunks, RowFunction
from cubicflow.hooks import use_faster

T = TypeVar("T")
CHUNKS_WORTH_A_CAPTURE = 8  # chunks; with fewer, a capture costs more than it saves
SHAPES_CAPTURED = 2  # shapes of inputs of one function: of whole batches or chunks, and of the last one


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


class Captured:
    """A function of tensors by CUDA graphs that are kept, one for each shape of the inputs.

    A shape is captured when it comes for the second time: the first call compiles kernels and lets libraries choose
    algorithms. Only the first shapes are captured. If a capture fails, all calls from then on are plain.

    A call may overwrite the outputs of the call before it.

    Args:
        function: the function, called with the inputs as arguments.
        device: the GPU.
        notify: is called with the reason if a capture fails.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device, notify: Callable[[str], object] = lambda _: None
    ) -> None:
        self.function, self.device, self.notify = function, device, notify
        self.can_capture = True
        self.replays: dict[tuple[torch.Size | None, ...], Replay | None] = {}  # by the shapes of the inputs

    def __call__(self, inputs: Sequence[Tensor | None]) -> Any:
        key = shapes(inputs)
        if self.can_capture and key in self.replays and self.replays[key] is None:
            self._capture(inputs)
        if len(self.replays) < SHAPES_CAPTURED:
            self.replays.setdefault(key, None)
        replay = self.replays.get(key)
        return self.function(*inputs) if replay is None else replay(*inputs)

    def _capture(self, inputs: Sequence[Tensor | None]) -> None:
        with random_numbers_kept(self.device):
            try:
                self.replays[shapes(inputs)] = Replay(self.function, inputs, self.device)
            except RuntimeError as error:
                self.can_capture = False
                self.notify(str(error).splitlines()[0])


@contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """Restore the state of the GPU's generator at the end of the block: a capture and its warm-up draw nothing."""
    state = torch.cuda.get_rng_state(device)
    try:
        yield
    finally:
        torch.cuda.set_rng_state(state, device)


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


class FastChunks(Chunks):
    """Chunks that replay the captured kernels of one chunk, if there are many chunks."""

    def repeated(self, function: RowFunction, parts: tuple[Tensor, ...], module: nn.Module) -> RowFunction:
        if not parts[0].is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function
        if len(parts) <= CHUNKS_WORTH_A_CAPTURE or torch.cuda.is_current_stream_capturing() or why_unsafe(module):
            return function
        captured = Captured(function, parts[0].device)
        return lambda rows, context: tuple(output.clone() for output in captured((rows, context)))


use_faster("flows", FastChunks)
