"""Ahead-of-time compilation of Triton kernels in several processes. In one process the compilation takes minutes.

``python -m benchmarks.speed.kernels FAMILY K`` compiles the kernels of one spline into Triton's cache.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

PATIENCE = 60.0  # seconds; kernels not compiled by then are compiled at their first use
ELEMENTS = 2**12  # number of elements; the kernels are the same for every multiple of 16


def compile_ahead(splines: Iterable[tuple[str, int]]) -> None:
    """Compile the kernels of these families and numbers of bins."""
    commands = [[sys.executable, "-m", "benchmarks.speed.kernels", family, str(k)] for family, k in splines]
    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(_run, commands))


def _run(command: list[str]) -> None:
    quiet = subprocess.DEVNULL
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdout=quiet, stderr=quiet, timeout=PATIENCE, check=False)  # this program


def compile_one(family: str, num_bins: int, device: torch.device) -> None:
    """Run forward, inverse and backward once, which compiles their kernels."""
    from benchmarks.speed import peers, workloads

    torch.set_num_threads(1)
    x, params = peers.spline_params(ELEMENTS, num_bins, device)
    function, own = workloads.our_spline(family, params, "auto")
    with torch.no_grad():
        for inverse in (False, True):
            function(x, own, inverse)
    workloads.both_ways(function, own, x)()


if __name__ == "__main__":
    compile_one(sys.argv[1], int(sys.argv[2]), torch.device("cuda"))
