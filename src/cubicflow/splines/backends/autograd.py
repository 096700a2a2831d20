"""Autograd, tracing and vmap for backends with kernels that compute values only.

A backend provides two functions of plain tensors: a spline and its vector-Jacobian product. :func:`differentiable`
turns them into operators that tracers see as one node, and into the backend's ``evaluate``:

- The operators have no autograd rule. An ``autograd.Function`` around the operators has the rule, because a rule
  registered on an operator makes ``jacrev`` raise and ``jacfwd`` return zeros.
- The backward pass is a second Function. Its backward recomputes through the reference, so derivatives of second and
  higher order are correct, and first-order gradients do not pay for them.
- Forward mode raises, because neither Function has a ``jvp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cubicflow.splines.backends import reference
from cubicflow.splines.calls import calls
from cubicflow.splines.spec import SplineSpec, output_shape

Pair = tuple[Tensor, Tensor]
# (x, params, spec) -> (y, log_slope). x has the shape of the output; params broadcast against it.
Forward = Callable[[Tensor, Tensor, SplineSpec], Pair]
# (x, params, grad_y, grad_log_slope, spec) -> (grad_x, grad_params), with the shapes of x and params.
Backward = Callable[[Tensor, Tensor, Tensor, Tensor, SplineSpec], Pair]
Evaluate = Callable[[SplineSpec, Tensor, Tensor], Pair]

_SPEC = "str family, int num_bins, bool inverse, str domain, str? slopes, float min_bin_width, float min_bin_height"
_OPERATORS = torch.library.Library("cubicflow", "FRAGMENT")


def differentiable(name: str, forward: Forward, backward: Backward, devices: tuple[str, ...]) -> Evaluate:
    """Define the operators ``cubicflow::<name>_spline`` and ``..._backward``. Return the backend's ``evaluate``."""
    forward_op, backward_op = _define(name, forward, backward, devices)

    def call_forward(x: Tensor, params: Tensor, spec: SplineSpec) -> Pair:
        if calls.plain_eager(x, params):
            return forward(x, params, spec)
        result: Pair = forward_op(x, params, *spec)
        return result

    def call_backward(x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, spec: SplineSpec) -> Pair:
        if calls.plain_eager(x, params, grad_y, grad_log_slope):
            return backward(x, params, grad_y, grad_log_slope, spec)
        result: Pair = backward_op(x, params, grad_y, grad_log_slope, *spec)
        return result

    class Spline(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, params: Tensor, spec: SplineSpec) -> Pair:
            return call_forward(x, params, spec)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
            x, params, ctx.spec = inputs
            ctx.save_for_backward(x, params)

        @staticmethod
        def backward(ctx: Any, grad_y: Tensor, grad_log_slope: Tensor) -> tuple[Tensor | None, ...]:
            x, params = ctx.saved_tensors
            if torch.is_grad_enabled():
                grads = SplineBackward.apply(x, params, grad_y, grad_log_slope, ctx.spec)
            else:
                grads = call_backward(x, params, grad_y, grad_log_slope, ctx.spec)
            return *grads, None

    class SplineBackward(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, spec: SplineSpec) -> Pair:
            return call_backward(x, params, grad_y, grad_log_slope, spec)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
            *tensors, ctx.spec = inputs
            ctx.save_for_backward(*tensors)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            def first_order(x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor) -> Any:
                pull = torch.func.vjp(lambda x, params: reference.evaluate(ctx.spec, x, params), x, params)[1]
                return pull((grad_y, grad_log_slope))

            pull = torch.func.vjp(first_order, *ctx.saved_tensors)[1]
            return *pull(grads), None

    apply = calls.fast_apply(Spline)

    def evaluate(spec: SplineSpec, x: Tensor, params: Tensor) -> Pair:
        shape = output_shape(x.shape, params.shape)
        if x.shape != shape:
            x = x.expand(shape)
        if calls.needs_no_grad(x, params):
            return call_forward(x, params, spec)
        result: Pair = apply(x, params, spec)
        return result

    return evaluate


def _define(name: str, forward: Forward, backward: Backward, devices: tuple[str, ...]) -> tuple[Any, Any]:
    names = f"{name}_spline", f"{name}_spline_backward"

    def run_forward(x: Tensor, params: Tensor, *spec: Any) -> Pair:
        return forward(x, params, SplineSpec(*spec))

    def run_backward(x: Tensor, params: Tensor, grad_y: Tensor, grad_log_slope: Tensor, *spec: Any) -> Pair:
        return backward(x, params, grad_y, grad_log_slope, SplineSpec(*spec))

    def fake_forward(x: Tensor, params: Tensor, *spec: Any) -> Pair:
        return x.new_empty(x.shape), x.new_empty(x.shape)

    def fake_backward(x: Tensor, params: Tensor, *rest: Any) -> Pair:
        return x.new_empty(x.shape), torch.empty_like(params)

    def vmap_forward(info: Any, in_dims: Any, x: Tensor, params: Tensor, *spec: Any) -> tuple[Pair, tuple[int, int]]:
        return forward_op(*_batch_first(info.batch_size, in_dims, x, params), *spec), (0, 0)

    def vmap_backward(info: Any, in_dims: Any, *arguments: Any) -> tuple[Pair, tuple[int, int]]:
        params, spec = arguments[1], arguments[4:]
        shape = params.shape if in_dims[1] is None else params.movedim(in_dims[1], 0).shape[1:]
        grad_x, grad_params = backward_op(*_batch_first(info.batch_size, in_dims, *arguments[:4]), *spec)
        return (grad_x, grad_params.reshape(info.batch_size, *shape)), (0, 0)

    _OPERATORS.define(f"{names[0]}(Tensor x, Tensor params, {_SPEC}) -> (Tensor, Tensor)")
    _OPERATORS.define(
        f"{names[1]}(Tensor x, Tensor params, Tensor grad_y, Tensor grad_log_slope, {_SPEC}) -> (Tensor, Tensor)"
    )
    rules = (run_forward, fake_forward, vmap_forward), (run_backward, fake_backward, vmap_backward)
    for operator, (run, fake, vmap) in zip(names, rules, strict=True):
        for device in devices:
            _OPERATORS.impl(operator, run, device)
        torch.library.register_fake(f"cubicflow::{operator}", fake, lib=_OPERATORS)
        torch.library.register_vmap(f"cubicflow::{operator}", vmap, lib=_OPERATORS)
    forward_op, backward_op = (getattr(torch.ops.cubicflow, operator).default for operator in names)
    return forward_op, backward_op


def _batch_first(batch_size: int, in_dims: Any, x: Tensor, params: Tensor, *grads: Tensor) -> list[Tensor]:
    """Return every tensor with the batch as its first axis. Axes of size 1 after the batch make the trailing axes of
    all tensors line up. Without the batch, x and the gradients have the shape of the output."""
    axes = x.ndim - (in_dims[0] is not None)
    out = []
    for position, tensor in enumerate((x, params, *grads)):
        dim = in_dims[position]
        moved = tensor.expand(batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        wanted = axes + 1 + (position == 1)
        out.append(moved.reshape(batch_size, *(1,) * (wanted - moved.ndim), *moved.shape[1:]))
    return out
