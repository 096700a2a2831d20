"""Linear layers whose weight gradients can run beside the rest of the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Fork:
    """A second stream for work that nothing waits for until :meth:`join`.

    What the work reads and writes is held until then. That keeps its memory from being given away, and autograd from
    adding the next gradient into one that is still being read: it does so in place where it holds the only reference.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.held: list[Tensor] = []

    def join(self) -> None:
        """Make the current stream wait for what was forked. Where nothing was, the stream knows nothing of a capture
        that may be going on, and must not be waited for."""
        if self.held:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
            self.held.clear()


_fork: ContextVar[Fork | None] = ContextVar("fork", default=None)


class Linear(nn.Linear):
    """A linear layer. Called inside :func:`weight_gradients_on`, its backward pass computes the gradients of weight and
    bias on another stream: nothing waits for them until the update, while every layer below waits for the gradient of
    the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        fork = self._fork_for(x)
        if fork is not None:
            outputs: Tensor = _ForkedLinear.apply(x, self.weight, self.bias, False, fork)
            return outputs
        return F.linear(x, self.weight, self.bias)

    def activated(self, x: Tensor) -> Tensor:
        """relu of the outputs, in one kernel on a GPU where autograd does not need to see both."""
        fork = self._fork_for(x)
        if fork is not None:
            outputs: Tensor = _ForkedLinear.apply(x, self.weight, self.bias, True, fork)
            return outputs
        if x.is_cuda and x.ndim == 2 and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda"):
            return _linear_relu(x, self.weight, self.bias)
        return F.relu(F.linear(x, self.weight, self.bias))

    def _fork_for(self, x: Tensor) -> Fork | None:
        if torch.compiler.is_compiling() or x.ndim != 2 or torch.is_autocast_enabled("cuda"):
            return None
        return _fork.get()


@contextmanager
def weight_gradients_on(fork: Fork | None) -> Iterator[None]:
    """Layers called inside leave the gradients of their weights to ``fork``, which has to be joined before anyone reads
    them; a layer may be called only once. None changes nothing."""
    token = _fork.set(fork)
    try:
        yield
    finally:
        _fork.reset(token)


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    outputs: Tensor = torch._addmm_activation(bias, x, weight.T)
    return outputs


class _ForkedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, relu: bool, fork: Fork) -> Tensor:  # type: ignore[no-untyped-def]
        outputs = _linear_relu(x, weight, bias) if relu else F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, *([outputs] if relu else []))
        ctx.fork = fork
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:  # type: ignore[no-untyped-def]
        x, weight, *outputs = ctx.saved_tensors
        if outputs:
            grad = torch.ops.aten.threshold_backward(grad, outputs[0], 0)
        fork = ctx.fork
        fork.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(fork.stream):
            grad_weight, grad_bias = grad.T @ x, grad.sum(0)
        fork.held += [grad, x]
        return grad @ weight if ctx.needs_input_grad[0] else None, grad_weight, grad_bias, None, None
