"""Work as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cubicflow.accel.capture import capture


class Captured:
    """The same work as a CUDA graph, as it runs inside a training step: what is left is the time of the kernels,
    without the time Python takes to launch them. It is captured at the first call, so that a capture that fails is a
    contender that fails."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.graph: torch.cuda.CUDAGraph | None = None
        self.returned: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        # What compiles or chooses algorithms may not do so in a capture, and gradients remember the stream of the
        # first pass: so it is rehearsed, and on another stream than the one that everything else runs on.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        # What a run returns has to live as long as the graph, which writes there.
        self.graph, self.returned = capture(self.run, torch.device("cuda", torch.cuda.current_device()))
