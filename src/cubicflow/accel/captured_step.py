"""A training step as one CUDA graph, so that the GPU does not wait for Python between kernels."""

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
from cubicflow.training.losses import is_one_pass
from cubicflow.training.optimiser import Adam, Weights
from cubicflow.training.parts import Parts

if TYPE_CHECKING:
    from cubicflow.training.step import Step

# Warm-up steps before a capture. In these steps kernels compile, and libraries choose algorithms and allocate memory. A
# capture allows none of that.
WARM_UP_STEPS = 3
NOT_CAPTURED = "training steps are slower, because they are not captured as one CUDA graph: {}"


class FastParts(Parts):
    """Training parts with flat weights where possible, and with captured steps on a GPU."""

    def weights(self, params: Sequence[Tensor]) -> Weights:
        return FlatWeights(params) if can_be_flat(params) else super().weights(params)

    def adam(self, weights: Weights, beta2: float, weight_decay: float) -> Adam:
        fused = CAN_FUSE and len(weights.tensors) == 1
        return (FusedAdam if fused else Adam)(weights.tensors, beta2, weight_decay)

    def repeated(self, step: Step, notify: Callable[[str], None]) -> Callable[[Batch], None]:
        if step.processes.device.type != "cuda":
            return step
        if reason := why_not_captured(step):
            notify(NOT_CAPTURED.format(reason))
            return step
        return CapturedStep(step, notify)


def why_not_captured(step: Step) -> str | None:
    """Return the reason why a step cannot be captured, or None."""
    if step.processes.size > 1:
        return "several processes exchange gradients within a step"
    if not is_one_pass(step.loss):
        return (
            "the loss is a custom function, and a replay would repeat its kernels without its Python code; if it calls "
            "every layer once and always runs the same kernels, mark it with cubicflow.training.one_pass"
        )
    return why_unsafe(step.flow)


class CapturedStep:
    """A :class:`~cubicflow.training.step.Step` that is captured as a graph at the first call and replayed from then on.

    Each batch is copied into fixed buffers that the graph reads. The learning rate and the averaging weight are
    tensors, and a step with a result that is not finite cancels itself on the device. A replay therefore needs no
    Python. If the capture fails, every call runs the plain step, and ``notify`` gets the reason.
    """

    def __init__(self, step: Step, notify: Callable[[str], None]) -> None:
        self.step = step
        self.notify = notify
        self.can_capture = True
        self.graph: torch.cuda.CUDAGraph | None = None
        self.buffers: Batch | None = None
        step.passes = Fork(step.processes.device).weight_gradients

    def __call__(self, batch: Batch) -> None:
        if self.can_capture and self.graph is None:
            self._capture(batch)
        if self.graph is None or self.buffers is None or batch.x.shape != self.buffers.x.shape:
            self.step(batch)
            return
        for buffer, part in zip(self.buffers, batch, strict=True):
            if buffer is not None and part is not None:
                buffer.copy_(part)
        self.graph.replay()
        self.step.weights.written()  # autograd does not see that a replay changed the weights

    def _capture(self, batch: Batch) -> None:
        """Warm up on a separate stream, capture the step, and restore all tensors and the generator."""
        tensors = written_by(self.step)
        originals = [tensor.detach().clone() for tensor in tensors]
        random_state = torch.cuda.get_rng_state(self.step.processes.device)
        buffers = Batch(*(None if part is None else part.clone() for part in batch))  # type: ignore[arg-type]
        stream = torch.cuda.Stream(self.step.processes.device)
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    self.step(buffers)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph, _ = capture(lambda: self.step(buffers), self.step.processes.device)
            self.buffers = buffers
        except RuntimeError as error:
            self.can_capture = False
            self.step.passes = nullcontext
            self.notify(NOT_CAPTURED.format(str(error).splitlines()[0]))
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, originals, strict=True):
                    tensor.copy_(value)
            torch.cuda.set_rng_state(random_state, self.step.processes.device)


def written_by(step: Step) -> list[Tensor]:
    """Return every tensor that a step changes."""
    averages = [] if step.averages is None else step.averages.tensors
    moments = [tensor for tensors in step.adam.moments.values() for tensor in tensors]
    record = [step.count, step.loss_sum, step.gradient_norm, step.failed_at]
    # Not from state_dict, which lacks the buffers that are not saved.
    return [*step.flow.parameters(), *step.flow.buffers(), *moments, *averages, *record]


fill("training", FastParts)
