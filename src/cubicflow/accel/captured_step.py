"""A whole training step as one CUDA graph: the GPU never waits for Python to launch the next of its many kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cubicflow.accel.capture import capture
from cubicflow.accel.flat_weights import CAN_FUSE, FlatWeights, FusedAdam, can_be_flat
from cubicflow.accel.forked_gradients import Fork
from cubicflow.accel.safety import why_unsafe
from cubicflow.data.rows import Batch
from cubicflow.hooks import fill
from cubicflow.training.adam import Adam
from cubicflow.training.losses import SINGLE_PASS
from cubicflow.training.parts import Parts
from cubicflow.training.weights import Weights

if TYPE_CHECKING:
    from cubicflow.training.step import Step

WARM_UP_STEPS = 3  # kernels compile, libraries choose algorithms and allocate; none of that may happen in a capture
NOT_CAPTURED = "steps are not captured as one CUDA graph, and so are slower: {}"


class FastParts(Parts):
    """Flat weights where they can be, and captured steps on a GPU."""

    def weights(self, params: Sequence[Tensor]) -> Weights:
        return FlatWeights(params) if can_be_flat(params) else super().weights(params)

    def adam(self, weights: Weights, beta2: float, weight_decay: float) -> Adam:
        fused = CAN_FUSE and len(weights.tensors) == 1
        return (FusedAdam if fused else Adam)(weights.tensors, beta2, weight_decay)

    def repeated(self, step: Step, say: Callable[[str], None]) -> Callable[[Batch], None]:
        if step.world.device.type != "cuda":
            return step
        if reason := why_not_captured(step):
            say(NOT_CAPTURED.format(reason))
            return step
        return CapturedStep(step, say)


def why_not_captured(step: Step) -> str | None:
    """Why a step cannot be captured, or None."""
    if step.world.size > 1:
        return "several processes exchange gradients in the middle of them"
    if step.loss not in SINGLE_PASS:
        return "the loss is a function of your own, of which a replay would only repeat the kernels"
    return why_unsafe(step.flow)


class CapturedStep:
    """Takes the steps of a :class:`~cubicflow.training.step.Step` by replaying a graph of one, captured at the first
    call.

    What a step reads is copied into buffers that stay where they are; the learning rate and the averaging weight are
    tensors already, and a step that is not finite voids itself, so a replay needs nothing from Python. Where the
    capture fails, steps are taken as they are, and ``say`` is told why.
    """

    def __init__(self, step: Step, say: Callable[[str], None]) -> None:
        self.step = step
        self.say = say
        self.captures = True
        self.graph: torch.cuda.CUDAGraph | None = None
        self.buffers: Batch | None = None
        step.passes = Fork(step.world.device).weight_gradients

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
        self.step.weights.written()  # a replay does not tell autograd

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
            self.captures = False
            self.step.passes = nullcontext
            self.say(NOT_CAPTURED.format(str(error).splitlines()[0]))
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, kept, strict=True):
                    tensor.copy_(value)
            torch.cuda.set_rng_state(random_state, self.step.world.device)


def written_by(step: Step) -> list[Tensor]:
    """Every tensor that a step changes."""
    averages = [] if step.averages is None else step.averages.tensors
    moments = [tensor for tensors in step.adam.moments.values() for tensor in tensors]
    record = [step.count, step.loss_sum, step.gradient_norm, step.failed_at]
    return [*step.flow.state_dict().values(), *moments, *averages, *record]


fill("training", FastParts)
