"""In which precision products of matrices are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.light_calls import with_signature


@contextmanager
def float32_products(tf32: bool, device: torch.device) -> Iterator[None]:
    """Whether products of float32 matrices, and convolutions, may use TF32 inside; on a GPU alone they can."""
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


def exact_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight' + bias in the precision of the weight, forward and backward, whatever autocast and TF32 settings say.

    >>> exact_linear(torch.ones(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[7.]])
    """
    inputs = x.to(weight.dtype)
    if torch.compiler.is_compiling() and x.is_cuda:  # settings cannot change inside compiled code, but float64 has none
        outputs = F.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    elif x.is_cuda:
        outputs = _ExactLinear.apply(inputs, weight, bias)
    else:
        with torch.autocast(x.device.type, enabled=False):
            outputs = F.linear(inputs, weight, bias)
    return outputs.to(x.dtype)


class _ExactLinear(torch.autograd.Function):
    """Its backward pass is made of itself, so it is exact as well, to any order."""

    generate_vmap_rule = True

    @staticmethod
    @with_signature
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast(x.device.type, enabled=False), float32_products(tf32=False, device=x.device):
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
        grad_x = _ExactLinear.apply(grad, weight.T, None) if ctx.needs_input_grad[0] else None
        grad_weight = _ExactLinear.apply(grad.T, x.T, None) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad.sum(0) if ctx.has_bias else None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor | None, weight_tangent: Tensor | None, bias_tangent: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        out: Tensor | None = None if bias_tangent is None else bias_tangent.expand(len(x), -1)
        for inputs, matrix in ((x_tangent, weight), (x, weight_tangent)):
            if inputs is not None and matrix is not None:
                part = _ExactLinear.apply(inputs, matrix, None)
                out = part if out is None else out + part
        return torch.zeros(len(x), len(weight), dtype=x.dtype, device=x.device) if out is None else out
