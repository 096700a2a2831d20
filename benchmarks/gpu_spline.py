"""The Triton kernels on a GPU: right, how fast, with how much memory. One run, ratios from one machine.

    PYTHONPATH=src python benchmarks/gpu_spline.py --out results

Errors are given as ratios to the float32 reference's own, both against the reference in float64. Times are medians over
calls that find neither inputs nor outputs in the L2 cache. The floor is each tensor read or written once, at the
bandwidth of a copy measured in the same run. nflows is timed too where it can be imported.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import statistics
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.testing import do_bench

from cubicflow.splines import cubic_spline, num_params
from cubicflow.splines.backends import reference
from cubicflow.splines.backends.triton import launch
from cubicflow.splines.spec import SplineSpec, make_spec

BINS = (1, 2, 3, 10, 16, 32, 33, 128, 256)
SLOPES = ("steffen", "free")
WORK = [(2**20, 10), (2**18, 128), (1536, 10)]
FEW = [launch.Tuning(num_warps=warps) for warps in (2, 1, 4)]
MANY = [launch.Tuning(num_warps=warps, chunk=chunk) for warps, chunk in [(2, 32), (1, 32), (2, 16), (4, 16)]]
MODES = ["forward", "inverse", "backward"]


def label(tuning: launch.Tuning, num_bins: int) -> str:
    if num_bins <= tuning.max_row_bins:
        return f"rows, {tuning.num_warps} warps"
    return f"chunks of {tuning.chunk}, {tuning.num_warps} warps"


def tunings(num_bins: int) -> list[launch.Tuning]:
    return FEW if num_bins <= launch.DEFAULT.max_row_bins else MANY


def data(count: int, num_bins: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    params = torch.randn(count, num_params("cubic", num_bins, "steffen"), device="cuda", generator=generator)
    return 3 * torch.randn(count, device="cuda", generator=generator), scale * params


def spec_of(x: Tensor, params: Tensor, inverse: bool, slopes: str = "steffen", domain: str = "real") -> SplineSpec:
    return make_spec(x, params, family="cubic", inverse=inverse, domain=domain, slopes=slopes)


def kernel_call(mode: str, x: Tensor, params: Tensor, tuning: launch.Tuning) -> Callable[[], Any]:
    spec = spec_of(x, params, mode == "inverse")
    if mode != "backward":
        return lambda: launch.forward(x, params, spec, tuning)
    grads = torch.randn_like(x), torch.randn_like(x)
    return lambda: launch.backward(x, params, *grads, spec, tuning)


def warm(job: tuple[Any, ...]) -> str | None:
    """Compile one kernel into Triton's cache, from a process of its own."""
    torch.set_num_threads(1)
    kind, *arguments = job
    try:
        if kind == "check":
            num_bins, inverse, slopes = arguments
            check(num_bins, 1.0, inverse, slopes, launch.DEFAULT, 256)
        else:
            mode, num_bins, tuning = arguments
            kernel_call(mode, *data(1536, num_bins), tuning)()
        torch.cuda.synchronize()
    except Exception:
        return f"{arguments}: {traceback.format_exc(limit=-3)[-1200:]}"
    return None


# --- errors -----------------------------------------------------------------------------------------------------------


def results(evaluate: Callable[..., Any], x: Tensor, params: Tensor, grads: tuple[Tensor, Tensor]) -> list[Tensor]:
    x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
    outputs = evaluate(x, params)
    return [tensor.detach().double() for tensor in (*outputs, *torch.autograd.grad(outputs, (x, params), grads))]


def errors(x: Tensor, found: list[Tensor], truth: list[Tensor]) -> list[float]:
    """The largest error of y in units of what one rounding of x or y makes, the 99.9th percentile of the log-slope's,
    and the median error of each gradient relative to its size in that element."""
    slope = truth[1].exp()
    y = ((found[0] - truth[0]).abs() / ((1 + x.abs()) * slope + 1 + truth[0].abs())).max()
    log_slope = (found[1] - truth[1]).abs()
    percentile = log_slope.kthvalue(max(1, int(0.999 * log_slope.numel()))).values
    grad_x = ((found[2] - truth[2]).abs() / (1e-3 + truth[2].abs())).median()
    grad_params = ((found[3] - truth[3]).norm(dim=-1) / (1e-3 + truth[3].norm(dim=-1))).median()
    return [float(error) for error in (y, percentile, grad_x, grad_params)]


