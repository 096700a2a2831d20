"""The GPU backend: fused Triton kernels from raw params to (y, log_slope), without intermediate values in global
memory.

    kernels.py           the two kernels: values, and gradients
    places.py            which elements a program handles, and where their params are
    columns.py           params as one vector per parameter, with one element per thread
    softmax_bins.py      finds the bin, and its gradients: widths and heights are separate softmaxes
    quadratic_bins.py    the same for the quadratic spline
    bin.py               one element in its bin, and the gradients
    unit.py              the bin's own unit square: end slopes, the map, its root
    launch.py            chooses the arguments of a kernel

Names in capitals are compile-time constants. They need the annotation ``tl.constexpr`` in the two kernels only: a
function keeps the constants of its caller.

The backward pass recomputes intermediate values from x and params. Under TRITON_INTERPRET=1 the kernels run in Triton's
interpreter on the CPU, for tests. "auto" never chooses the interpreter.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from cubicflow.splines.backends.autograd import differentiable
from cubicflow.splines.calls import calls
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec

MAX_BINS = 256
_NO_DEVICE = "there is no CUDA device; set TRITON_INTERPRET=1 to run the kernels, slowly, in Triton's interpreter"


@calls.compile_time_constant
def unavailable() -> str | None:
    return _unavailable()


@cache
def _unavailable() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; on Linux, pip install triton"
    if _interpreted():
        return None
    if not torch.cuda.is_available():
        return _NO_DEVICE
    from triton import __version__

    if tuple(map(int, __version__.split(".")[:2])) < (3, 5):  # its compiler does not end on recursive functions
        return f"Triton {__version__} cannot compile the kernels; use torch 2.9 or newer, which comes with Triton 3.5"
    return None


@cache
def _kernels() -> ModuleType:
    """Import the kernels at the first call, because Triton may be missing."""
    from cubicflow.splines.backends.triton import launch

    return launch


@calls.compile_time_constant
def _interpreted() -> bool:
    interpreted: bool = _kernels().INTERPRETED
    return interpreted


def refuses(spec: SplineSpec, x: Tensor, params: Tensor) -> str | None:
    if find_family(spec.family, spec.slopes).kernel is None:
        return f"there is no Triton kernel for the {spec.family} spline"
    if find_domain(spec.domain).kernel is None:
        return f"there is no Triton kernel for domain={spec.domain!r}"
    if spec.num_bins > MAX_BINS:
        return f"the Triton kernels take at most {MAX_BINS} bins, got {spec.num_bins}"
    if x.device.type != ("cpu" if _interpreted() else "cuda"):
        where = "the CPU, under TRITON_INTERPRET=1" if _interpreted() else "a CUDA device"
        return f"tensors must be on {where}; got {x.device}"
    return None


evaluate = differentiable(
    "triton", lambda *call: _kernels().forward(*call), lambda *call: _kernels().backward(*call), ("CPU", "CUDA")
)


def forward_of_slice(*call: Any) -> None:
    """Evaluate splines on a slice of every row; see ``launch.py``. Autograd does not see it."""
    _kernels().forward_of_slice(*call)


def backward_of_slice(*call: Any) -> Tensor:
    """Compute the gradients of :func:`forward_of_slice`; see ``launch.py``."""
    grad_params: Tensor = _kernels().backward_of_slice(*call)
    return grad_params
