"""Gradients of weights on a second stream, concurrent with the rest of the backward pass. Only the update needs the
gradients of weights, while each earlier layer waits for the gradient of its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.accel.private import find
from cubicflow.hooks import use_faster
from cubicflow.nets.precision import exactly
from cubicflow.nets.products import Products

HAS_TRITON = find_spec("triton") is not None
_addmm_activation = find("torch", "_addmm_activation")


class Fork:
    """A second stream for work whose results are needed only at :meth:`wait`.

    Until then the fork holds references to the tensors that the work reads. The references keep the allocator from
    reusing the memory. They also keep autograd from adding a gradient in place into a tensor that is still being read:
    autograd adds in place only if it holds the only reference.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.held: list[Tensor] = []
        self.uses: Counter[int] = Counter()  # of weights and biases, by address, in the forward pass
        self._ones: dict[tuple[int, torch.dtype], Tensor] = {}

    @contextmanager
    def weight_gradients(self) -> Iterator[None]:
        """Compute the gradients of weights on the second stream, in a block with one forward and one backward pass. The
        gradients are ready when the block ends. The gradients of a weight that is used twice stay on the current
        stream, because autograd adds them without waiting for the second one."""
        token = _fork.set(self)
        try:
            yield
        finally:
            _fork.reset(token)
        self.wait()
        self.held.clear()
        self.uses.clear()

    def ones_like_column(self, matrix: Tensor) -> Tensor:
        """Return a cached vector of ones, with one entry per row of the matrix."""
        key = len(matrix), matrix.dtype
        if key not in self._ones:
            self._ones[key] = torch.ones(len(matrix), dtype=matrix.dtype, device=matrix.device)
        return self._ones[key]

    def wait(self) -> None:
        """Make the current stream wait for the second stream. Without forked work the second stream is not part of a
        capture that may be in progress, and waiting for it would break the capture."""
        if self.held:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


_fork: ContextVar[Fork | None] = ContextVar("fork", default=None)


class ForkedProducts(Products):
    """Products with faster kernels on a GPU. Inside :meth:`Fork.weight_gradients` the gradients of weights and biases
    run on the fork's stream. With gradients off, a product and its relu are one kernel."""

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
        """Use one fused kernel if the gradient is taken at most once. The kernel has no second derivative."""
        if stream.is_cuda and HAS_TRITON and not torch.compiler.is_compiling():
            from cubicflow.accel import fused_norms

            once = _fork.get() is not None or not torch.is_grad_enabled()
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
        fork = None if torch.compiler.is_compiling() else _fork.get()
        joined: Sequence[Tensor] = weights if fork is None else _JoinStreams.apply(fork, *weights)
        return joined


def sum_of_rows(matrix: Tensor, fork: Fork) -> Tensor:
    """Return the sum of the rows, as a product with ones: for few rows it takes a third of the time of ``sum``."""
    return matrix.T @ fork.ones_like_column(matrix)


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
        ctx.addresses = [part.data_ptr() for part in (weight, bias) if part is not None]
        fork.uses.update(ctx.addresses)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        x, weight, *outputs = ctx.saved_tensors
        if outputs:
            grad = torch.ops.aten.threshold_backward(grad, outputs[0], 0)
        fork: Fork = ctx.fork
        used_once = all(fork.uses[address] == 1 for address in ctx.addresses)
        if used_once:
            fork.stream.wait_stream(torch.cuda.current_stream())
            fork.held += [grad, x]
        with exactly(x.device) if ctx.exact else nullcontext():
            with torch.cuda.stream(fork.stream) if used_once else nullcontext():
                grad_weight = grad.T @ x
                grad_bias = sum_of_rows(grad, fork) if ctx.has_bias else None
            grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        return grad_x, grad_weight, grad_bias, None, None, None


class _JoinStreams(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fork: Fork, *weights: Tensor) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        ctx.fork = fork
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        ctx.fork.wait()
        return None, *grads


use_faster("nets", ForkedProducts)