def check(num_bins: int, scale: float, inverse: bool, slopes: str, tuning: launch.Tuning, count: int) -> list[float]:
    generator = torch.Generator("cuda").manual_seed(num_bins)
    size = num_params("cubic", num_bins, slopes)
    params = scale * torch.randn(count, size, device="cuda", generator=generator)
    x = 3 * torch.randn(count, device="cuda", generator=generator)
    grads = torch.randn_like(x), torch.randn_like(x)
    spec = spec_of(x, params, inverse, slopes)

    def eager(x: Tensor, params: Tensor) -> Any:
        return reference.evaluate(spec, x, params)

    pairs = launch.forward(x, params, spec, tuning), launch.backward(x, params, *grads, spec, tuning)
    truth = results(eager, x.double(), params.double(), (grads[0].double(), grads[1].double()))
    ours = errors(x, [tensor.double() for pair in pairs for tensor in pair], truth)
    eagers = errors(x, results(eager, x, params, grads), truth)
    return [a / max(b, 1e-9) for a, b in zip(ours, eagers, strict=True)]


def check_all(rows: list[dict[str, Any]]) -> None:
    print("\nerror / the float32 reference's, the worst of all scales: y, log-slope 99.9 %, grad x, grad params")
    worst: dict[str, list[float]] = {}
    for num_bins in BINS:
        for scale in (0.1, 1.0, 5.0, 30.0):
            for inverse in (False, True):
                for slopes in SLOPES:
                    key = f"K={num_bins} {'inverse' if inverse else 'forward'}"
                    try:
                        ratios = check(num_bins, scale, inverse, slopes, launch.DEFAULT, 2**15)
                    except Exception:
                        print(f"FAILED {key} scale {scale} {slopes}: {traceback.format_exc(limit=-2)[-800:]}")
                        continue
                    rows.append({"what": "error", "case": f"{key} scale={scale} {slopes}", "values": ratios})
                    worst[key] = [max(a, b) for a, b in zip(worst.get(key, [0.0] * 4), ratios, strict=True)]
    for key, ratios in worst.items():
        print(f"  {key:18}", " ".join(f"{ratio:6.2f}" for ratio in ratios))


# --- times ------------------------------------------------------------------------------------------------------------


def microseconds(function: Callable[[], Any], repeat: int = 60) -> float:
    return 1000 * float(do_bench(function, warmup=10, rep=repeat, return_mode="median"))


def replayed(function: Callable[[], Any]) -> float:
    """As part of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return microseconds(graph.replay)


def host_microseconds(function: Callable[[], Any], repeat: int = 300) -> float:
    """Wall time a call, the device being idle enough not to matter."""
    for _ in range(20):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeat):
            function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repeat)
    return 1e6 * statistics.median(times)


def bandwidth() -> float:
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / (1e-6 * microseconds(lambda: target.copy_(source), 200))


def floors(count: int, num_bins: int, speed: float) -> dict[str, float]:
    params = num_params("cubic", num_bins, "steffen")
    forward = 4 * count * (params + 3) / speed * 1e6
    backward = 4 * count * (2 * params + 4) / speed * 1e6
    return {"forward": forward, "inverse": forward, "backward": backward, "both": forward + backward}


def user_call(x: Tensor, params: Tensor, inverse: bool, backward: bool) -> Callable[[], Any]:
    if not backward:
        return lambda: cubic_spline(x, params, inverse=inverse)
    x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
    grads = torch.randn_like(x), torch.randn_like(x)
    return lambda: torch.autograd.grad(cubic_spline(x, params, inverse=inverse), (x, params), grads)


def peer_call(x: Tensor, params: Tensor, num_bins: int, inverse: bool, backward: bool) -> Callable[[], Any]:
    from nflows.transforms.splines.cubic import cubic_spline as peer

    x = torch.sigmoid(x).clamp(1e-3, 1 - 1e-3).requires_grad_(backward)
    params = params.detach().requires_grad_(backward)

    def call() -> Any:
        k = num_bins
        parts = params[:, :k], params[:, k : 2 * k], params[:, 2 * k : 2 * k + 1], params[:, 2 * k + 1 :]
        out = peer(x, *parts, inverse=inverse)
        return torch.autograd.grad(out, (x, params), grads) if backward else out

    grads = torch.randn_like(x), torch.randn_like(x)
    return call


def peak_memory(call: Callable[[], Any], params: Tensor) -> float:
    """In units of params and their gradient, above what stood before the call but for params."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    size = params.numel() * params.element_size()
    return (torch.cuda.max_memory_allocated() - before + size) / (2 * size)


