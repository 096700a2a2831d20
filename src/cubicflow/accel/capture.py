"""Kernels recorded once, as a CUDA graph, and launched together from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def capture(run: Callable[[], T], device: torch.device) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of the kernels that ``run`` launches, and the tensors it returned, which every replay fills anew.

    Nothing runs yet. Whatever compiles or chooses its algorithm at a first call has to have had that call. A ``run``
    that waits for the GPU cannot be captured, and raises RuntimeError.
    """
    # torch.cuda.graph, the context manager, also empties the allocator's cache, and some versions collect garbage:
    # more work than a capture.
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            returned = run()
        except BaseException:
            _break_off(graph)
            raise
        graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, returned


def _break_off(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that failed. It leaves the random generator believing that it goes on; one that ends well tells it
    otherwise."""
    try:
        graph.capture_end()
    except RuntimeError:
        after = torch.cuda.CUDAGraph()
        after.capture_begin()
        after.capture_end()
