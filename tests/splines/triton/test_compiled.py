"""The kernels are compiled for a GPU, on any machine: Triton brings all that this takes. The interpreter runs programs
that the compiler refuses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Triton is for Linux only, and the compilers before 3.5 do not end on recursive functions.
pytest.importorskip("triton", minversion="3.5")

# In these programs more than three bins are read in chunks. Few bins keep compile time short.
PROGRAM = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from cubicflow.splines.backends.triton import launch
from cubicflow.splines.spec import SplineSpec

tuning = launch.Tuning(max_row_bins=3, max_column_bins=3, chunk=4, column_chunk=4)
for family, slopes, num_bins, count, layout, direction in json.loads(sys.argv[1]):
    print(family, slopes, num_bins, layout, direction, flush=True)
    strides = {"packed": (count, 1), "columns": (1, 64), "shared": (1,)}[layout]
    params_shape = (count,) if layout == "shared" else (64, count)
    spec = SplineSpec(
        family=family, num_bins=num_bins, inverse=direction == "inverse", domain="real", slopes=slopes,
        min_bin_width=1e-3, min_bin_height=1e-3,
    )
    backward = direction == "backward"
    plan = launch._plan(spec, torch.float32, (64,), params_shape, strides, strides if backward else None, tuning)
    arguments = plan.kernel_arguments((1, 1, 1) if backward else (1,))
    options = {"num_warps": arguments.pop("num_warps")}
    signature, constants = {}, {}
    for place, param in enumerate(plan.kernel.params):
        if param.is_constexpr:
            signature[param.name], constants[(place,)] = "constexpr", arguments[param.name]
        else:
            signature[param.name] = "*fp32" if param.name.endswith("_ptr") else "i32"
    source = ASTSource(plan.kernel, signature, constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert plan.kernel.fn.__name__ in compiled.asm["ptx"]
"""

KERNELS = [
    ("cubic", "steffen", 3, 8, "packed", "backward"),
    ("cubic", "steffen", 5, 12, "columns", "backward"),
    ("cubic", "free", 5, 16, "packed", "forward"),
    ("rational_quadratic", None, 5, 16, "shared", "backward"),
    ("rational_quadratic", None, 3, 10, "columns", "inverse"),
    ("quadratic", None, 3, 7, "columns", "backward"),
    ("quadratic", None, 5, 11, "packed", "backward"),
]


def test_the_compiler_takes_the_kernels(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(KERNELS)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == len(KERNELS)