def time_all(rows: list[dict[str, Any]]) -> None:
    speed = bandwidth()
    print(f"\ncopy bandwidth {speed / 1e12:.2f} TB/s")
    for count, num_bins in WORK:
        floor = floors(count, num_bins, speed)
        print(f"\n{count} elements, K = {num_bins}; floors: " + ", ".join(f"{k} {v:.1f} us" for k, v in floor.items()))
        x, params = data(count, num_bins)
        for tuning in tunings(num_bins):
            line = []
            for mode in MODES:
                try:
                    took = microseconds(kernel_call(mode, x, params, tuning))
                    line.append(f"{mode} {took:7.1f} ({took / floor[mode]:4.1f} x)")
                except Exception:
                    line.append(f"{mode} FAILED {traceback.format_exc(limit=-1)[-200:]}")
                    continue
                case = f"{count} K={num_bins} {label(tuning, num_bins)}"
                rows.append({"what": mode, "case": case, "values": [took, took / floor[mode]]})
            print(f"  {label(tuning, num_bins):22}", "  ".join(line))
        for name, inverse, backward in (("forward", False, False), ("inverse", True, False), ("both", False, True)):
            try:
                call = user_call(x, params, inverse, backward)
                took = replayed(call)
                report = f"  cubic_spline {name}, in a graph: {took:.1f} us ({took / floor[name]:.1f} x floor)"
                report += f", host {host_microseconds(call):.1f} us a call" if count < 10_000 else ""
                values = [took, took / floor[name]]
                if backward:
                    values.append(peak_memory(call, params))
                    report += f", peak {values[-1]:.2f} x (params + gradient)"
                try:
                    peer = microseconds(peer_call(x, params, num_bins, inverse, backward), 100)
                    values.append(peer / took)
                    report += f"; nflows {peer:.0f} us = {peer / took:.0f} x"
                except ImportError:
                    report += "; nflows is not installed"
                print(report)
                rows.append({"what": f"user {name}", "case": f"{count} K={num_bins}", "values": values})
            except Exception:
                print(f"  cubic_spline {name} FAILED {traceback.format_exc(limit=-3)[-800:]}")
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="folder for gpu_spline.csv")
    parser.add_argument("--workers", type=int, default=12, help="processes that compile kernels beforehand")
    parser.add_argument("--skip-errors", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    if arguments.workers:
        jobs: list[tuple[Any, ...]] = [
            ("time", mode, k, tuning) for k in (10, 128) for tuning in tunings(k) for mode in MODES
        ]
        if not arguments.skip_errors:
            jobs += [("check", k, inverse, slopes) for k in BINS for inverse in (True, False) for slopes in SLOPES]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.workers, mp_context=context) as pool:
            for failure in pool.map(warm, jobs):
                if failure:
                    print("FAILED", failure)
        print(f"compiled {len(jobs)} kernels in {time.perf_counter() - started:.0f} s")
    try:
        time_all(rows)
        if not arguments.skip_errors:
            check_all(rows)
    finally:
        print(
            f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}; {time.perf_counter() - started:.0f} s in all"
        )
        if arguments.out:
            arguments.out.mkdir(parents=True, exist_ok=True)
            with (arguments.out / "gpu_spline.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerows([row["what"], row["case"], *row["values"]] for row in rows)


if __name__ == "__main__":
    main()
