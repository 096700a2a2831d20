"""The CPU backend: one fused C kernel for cubic, quadratic and rational-quadratic splines. The kernel is vectorised and
threaded, in float32 and float64.

    library.py   finds and loads the compiled library
    launch.py    describes a call to the library
    csrc/        the kernel

The backward pass recomputes intermediate values from x and params. The library is built when cubicflow is installed.
Without a compiler at installation the backend is unavailable, and :func:`unavailable` returns the reason.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.backends.autograd import differentiable
from cubicflow.splines.backends.native.launch import backward, forward
from cubicflow.splines.backends.native.library import MAX_AXES, load
from cubicflow.splines.calls import calls
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec


@calls.compile_time_constant
def unavailable() -> str | None:
    library = load()
    return library if isinstance(library, str) else None


def refuses(spec: SplineSpec, x: Tensor, params: Tensor) -> str | None:
    if find_family(spec.family, spec.slopes).kernel is None:
        return f"there is no native kernel for the {spec.family} spline"
    if find_domain(spec.domain).kernel is None:
        return f"there is no native kernel for domain={spec.domain!r}"
    if x.device.type != "cpu":
        return f"tensors must be on the CPU; got {x.device}"
    if x.ndim > MAX_AXES or params.ndim > MAX_AXES:
        return f"the native kernel takes at most {MAX_AXES} axes, got {max(x.ndim, params.ndim)}; flatten some axes"
    # The kernel multiplies up to three bin sizes. Their product must not underflow.
    floor, least = min(spec.min_bin_width, spec.min_bin_height), torch.finfo(x.dtype).tiny ** 0.25
    if floor < least:
        return f"in {x.dtype} the floors on bins must be at least {least:.1g}, got {floor:g}"
    return None


evaluate = differentiable("native", forward, backward, ("CPU",))
