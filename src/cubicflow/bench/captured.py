"""Work captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cubicflow.accel.capture import capture


class Captured:
    """Work replayed as a CUDA graph, as inside a training step.

    The time of a replay is the time of the kernels, without the time that Python takes to launch them. The graph is
    captured at the first call, so that a failed capture counts as a failed contender.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.graph: torch.cuda.CUDAGraph | None = None
        self.returned: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        # Warm up on a side stream: compilation and the choice of algorithms are not allowed during a capture, and
        # gradients remember the stream of the first pass.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        # Keep the returned tensors alive as long as the graph, because the graph writes into them.
        self.graph, self.returned = capture(self.run, torch.device("cuda", torch.cuda.current_device()))
