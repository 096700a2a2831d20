"""A spline shared by many elements needs memory for the elements plus the spline, not for their product."""

from __future__ import annotations

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

ELEMENTS = 2**17


class Allocations(TorchDispatchMode):
    """A mode that records the largest tensor that any operation, forward or backward, returns."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def measure(case, num_bins, inverse):
    """Return the bytes of the largest allocated tensor, and the bytes kept for the backward pass, in float32."""
    x = torch.randn(ELEMENTS, requires_grad=True)
    params = case.params(num_bins=num_bins, dtype=torch.float32).requires_grad_()
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor  # keep the tensor alive, so that no address is used twice
        return tensor

    with Allocations() as allocations, saved_tensors_hooks(keep, lambda tensor: tensor):
        y, log_slope = case(x, params, inverse=inverse, backend="reference")
        (y.sum() + log_slope.sum()).backward()
    assert x.grad is not None
    assert params.grad is not None
    return allocations.largest, sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_a_shared_spline_costs_elements_plus_params(cubic, inverse):
    product = 4 * ELEMENTS * 128  # bytes of a float32 tensor (ELEMENTS, 128)
    largest, kept = measure(cubic, 128, inverse)
    assert largest <= 8 * ELEMENTS  # at most one int64 index per element
    assert kept <= product / 2
    # The memory kept for each element does not depend on K. Only the shared tables of the spline, a few dozen, do.
    few_bins = measure(cubic, 8, inverse)[1]
    assert kept - few_bins <= 4 * 128 * 200
