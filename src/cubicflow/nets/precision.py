"""Matrix products in full precision, independent of autocast and TF32 settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.calls import calls


def has_autocast(device: torch.device) -> bool:
    """Return whether the device has autocast: every device but meta.

    Compiled code of torch 2.8 cannot call ``torch.amp.is_autocast_available``.
    """
    return device.type != "meta"


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Compute inside the block in the dtypes of the operands."""
    return torch.autocast(device.type, enabled=False) if has_autocast(device) else nullcontext()


def widened(x: Tensor) -> Tensor:
    """Return x in a dtype for exact products and solves: on a GPU float64, which TF32 does not affect; elsewhere
    float32 or wider, because solvers do not take half precision."""
    return x.double() if x.is_cuda else x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def float32_products(tf32: bool, device: torch.device) -> Iterator[None]:
    """Allow or forbid TF32 inside the block, for products of float32 matrices and for convolutions. On devices other
    than a GPU, the block has no effect."""
    backends: list[Any] = []
    if device.type == "cuda":
        backends = [torch.backends.cuda.matmul, torch.backends.cudnn.conv]  # type: ignore[attr-defined] # made at import
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


@contextmanager
def exactly(device: torch.device) -> Iterator[None]:
    """Compute products inside the block in the precision of their operands, without autocast and TF32."""
    with without_autocast(device), float32_products(tf32=False, device=device):
        yield


def exact_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x weight' + bias, computed in the precision of the weight. Forward and backward ignore autocast and TF32
    settings.

    >>> exact_linear(torch.ones(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[7.]])
    """
    inputs = x.to(weight.dtype)
    # Compiled code cannot change the TF32 setting, so it computes in float64, which TF32 does not affect.
    if torch.compiler.is_compiling() and x.is_cuda:
        outputs = F.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    elif x.is_cuda:
        outputs = _apply(inputs, weight, bias)
    else:
        with without_autocast(x.device):
            outputs = F.linear(inputs, weight, bias)
    return outputs.to(x.dtype)


class _ExactLinear(torch.autograd.Function):
    """The exact product on a GPU. Its backward pass consists of exact products, so all derivatives are exact too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with exactly(x.device):
            return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = _apply(grad, weight.T, None) if ctx.needs_input_grad[0] else None
        grad_weight = _apply(grad.T, x.T, None) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad.sum(0) if ctx.has_bias else None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor | None, weight_tangent: Tensor | None, bias_tangent: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        out: Tensor | None = None if bias_tangent is None else bias_tangent.expand(len(x), -1)
        for inputs, matrix in ((x_tangent, weight), (x, weight_tangent)):
            if inputs is not None and matrix is not None:
                part = _apply(inputs, matrix, None)
                out = part if out is None else out + part
        return torch.zeros(len(x), len(weight), dtype=x.dtype, device=x.device) if out is None else out


_apply = calls.fast_apply(_ExactLinear)
