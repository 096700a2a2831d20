"""The compiled library: where it is, what it can do here, and how a call is described to it.

It is plain C behind ctypes, free of torch's and Python's headers, so one build serves every version of both. Threads
come from the OpenMP runtime that torch has loaded already: the same pool, never a second one beside it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

LIBRARY = Path(__file__).with_name("libcubicflow.so")
LEVELS = ("baseline", "avx2", "avx512")  # bit i of cubicflow_levels()
MAX_AXES = 12  # MAX_AXES of csrc/call.h

# The splines that there is a kernel for, by family and slopes, numbered as in csrc/call.h.
KINDS = {("cubic", "steffen"): 0, ("cubic", "free"): 1, ("rational_quadratic", None): 2, ("quadratic", None): 3}

# Work for which a second thread is worth waking, in params read: about 20 microseconds of one core.
GRAIN = 30_000


class Axes(ctypes.Structure):
    """struct axes of csrc/call.h."""

    _fields_ = (
        ("ndim", ctypes.c_int64),
        ("size", ctypes.c_int64 * MAX_AXES),
        ("x", ctypes.c_int64 * MAX_AXES),
        ("params", ctypes.c_int64 * MAX_AXES),
        ("out", ctypes.c_int64 * MAX_AXES),
        ("grad", ctypes.c_int64 * MAX_AXES),
    )


class Call(ctypes.Structure):
    """struct spline_call of csrc/call.h."""

    _fields_ = (
        ("num_bins", ctypes.c_int64),
        ("num_params", ctypes.c_int64),
        ("is_double", ctypes.c_int64),
        ("inverse", ctypes.c_int64),
        ("real_line", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("min_width", ctypes.c_double),
        ("min_height", ctypes.c_double),
        ("params_stride", ctypes.c_int64),
        ("grad_stride", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("num_shared", ctypes.c_int64),
        ("rows", Axes),
        ("shared", Axes),
    )


class Axis(NamedTuple):
    """One axis of the output: its size and the strides, in elements, of the tensors along it."""

    size: int
    x: int
    params: int
    out: int
    grad: int

    def continues(self, inner: Axis) -> bool:
        """Whether this axis and the one inside it are one axis to every tensor."""
        return all(mine == theirs * inner.size for mine, theirs in zip(self[1:], inner[1:], strict=True))


class Library(NamedTuple):
    """The loaded library, at the best instruction set of this processor."""

    handle: ctypes.CDLL
    level: int
    parallel: int | None  # the address of GOMP_parallel

    def threads(self, work: int) -> int:
        return max(1, min(max_threads(), work // GRAIN))


_in_forked_child = False


def _after_fork() -> None:
    # The threads of an OpenMP runtime do not survive a fork, and GNU's waits for them for ever.
    global _in_forked_child
    _in_forked_child = True


os.register_at_fork(after_in_child=_after_fork)


def max_threads() -> int:
    return 1 if _in_forked_child else torch.get_num_threads()


@cache
def load() -> Library | str:
    """The library, or why there is none."""
    if not LIBRARY.exists():
        return (
            f"its compiled library {LIBRARY.name} was not built when cubicflow was installed; put a C compiler on PATH "
            "(gcc or clang) and reinstall with: pip install --force-reinstall --no-deps --no-cache-dir cubicflow"
        )
    try:
        handle = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return f"its compiled library does not load here ({error}); reinstall cubicflow to build it for this machine"
    if not _same_version(handle):
        return "its compiled library belongs to another version of cubicflow; reinstall to build it again"
    pointer, number = ctypes.c_void_p, ctypes.c_int
    handle.cubicflow_forward.argtypes = (pointer, number, number, *[pointer] * 5)
    handle.cubicflow_backward.argtypes = (pointer, number, number, *[pointer] * 7)
    return Library(handle, handle.cubicflow_levels().bit_length() - 1, _gomp_parallel())


def _same_version(handle: ctypes.CDLL) -> bool:
    if not hasattr(handle, "cubicflow_kinds"):
        return False
    handle.cubicflow_call_bytes.restype = ctypes.c_int64
    return bool(handle.cubicflow_call_bytes() == ctypes.sizeof(Call) and handle.cubicflow_kinds() == len(KINDS))


def _gomp_parallel() -> int | None:
    """GOMP_parallel of the OpenMP runtime that torch uses, which LLVM's and Intel's offer as well; None: one thread.

    RTLD_NOLOAD finds a runtime that is loaded already and never brings in another.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    bundled = sorted(map(str, (Path(torch.__file__).parent / "lib").glob("lib*omp*")))
    for name in (*bundled, "libgomp.so.1", "libiomp5.so", "libomp.so", "libomp.dylib"):
        try:
            runtime = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def group(axes: Iterable[Axis]) -> tuple[Axes, int]:
    """Axes merged where every tensor lets them, in the C layout, and how many indices they span."""
    merged: list[Axis] = []
    total = 1
    for axis in axes:
        total *= axis.size
        if axis.size == 1:
            continue
        inner = axis
        if merged and merged[-1].continues(axis):
            inner = axis._replace(size=merged.pop().size * axis.size)
        merged.append(inner)
    if total == 0:
        return Axes(), 0  # nowhere to go
    columns = zip(*merged, strict=True) if merged else [()] * len(Axis._fields)
    return Axes(len(merged), *[(ctypes.c_int64 * MAX_AXES)(*column) for column in columns]), total
