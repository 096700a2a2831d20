"""Gradients of weights on a second stream, concurrent with the rest of the backward pass. Only the update needs the
gradients of weights, while each earlier layer waits for the gradient of its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.accel.private import find
from cubicflow.hooks import use_faster
from cubicflow.nets.precision import exactly
from cubicflow.nets.products import Products

HAS_TRITON = find_spec("triton") is not None
_addmm_activation = find("torch", "_addmm_activation")


class SideStream:
    """A second stream for work whose results are needed only at :meth:`wait`.

    Until then ``keep_alive`` refers to the tensors that the work reads. The references keep the allocator from
    reusing the memory. They also keep autograd from adding a gradient in place into a tensor that is still being read:
    autograd adds in place only if it holds the only reference.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.keep_alive: list[Tensor] = []
        self.uses: Counter[int] = Counter()  # of weights and biases, by address, in the forward pass

    @contextmanager
    def weight_gradients(self) -> Iterator[None]:
        """Compute the gradients of weights on the second stream, in a block with one forward and one backward pass. The
        gradients are ready when the block ends. The gradients of a weight that is used twice stay on the current
        stream, because autograd adds them without waiting for the second one."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
        self.wait()
        self.keep_alive.clear()
        self.uses.clear()

    def wait(self) -> None:
        """Make the current stream wait for the second stream. Without work on it, the second stream is not part of a
        capture that may be in progress, and waiting for it would break the capture."""
        if self.keep_alive:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


_current: ContextVar[SideStream | None] = ContextVar("side_stream", default=None)


def in_captured_pass() -> bool:
    """Return whether this is the one forward pass of a step that accel/safety.py has proved to need no Python code."""
    return not torch.compiler.is_compiling() and _current.get() is not None


class FastProducts(Products):
    """Products with faster kernels on a GPU. Inside :meth:`SideStream.weight_gradients` the gradients of weights and
    biases run on the side stream. With gradients off, a product and its relu are one kernel."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
        if torch.compiler.is_compiling() or not x.is_cuda or x.ndim != 2 or torch.is_autocast_enabled("cuda"):
            return super().linear(x, weight, bias, relu=relu)
        side = _current.get()
        if side is not None:
            outputs: Tensor = _SideStreamLinear.apply(x, weight, bias, relu, False, side)
            return outputs
        if relu and not torch.is_grad_enabled():
            return _linear_relu(x, weight, bias)
        return super().linear(x, weight, bias, relu=relu)

    def exact(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        side = None if torch.compiler.is_compiling() or x.ndim != 2 else _current.get()
        if side is None:
            return super().exact(x, weight, bias)
        outputs: Tensor = _SideStreamLinear.apply(x.to(weight.dtype), weight, bias, False, True, side)
        return outputs.to(x.dtype)

    def add_norm(
        self, stream: Tensor, added: Tensor | None, norm: nn.LayerNorm, *, dtype: torch.dtype, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Use one fused kernel if the gradient is taken at most once. The kernel has no second derivative."""
        if stream.is_cuda and HAS_TRITON and not torch.compiler.is_compiling():
            from cubicflow.accel import fused_norms

            once = _current.get() is not None or not torch.is_grad_enabled()
            if once and fused_norms.can_fuse(stream, added, norm, dtype):
                return fused_norms.add_norm(stream, added, norm, dtype, dropout)
        return super().add_norm(stream, added, norm, dtype=dtype, dropout=dropout)

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
        """Use a special kernel for a single query. Torch's kernels take as long for one query as for a whole tile."""
        alone = queries.shape[2] == 1 and not torch.is_grad_enabled()
        if alone and queries.is_cuda and HAS_TRITON and not torch.compiler.is_compiling():
            from cubicflow.accel import one_query

            if one_query.can_attend(queries, keys, values):
                return one_query.attend(queries, keys, values)
        return super().attention(queries, keys, values, causal=causal)

    def computed_weights(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Join the second stream before the gradients of these weights go further back. Weights that are parameters
        themselves do not need this: their gradients are not read before the update."""
        side = None if torch.compiler.is_compiling() else _current.get()
        joined: Sequence[Tensor] = weights if side is None else _JoinStreams.apply(side, *weights)
        return joined


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or _addmm_activation is None:
        return F.relu(F.linear(x, weight, bias))
    outputs: Tensor = _addmm_activation(bias, x, weight.T)
    return outputs


class _SideStreamLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, exact: bool, side: SideStream
    ) -> Tensor:
        with exactly(x.device) if exact else nullcontext():
            outputs = _linear_relu(x, weight, bias) if relu else F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, *([outputs] if relu else []))
        ctx.has_bias, ctx.exact, ctx.side = bias is not None, exact, side
        ctx.addresses = [part.data_ptr() for part in (weight, bias) if part is not None]
        side.uses.update(ctx.addresses)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *outputs = ctx.saved_tensors
        if outputs:
            grad = torch.ops.aten.threshold_backward(grad, outputs[0], 0)
        side: SideStream = ctx.side
        used_once = all(side.uses[address] == 1 for address in ctx.addresses)
        if used_once:
            side.stream.wait_stream(torch.cuda.current_stream())
            side.keep_alive += [grad, x]
        with exactly(x.device) if ctx.exact else nullcontext():
            with torch.cuda.stream(side.stream) if used_once else nullcontext():
                grad_weight = grad.T @ x
                grad_bias = grad.sum(0) if ctx.has_bias else None
            grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        return grad_x, grad_weight, grad_bias, None, None, None


class _JoinStreams(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, side: SideStream, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.side = side
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.side.wait()
        return None, *grads


use_faster("nets", FastProducts)
