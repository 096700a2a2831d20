"""Linear layers whose weight gradients can run beside the rest of the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets.precision import exactly


class Fork:
    """A second stream for work that nothing waits for until :meth:`join`.

    What the work reads and writes is held until then. That keeps its memory from being given away, and autograd from
    adding the next gradient into one that is still being read: it does so in place where it holds the only reference.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.held: list[Tensor] = []
        self._ones: dict[tuple[int, torch.dtype], Tensor] = {}

    def ones_like_column(self, matrix: Tensor) -> Tensor:
        """Ones, by which a product sums the rows of a matrix: in a third of the time that ``sum`` takes for few rows.
        They are made once."""
        key = len(matrix), matrix.dtype
        if key not in self._ones:
            self._ones[key] = torch.ones(len(matrix), dtype=matrix.dtype, device=matrix.device)
        return self._ones[key]

    def wait(self) -> None:
        """Make the current stream wait for what was forked. Where nothing was, the stream knows nothing of a capture
        that may be going on, and must not be waited for."""
        if self.held:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    def join(self) -> None:
        """Wait, and let go of what was held."""
        self.wait()
        self.held.clear()


_fork: ContextVar[Fork | None] = ContextVar("fork", default=None)


@contextmanager
def weight_gradients_on(fork: Fork | None) -> Iterator[None]:
    """Layers called inside leave the gradients of their weights to ``fork``, which has to be joined before anyone reads
    them; a layer may be called only once. None changes nothing."""
    token = _fork.set(fork)
    try:
        yield
    finally:
        _fork.reset(token)


def waited_for(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """The same weights; where their gradients are left to a fork, what made the weights gets them when they are there.
    Weights that are parameters themselves do not need it: nobody reads their gradients before the step does."""
    fork = None if torch.compiler.is_compiling() else _fork.get()
    waiting: Sequence[Tensor] = weights if fork is None else _WaitedFor.apply(fork, *weights)
    return waiting


class Linear(nn.Linear):
    """A linear layer. Called inside :func:`weight_gradients_on`, its backward pass computes the gradients of weight and
    bias on another stream: nothing waits for them until the update, while every layer below waits for the gradient of
    the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        forked = forked_linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias) if forked is None else forked

    def activated(self, x: Tensor) -> Tensor:
        """relu of the outputs, in one kernel on a GPU where autograd does not need to see both."""
        forked = forked_linear(x, self.weight, self.bias, relu=True)
        if forked is not None:
            return forked
        if x.is_cuda and x.ndim == 2 and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda"):
            return _linear_relu(x, self.weight, self.bias)
        return F.relu(F.linear(x, self.weight, self.bias))


def forked_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False, exact: bool = False
) -> Tensor | None:
    """x weight' + bias, with the gradients of weight and bias left to the fork there is; None where there is none, or
    where autocast has a say. ``exact`` products do not heed it, nor TF32."""
    if torch.compiler.is_compiling() or x.ndim != 2 or (torch.is_autocast_enabled("cuda") and not exact):
        return None
    fork = _fork.get()
    outputs: Tensor | None = None if fork is None else _ForkedLinear.apply(x, weight, bias, relu, exact, fork)
    return outputs


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return F.relu(F.linear(x, weight))
    outputs: Tensor = torch._addmm_activation(bias, x, weight.T)
    return outputs


class _ForkedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, exact: bool, fork: Fork) -> Tensor:  # type: ignore[no-untyped-def]
        with exactly(x.device) if exact else nullcontext():
            outputs = _linear_relu(x, weight, bias) if relu else F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, *([outputs] if relu else []))
        ctx.has_bias, ctx.exact, ctx.fork = bias is not None, exact, fork
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        x, weight, *outputs = ctx.saved_tensors
        if outputs:
            grad = torch.ops.aten.threshold_backward(grad, outputs[0], 0)
        fork: Fork = ctx.fork
        fork.stream.wait_stream(torch.cuda.current_stream())
        fork.held += [grad, x]
        with exactly(x.device) if ctx.exact else nullcontext():
            with torch.cuda.stream(fork.stream):
                grad_weight = grad.T @ x
                grad_bias = grad.T @ fork.ones_like_column(grad) if ctx.has_bias else None
            grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        return grad_x, grad_weight, grad_bias, None, None, None


class _WaitedFor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fork: Fork, *weights: Tensor) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        ctx.fork = fork
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        ctx.fork.wait()
        return None, *grads
