"""The splines of a coupling layer on slices of whole rows, inside a captured training step.

The kernels read a half's inputs where they are in the row and write its outputs there. So the pass does not split and
join rows, and the backward pass reads the one gradient of a row's log-determinant instead of copies of it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from cubicflow.accel.side_stream import in_captured_pass
from cubicflow.hooks import use_faster
from cubicflow.splines.dispatch import OF_SLICES
from cubicflow.splines.spec import SplineSpec
from cubicflow.transforms.coupling import Coupling, CouplingPass
from cubicflow.transforms.element_map import is_spline
from cubicflow.transforms.elementwise import Elementwise
from cubicflow.transforms.transform import check_context, check_features


class FastCouplingPass(CouplingPass):
    """The forward pass without copies of the halves. Its gradient is taken once."""

    def forward(self, layer: Coupling, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        specs = specs_of(layer, x) if in_captured_pass() and x.is_cuda else None
        return super().forward(layer, x, context) if specs is None else fused(layer, x, context, specs)


def specs_of(layer: Coupling, x: Tensor) -> list[SplineSpec] | None:
    """Return the spline calls of both halves, or None if the kernels do not support this layer and these rows."""
    check_features(layer, x, layer.features)
    if x.ndim != 2 or x.dtype != torch.float32 or not x.is_contiguous() or OF_SLICES.unavailable() is not None:
        return None
    if layer.slices is None or layer.identity_maps is None or layer.identity_maps.params.dtype != torch.float32:
        return None
    specs = []
    for own in (layer.identity_map, layer.transformed_map):
        if not isinstance(own.domain, str) or not is_spline(own.family) or own.affine_first:
            return None
        params = x.new_empty(own.num_params)
        specs.append(own.spec(x, params))
        if own.backend not in ("auto", "triton") or OF_SLICES.refuses(specs[-1], x, params) is not None:
            return None
    return specs


def fused(layer: Coupling, x: Tensor, context: Tensor | None, specs: list[SplineSpec]) -> tuple[Tensor, Tensor]:
    """Compute the layer's forward pass."""
    check_context(layer, context, layer.context_features, x.shape[0])
    slices, shared = cast("tuple[slice, slice]", layer.slices), cast("Elementwise", layer.identity_maps).params
    x, identity = _Take.apply(x, slices[0])
    params = layer.params_of(identity, context).float().contiguous()
    outputs: tuple[Tensor, Tensor] = _Splines.apply(x, shared, params, slices, specs)
    return outputs


class _Take(torch.autograd.Function):
    """Return x and a copy of a slice of its columns, whose gradient is added to that of x in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        ctx.part = part
        return x.view_as(x), x[:, part].contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_part: Tensor) -> tuple[Tensor, None]:
        grad_x[:, ctx.part] += grad_part  # grad_x is new, from _Splines, and nobody else has it
        return grad_x, None


class _Splines(torch.autograd.Function):
    """The maps of both halves, and the sum of their log-slopes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shared: Tensor,
        params: Tensor,
        slices: tuple[slice, slice],
        specs: list[SplineSpec],
    ) -> tuple[Tensor, Tensor]:
        z, log_slope = torch.empty_like(x), torch.empty_like(x)
        for part, own, spec in zip(slices, (shared, params), specs, strict=True):
            OF_SLICES.forward_of_slice(x, own, spec, part, z, log_slope)
        ctx.save_for_backward(x, shared, params)
        ctx.slices, ctx.specs = slices, specs
        return z, log_slope.sum(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_z: Tensor, grad_log_det: Tensor) -> tuple[Tensor | None, ...]:
        x, *both = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grads = [
            OF_SLICES.backward_of_slice(x, own, spec, part, grad_z, grad_log_det, grad_x)
            for part, own, spec in zip(ctx.slices, both, ctx.specs, strict=True)
        ]
        return grad_x, *grads, None, None


use_faster("transforms", FastCouplingPass)
