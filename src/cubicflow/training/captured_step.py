"""A whole training step as one CUDA graph: the GPU never waits for Python to launch the next of its many kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.flows.capture import capture
from cubicflow.nets.linear import Fork
from cubicflow.training.losses import SINGLE_PASS
from cubicflow.training.step import Step

WARM_UP_STEPS = 3  # kernels compile, libraries choose algorithms and allocate; none of that may happen in a capture


class CapturedStep:
    """Takes the steps of a :class:`Step` by replaying a graph of one, captured at the first call.

    What a step reads is copied into buffers that stay where they are; the learning rate and the averaging weight are
    tensors already, and a step that is not finite voids itself, so a replay needs nothing from Python. Where a step
    cannot be captured (several processes, a loss of the user's own), it is taken as it is, and on a GPU ``say`` is told
    why.
    """

    def __init__(self, step: Step, say: Callable[[str], None]) -> None:
        self.step = step
        self.say = say
        self.graph: torch.cuda.CUDAGraph | None = None
        self.buffers: Batch | None = None
        self.captures = step.world.device.type == "cuda"
        if self.captures and step.world.size > 1:
            self._give_up("several processes exchange gradients in the middle of them")
        elif self.captures and step.loss not in SINGLE_PASS:
            self._give_up("the loss is a function of your own, of which a replay would only repeat the kernels")
        if self.captures:
            step.fork = Fork(step.world.device)

    def __call__(self, batch: Batch) -> None:
        if self.captures and self.graph is None:
            self._capture(batch)
        if self.graph is None or self.buffers is None or batch.x.shape != self.buffers.x.shape:
            self.step(batch)
            return
        for buffer, part in zip(self.buffers, batch, strict=True):
            if buffer is not None and part is not None:
                buffer.copy_(part)
        self.graph.replay()
        # A replay writes the weights without telling autograd, whose count of versions caches rely on.
        self.step.flat.written()

    def _capture(self, batch: Batch) -> None:
        """Rehearse on a stream of its own, capture, and put everything back as it was before the rehearsal."""
        tensors = written_by(self.step)
        kept = [tensor.detach().clone() for tensor in tensors]
        random_state = torch.cuda.get_rng_state(self.step.world.device)
        buffers = Batch(*(None if part is None else part.clone() for part in batch))  # type: ignore[arg-type]
        stream = torch.cuda.Stream(self.step.world.device)
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    self.step(buffers)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph, _ = capture(lambda: self.step(buffers), self.step.world.device)
            self.buffers = buffers
        except RuntimeError as error:
            self._give_up(str(error).splitlines()[0])
        finally:
            _put_back(tensors, kept)
            torch.cuda.set_rng_state(random_state, self.step.world.device)

    def _give_up(self, reason: str) -> None:
        self.captures = False
        self.step.fork = None
        self.say(f"steps are not captured as one CUDA graph, and so are slower: {reason}")


def written_by(step: Step) -> list[Tensor]:
    """Every tensor that a step changes."""
    averages = [] if step.averages is None else [step.averages.vector]
    record = [step.count, step.loss_sum, step.gradient_norm, step.failed_at]
    return [*step.flow.state_dict().values(), *step.adam.moments.values(), *averages, *record]


@torch.no_grad()
def _put_back(tensors: list[Tensor], kept: list[Tensor]) -> None:
    for tensor, value in zip(tensors, kept, strict=True):
        tensor.copy_(value)
