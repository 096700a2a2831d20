"""The compiled library: where it is, what it can do here, and how a call is described to it.

It is plain C behind ctypes, free of torch's and Python's headers, so one build serves every version of both. Threads
come from the OpenMP runtime that torch has loaded already: the same pool, never a second one beside it.
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
SOURCES = Path(__file__).with_name("csrc")  # absent where cubicflow was installed from a wheel
LEVELS = ("baseline", "avx2", "avx512")  # bit i of cubicflow_levels()
MAX_AXES = 12

# Work for which a second thread is worth waking, in params read: about 20 microseconds of one core.
GRAIN = 30_000


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


class Axes(ctypes.Structure):
    """struct axes of csrc/call.h."""

    _fields_ = (("ndim", ctypes.c_int64), *((name, ctypes.c_int64 * MAX_AXES) for name in Axis._fields))


class Call(ctypes.Structure):
    """struct spline_call of csrc/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_bins", "num_params", "is_double", "inverse", "domain", "kind")),
        *((name, ctypes.c_double) for name in ("min_width", "min_height")),
        *((name, ctypes.c_int64) for name in ("params_stride", "grad_stride", "num_rows", "num_shared")),
        *((name, Axes) for name in ("rows", "shared")),
    )


# What the kernels in double precision must say of these names.
CONSTANTS = {
    "sizeof(struct spline_call)": ctypes.sizeof(Call),
    "MAX_AXES": MAX_AXES,
    "MARGIN": MARGIN,
    "RATIO_SHIFT": RATIO_SHIFT,
    "SOFTPLUS_ONE": SOFTPLUS_ONE,
    "NEWTON_STEPS": NEWTON_STEPS,
}


class Library(NamedTuple):
    """The loaded library, at the best instruction set of this processor."""

    handle: ctypes.CDLL
    level: int
    parallel: int | None  # the address of GOMP_parallel

    def number(self, name: str | None) -> int:
        """The number of a family or a domain in the kernels."""
        return int(ask_number(self.handle, str(name)))

    def threads(self, work: int) -> int:
        return max(1, min(max_threads(), work // GRAIN))


# The threads of an OpenMP runtime do not survive a fork, and GNU's waits for them for ever.
_forks: list[None] = []  # one for each on the way from the process that imported this to the present one
os.register_at_fork(after_in_child=lambda: _forks.append(None))


def max_threads() -> int:
    return 1 if _forks else torch.get_num_threads()


@cache
def load() -> Library | str:
    """The library, or why there is none."""
    if not LIBRARY.exists():
        return (
            f"its compiled library {LIBRARY.name} was not built when cubicflow was installed; put a C compiler on PATH "
            f"(gcc or clang) and {_rebuild()}"
        )
    try:
        handle = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return f"its compiled library does not load here ({error}); {_rebuild()}"
    if reason := _disagrees(handle):
        return reason
    pointer, number = ctypes.c_void_p, ctypes.c_int
    handle.cubicflow_forward.argtypes = (pointer, number, number, *[pointer] * 5)
    handle.cubicflow_backward.argtypes = (pointer, number, number, *[pointer] * 7)
    return Library(handle, handle.cubicflow_levels().bit_length() - 1, _gomp_parallel())


def ask_number(handle: ctypes.CDLL, name: str, is_double: bool = True) -> float:
    """What the library calls by a name of ``number`` in csrc/kernel.c; NaN for a name that it does not know."""
    handle.cubicflow_number.restype = ctypes.c_double
    number: float = handle.cubicflow_number(int(is_double), name.encode())
    return number


def _disagrees(handle: ctypes.CDLL) -> str | None:
    """Why a library that loads must not be used: other sources, other numbers, or a family or domain that it lacks."""
    if not hasattr(handle, "cubicflow_source_hash"):
        return f"its compiled library belongs to another version of cubicflow; {_rebuild()}"
    handle.cubicflow_source_hash.restype = ctypes.c_char_p
    if SOURCES.is_dir() and handle.cubicflow_source_hash().decode() != source_hash(SOURCES):
        return f"its compiled library was built from other sources than those in {SOURCES}; {_rebuild()}"
    wrong = [
        name
        for name, value in CONSTANTS.items()
        if not math.isclose(ask_number(handle, name), value, rel_tol=1e-15)  # a library's own log may differ by an ulp
    ]
    if ask_number(handle, "NEWTON_STEPS", is_double=False) != FLOAT32_NEWTON_STEPS:
        wrong.append("NEWTON_STEPS in float32")
    named = [family.native for family in FAMILIES.values()] + [domain.native for domain in DOMAINS.values()]
    wrong += [name for name in named if name is not None and math.isnan(ask_number(handle, name))]
    if wrong:
        return f"its compiled library belongs to another version of cubicflow ({', '.join(wrong)}); {_rebuild()}"
    return None


def _rebuild() -> str:
    """The command that builds the library again: from a checkout, or from a package."""
    package = "--force-reinstall --no-cache-dir --no-binary cubicflow cubicflow"  # a pure wheel would come back
    what = f"-e {SOURCES.parents[5]}" if SOURCES.is_dir() else package
    return f"reinstall with: pip install --no-deps {what}"


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
