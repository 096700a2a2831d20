"""Gradients of weights on a second stream, beside the rest of the backward pass: nothing waits for them until the
update, while every layer below waits for the gradient of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.accel.private import find
from cubicflow.hooks import fill
from cubicflow.nets.precision import exactly
from cubicflow.nets.products import Products

HAS_TRITON = find_spec("triton") is not None
_addmm_activation = find("torch", "_addmm_activation")


class Fork:
    """A second stream for work that nothing waits for until :meth:`join`.

    What the work reads and writes is held until then. That keeps its memory from being given away, and autograd from
    adding the next gradient into one that is still being read: it does so in place where it holds the only reference.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.held: list[Tensor] = []
        self._ones: dict[tuple[int, torch.dtype], Tensor] = {}

    @contextmanager
    def weight_gradients(self) -> Iterator[None]:
        """A forward and a backward pass whose gradients of weights are there when the block ends. No weight may be used
        twice in it: autograd would add two gradients without waiting for them."""
        token = _fork.set(self)
        try:
            yield
        finally:
            _fork.reset(token)
        self.wait()
        self.held.clear()

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


_fork: ContextVar[Fork | None] = ContextVar("fork", default=None)


class ForkedProducts(Products):
    """Inside :meth:`Fork.weight_gradients` the gradients of weights and biases are left to the fork. Without gradients
    a rectifier on a GPU is part of the product's kernel."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
        if torch.compiler.is_compiling() or not x.is_cuda or x.ndim != 2 or torch.is_autocast_enabled("cuda"):
            return super().linear(x, weight, bias, relu=relu)
        fork = _fork.get()
        if fork is not None:
            outputs: Tensor = _ForkedLinear.apply(x, weight, bias, relu, False, fork)
            return outputs
        if relu and not torch.is_grad_enabled():
            return _linear_relu(x, weight, bias)
        return super().linear(x, weight, bias, relu=relu)

    def exact(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        fork = None if torch.compiler.is_compiling() or x.ndim != 2 else _fork.get()
        if fork is None:
            return super().exact(x, weight, bias)
        outputs: Tensor = _ForkedLinear.apply(x.to(weight.dtype), weight, bias, False, True, fork)
        return outputs.to(x.dtype)

    def add_norm(
        self, stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, *, dtype: torch.dtype, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """One kernel, where its gradient is known to be taken once or not at all."""
        if stream.is_cuda and HAS_TRITON and not torch.compiler.is_compiling():
            from cubicflow.accel import fused_norms

            once = _fork.get() is not None or not torch.is_grad_enabled()
            if once and fused_norms.can_fuse(stream, added, norm, dtype):
                return fused_norms.add_norm(stream, added, norm, dtype, dropout)
        return super().add_norm(stream, added, norm, dtype=dtype, dropout=dropout)

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
        """A kernel of its own where a single query is asked for: those of torch take as long as for a whole tile."""
        alone = queries.shape[2] == 1 and not torch.is_grad_enabled()
        if alone and queries.is_cuda and HAS_TRITON and not torch.compiler.is_compiling():
            from cubicflow.accel import one_query

            if one_query.can_attend(queries, keys, values):
                return one_query.attend(queries, keys, values)
        return super().attention(queries, keys, values, causal=causal)

    def made(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """What made the weights gets their gradients when those are there. Weights that are parameters themselves do
        not need it: nobody reads their gradients before the step does."""
        fork = None if torch.compiler.is_compiling() else _fork.get()
        waiting: Sequence[Tensor] = weights if fork is None else _WaitedFor.apply(fork, *weights)
        return waiting


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or _addmm_activation is None:
        return F.relu(F.linear(x, weight, bias))
    outputs: Tensor = _addmm_activation(bias, x, weight.T)
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


fill("nets", ForkedProducts)
