"""A training step as one CUDA graph, and the batches of a validation as another: the GPU does not wait for Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cubicflow.accel.capture import Captured, Replay, random_numbers_kept
from cubicflow.accel.flat_weights import CAN_FUSE, FlatWeights, FusedAdam, can_be_flat
from cubicflow.accel.safety import why_unsafe
from cubicflow.accel.side_stream import SideStream
from cubicflow.data.rows import Batch
from cubicflow.hooks import use_faster
from cubicflow.splines.dispatch import BACKENDS
from cubicflow.training.losses import is_one_pass
from cubicflow.training.optimiser import Adam, Weights
from cubicflow.training.step_hook import StepHook

if TYPE_CHECKING:
    from cubicflow.training.step import Step

# Warm-up steps before a capture. In these steps kernels compile, and libraries choose algorithms and allocate memory. A
# capture allows none of that.
WARM_UP_STEPS = 3
NOT_CAPTURED = "training steps are slower, because they are not captured as one CUDA graph: {}"


class FastStepHook(StepHook):
    """The training step with flat weights where possible, captured on a GPU."""

    def weights(self, params: Sequence[Tensor]) -> Weights:
        return FlatWeights(params) if can_be_flat(params) else super().weights(params)

    def adam(self, weights: Weights, beta2: float, weight_decay: float) -> Adam:
        fused = CAN_FUSE and len(weights.tensors) == 1
        return (FusedAdam if fused else Adam)(weights.tensors, beta2, weight_decay)

    def finish(self, step: Step, gradients: list[Tensor], loss: Tensor) -> Tensor:
        on_gpu = gradients[0].is_cuda and BACKENDS["triton"].unavailable() is None
        if on_gpu and isinstance(step.weights, FlatWeights) and gradients[0].dtype == torch.float32:
            from cubicflow.accel.fused_update import update  # Triton may be missing

            return update(step, gradients[0], loss)
        return super().finish(step, gradients, loss)

    def prepared_step(self, step: Step, notify: Callable[[str], None]) -> Callable[[Batch], None]:
        if step.processes.device.type != "cuda":
            return step
        if reason := why_not_captured(step):
            notify(NOT_CAPTURED.format(reason))
            return step
        return CapturedStep(step, notify)

    def prepared_validation(self, step: Step, notify: Callable[[str], None]) -> Callable[[Batch], Tensor]:
        if step.processes.device.type != "cuda" or why_not_captured(step):
            return step.validation_sums
        return captured_validation(step, notify)


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
        self.replay: Replay | None = None
        step.passes = SideStream(step.processes.device).weight_gradients

    def __call__(self, batch: Batch) -> None:
        if self.can_capture and self.replay is None:
            self._capture(batch)
        if self.replay is None or not self.replay.takes(batch):
            self.step(batch)
            return
        self.replay(*batch)
        self.step.weights.bump_versions()  # autograd does not see that a replay changed the weights

    def _capture(self, batch: Batch) -> None:
        """Warm up on a separate stream, capture the step, and restore all tensors and the generator."""
        device = self.step.processes.device
        tensors = written_by(self.step)
        originals = [tensor.detach().clone() for tensor in tensors]
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with random_numbers_kept(device):
            try:
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UP_STEPS):
                        self.step(batch)
                torch.cuda.current_stream().wait_stream(stream)
                self.replay = Replay(lambda *parts: self.step(Batch(*parts)), batch, device)
            except RuntimeError as error:
                self.can_capture = False
                self.step.passes = nullcontext
                self.notify(NOT_CAPTURED.format(str(error).splitlines()[0]))
            finally:
                with torch.no_grad():
                    for tensor, value in zip(tensors, originals, strict=True):
                        tensor.copy_(value)


def captured_validation(step: Step, notify: Callable[[str], None]) -> Captured:
    """Return :meth:`~cubicflow.training.step.Step.validation_sums` by graphs that are kept for the whole run. They read
    the weights where steps write them, so they serve every validation, of the raw and of the averaged weights."""
    return Captured(
        lambda *parts: step.validation_sums(Batch(*parts)),
        step.processes.device,
        lambda reason: notify(f"validation is slower, because it is not captured: {reason}"),
    )


def written_by(step: Step) -> list[Tensor]:
    """Return every tensor that a step changes."""
    averages = [] if step.averages is None else step.averages.tensors
    moments = [tensor for tensors in step.adam.moments.values() for tensor in tensors]
    record = [step.count, step.loss_sum, step.gradient_norm, step.failed_at]
    # Not from state_dict, which lacks the buffers that are not saved.
    return [*step.flow.parameters(), *step.flow.buffers(), *moments, *averages, *record]


use_faster("training", FastStepHook)
