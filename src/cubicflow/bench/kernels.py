"""Triton kernels compiled ahead, by several processes at once: one after the other they would take minutes.

``python -m cubicflow.bench.kernels FAMILY K`` leaves those of one spline in Triton's cache.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable

import torch

PATIENCE = 60.0  # seconds; what is not compiled then will be when it is needed
ELEMENTS = 2**12  # kernels are the same for every multiple of 16


def compile_ahead(splines: Iterable[tuple[str, int]]) -> None:
    """Compile the kernels of these families and numbers of bins."""
    processes = [
        subprocess.Popen(  # noqa: S603 # this program
            [sys.executable, "-m", "cubicflow.bench.kernels", family, str(num_bins)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for family, num_bins in splines
    ]
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compile_one(family: str, num_bins: int, device: torch.device) -> None:
    """Forward, inverse and backward once."""
    from cubicflow.bench import peers, workloads

    torch.set_num_threads(1)
    x, params = peers.spline_params(ELEMENTS, num_bins, device)
    function, own = workloads.our_spline(family, params, "auto")
    with torch.no_grad():
        for inverse in (False, True):
            function(x, own, inverse)
    workloads.both_ways(function, own, x)()


if __name__ == "__main__":
    compile_one(sys.argv[1], int(sys.argv[2]), torch.device("cuda"))
