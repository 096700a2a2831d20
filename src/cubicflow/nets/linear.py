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
        """Make the current stream wait for all that was forked."""
        torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        self.held.clear()


_fork: ContextVar[Fork | None] = ContextVar("fork", default=None)


class Linear(nn.Linear):
    """A linear layer. Called inside :func:`weight_gradients_on`, its backward pass computes the gradients of weight and
    bias on another stream: nothing waits for them until the update, while every layer below waits for the gradient of
    the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            fork = _fork.get()
            if fork is not None and x.ndim == 2 and not torch.is_autocast_enabled("cuda"):
                outputs: Tensor = _ForkedLinear.apply(x, self.weight, self.bias, fork)
                return outputs
        return F.linear(x, self.weight, self.bias)


@contextmanager
def weight_gradients_on(fork: Fork | None) -> Iterator[None]:
    """Layers called inside leave the gradients of their weights to ``fork``, which has to be joined before anyone reads
    them; a layer may be called only once. None changes nothing."""
    token = _fork.set(fork)
    try:
        yield
    finally:
        _fork.reset(token)


class _ForkedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, fork: Fork) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        ctx.fork = fork
        return F.linear(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        fork = ctx.fork
        fork.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(fork.stream):
            grad_weight, grad_bias = grad.T @ x, grad.sum(0)
        fork.held += [grad, x]
        return grad @ weight if ctx.needs_input_grad[0] else None, grad_weight, grad_bias, None
