"""Record kernels once as a CUDA graph, and launch them together from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

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
            _abort(graph)
            raise
        graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, returned


def _abort(graph: torch.cuda.CUDAGraph) -> None:
    """End a failed capture. A failed capture leaves the random generator in capture mode. An empty capture that
    succeeds resets the generator."""
    try:
        graph.capture_end()
    except RuntimeError:
        after = torch.cuda.CUDAGraph()
        after.capture_begin()
        after.capture_end()
