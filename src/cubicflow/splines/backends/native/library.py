"""The compiled library: its path, its instruction sets, and the C structures of a call.

The library is plain C, loaded with ctypes. It includes no headers of torch or Python, so one build works with every
version of both. Threads come from the OpenMP runtime that torch has already loaded, so there is only one thread pool.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from cubicflow.splines.backends.native.source_hash import source_hash
from cubicflow.splines.bins import MARGIN, RATIO_SHIFT
from cubicflow.splines.cubic import FLOAT32_NEWTON_STEPS, NEWTON_STEPS
from cubicflow.splines.domains import DOMAINS
from cubicflow.splines.families import FAMILIES
from cubicflow.splines.rational_quadratic import SOFTPLUS_ONE

LIBRARY = Path(__file__).with_name("libcubicflow.so")
SOURCES = Path(__file__).with_name("csrc")  # absent if cubicflow was installed from a wheel
LEVELS = ("baseline", "avx2", "avx512")  # level i is bit i of cubicflow_levels()
MAX_AXES = 12

# The least work per thread, in params read: about 20 microseconds on one core. Waking a thread for less does not pay.
GRAIN = 30_000


class LoopAxis(NamedTuple):
    """One axis of the output: its size, and each tensor's stride along the axis, in elements."""

    size: int
    x: int
    params: int
    out: int
    grad: int

    def continues(self, inner: LoopAxis) -> bool:
        """Return whether every tensor can walk this axis and the next inner axis as one axis."""
        return all(mine == theirs * inner.size for mine, theirs in zip(self[1:], inner[1:], strict=True))


class Axes(ctypes.Structure):
    """The C struct ``axes`` of csrc/call.h."""

    _fields_ = (("ndim", ctypes.c_int64), *((name, ctypes.c_int64 * MAX_AXES) for name in LoopAxis._fields))


class Call(ctypes.Structure):
    """The C struct ``spline_call`` of csrc/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_bins", "num_params", "is_double", "inverse", "domain", "kind")),
        *((name, ctypes.c_double) for name in ("min_width", "min_height")),
        *((name, ctypes.c_int64) for name in ("params_stride", "grad_stride", "num_rows", "num_shared")),
        *((name, Axes) for name in ("rows", "shared")),
    )


# The values that the double-precision kernels must report for these names.
CONSTANTS = {
    "sizeof(struct spline_call)": ctypes.sizeof(Call),
    "MAX_AXES": MAX_AXES,
    "MARGIN": MARGIN,
    "RATIO_SHIFT": RATIO_SHIFT,
    "SOFTPLUS_ONE": SOFTPLUS_ONE,
    "NEWTON_STEPS": NEWTON_STEPS,
}


class Library(NamedTuple):
    """The loaded library, with the best instruction set of this processor."""

    handle: ctypes.CDLL
    level: int  # an index into LEVELS
    parallel: int | None  # the address of GOMP_parallel; None runs on one thread

    def number(self, name: str | None) -> int:
        """Return the kernels' number for a family or a domain."""
        return int(kernel_number(self.handle, str(name)))

    def threads(self, work: int) -> int:
        """Return the number of threads for a call that reads ``work`` params."""
        return max(1, min(max_threads(), work // GRAIN))


# OpenMP threads do not survive a fork, and GNU's runtime then waits for them forever. A forked process uses one thread.
_forks: list[None] = []  # one entry per fork between the process that imported this module and this process
os.register_at_fork(after_in_child=lambda: _forks.append(None))


def max_threads() -> int:
    return 1 if _forks else torch.get_num_threads()


@cache
def load() -> Library | str:
    """Return the library, or the reason why it cannot be used."""
    if not LIBRARY.exists():
        return (
            f"the compiled library {LIBRARY.name} was not built when cubicflow was installed; put a C compiler on PATH "
            f"(gcc or clang) and {_rebuild()}"
        )
    try:
        handle = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return f"the compiled library does not load on this machine ({error}); {_rebuild()}"
    if reason := _mismatch(handle):
        return reason
    pointer, number = ctypes.c_void_p, ctypes.c_int
    handle.cubicflow_forward.argtypes = (pointer, number, number, *[pointer] * 5)
    handle.cubicflow_backward.argtypes = (pointer, number, number, *[pointer] * 7)
    return Library(handle, handle.cubicflow_levels().bit_length() - 1, _gomp_parallel())


def kernel_number(handle: ctypes.CDLL, name: str, is_double: bool = True) -> float:
    """Return the library's value of a name that ``number`` in csrc/kernel.c lists. An unknown name gives NaN."""
    handle.cubicflow_number.restype = ctypes.c_double
    number: float = handle.cubicflow_number(int(is_double), name.encode())
    return number


def _mismatch(handle: ctypes.CDLL) -> str | None:
    """Return why a loaded library must not be used, or None. Reasons are other sources, other constants, and a missing
    family or domain."""
    if not hasattr(handle, "cubicflow_source_hash"):
        return f"the compiled library belongs to another version of cubicflow; {_rebuild()}"
    handle.cubicflow_source_hash.restype = ctypes.c_char_p
    if SOURCES.is_dir() and handle.cubicflow_source_hash().decode() != source_hash(SOURCES):
        return f"the compiled library was built from other sources than those in {SOURCES}; {_rebuild()}"
    wrong = [
        name
        for name, value in CONSTANTS.items()
        if not math.isclose(kernel_number(handle, name), value, rel_tol=1e-15)  # the C log may differ by one ulp
    ]
    if kernel_number(handle, "NEWTON_STEPS", is_double=False) != FLOAT32_NEWTON_STEPS:
        wrong.append("NEWTON_STEPS in float32")
    named = [family.kernel for family in FAMILIES.values()] + [domain.kernel for domain in DOMAINS.values()]
    wrong += [name for name in named if name is not None and math.isnan(kernel_number(handle, name))]
    if wrong:
        return f"the compiled library belongs to another version of cubicflow ({', '.join(wrong)}); {_rebuild()}"
    return None


def _rebuild() -> str:
    """Return the command that rebuilds the library, from a checkout or from a package."""
    package = "--force-reinstall --no-cache-dir --no-binary cubicflow cubicflow"  # else pip takes the pure wheel again
    target = f"-e {SOURCES.parents[5]}" if SOURCES.is_dir() else package
    return f"reinstall with: pip install --no-deps {target}"


def _gomp_parallel() -> int | None:
    """Return the address of GOMP_parallel in torch's OpenMP runtime, or None if it is not found.

    The runtimes of GNU, LLVM and Intel all offer GOMP_parallel. RTLD_NOLOAD finds only a runtime that is already loaded
    and never loads a second one.
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


def group(axes: Iterable[LoopAxis]) -> tuple[Axes, int]:
    """Merge neighbouring axes that every tensor can walk as one. Return them as a C struct, and the number of
    indices."""
    merged: list[LoopAxis] = []
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
        return Axes(), 0  # no indices
    columns = zip(*merged, strict=True) if merged else [()] * len(LoopAxis._fields)
    return Axes(len(merged), *[(ctypes.c_int64 * MAX_AXES)(*column) for column in columns]), total
