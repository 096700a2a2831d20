"""Time of a training step with attention, kernel by kernel, and time of sampling, on one GPU.

    python -m benchmarks.attention [RUN]

The model is cubic-attention of Table 1: 63 features, two layers of four blocks of width 256.

1. One training step, captured as a CUDA graph: its milliseconds, the operations of its matrix products, their share of
   the GPU's bfloat16 peak, and the time of each kind of kernel.
2. Ten thousand samples in float32 from the same noise, once feature by feature with a key-value memory and once by
   whole passes. RUN is a run folder of `python -m paper table-1`; without RUN the model is untrained.

Writes docs/results/attention.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

import cubicflow as cf
from benchmarks.markdown import markdown_table
from cubicflow.data.rows import Batch
from cubicflow.nets import CausalTransformer, Transformer
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import join
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step
from cubicflow.training.step_hook import step_hook

FEATURES, SAMPLES = 63, 10_000
BATCHES = (512, 1024)
# Operations a second in dense bfloat16, from the datasheets.
PEAK = {"NVIDIA H200": 989e12, "NVIDIA H100": 989e12, "NVIDIA A100": 312e12}
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "attention.md"
# Each kind of kernel, with substrings of its kernels' names. The first kind that matches counts.
KINDS = {
    "attention": ("sdpa", "fmha", "flash", "compute_dot_do_o", "convert_dq"),
    "sum, dropout and norm": ("add_norm",),
    "matrix products": ("gemm", "nvjet", "cutlass", "splitKreduce"),
    "GELU": ("Gelu",),
    "drawing dropout": ("distribution",),
    "splines": ("spline_forward", "spline_backward"),
    "Adam and averaging": ("FusedOptimizer", "multi_tensor", "lerp"),
    "joining gradients of queries, keys and values; copies and casts": ("Cat", "copy", "Memcpy", "Memset", "Fill"),
    "sums": ("reduce",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="run folder of the model to sample from")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks.attention needs a GPU")
    torch.manual_seed(0)
    name = torch.cuda.get_device_name()
    command = " ".join(["python -m benchmarks.attention", *([str(arguments.run)] if arguments.run else [])])
    lines = [
        f"`{command}` ran on one {name} with torch {torch.__version__}.",
        "",
        "## A training step",
        "",
        *steps(name),
        "",
    ]
    flow = model() if arguments.run is None else cf.load(arguments.run, device="cuda")
    lines += ["## Samples", "", *samples(flow)]
    arguments.output.write_text("# Attention, measured\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    print(arguments.output.read_text(encoding="utf-8"))


def model() -> Any:
    return cf.flows.tabular(FEATURES, layer="autoregressive", network="transformer", dropout=0.1).cuda()


def steps(name: str) -> list[str]:
    """Return the lines of the section on training steps: times of whole steps, then the kernels of one step."""
    by_product = 2 * 8192**3 / (median_ms(product_of(8192)) / 1e3)
    rows, kernels = [], Counter[str]()
    for batch in BATCHES:
        take = captured(batch)
        ms = median_ms(take)
        rate = operations(batch) / (ms / 1e3)
        peak = PEAK.get(name)
        shares = ["" if peak is None else f"{rate / peak:.0%}", f"{rate / by_product:.0%}"]
        rows.append([batch, f"{ms:.2f}", f"{operations(batch) / 1e12:.2f}", f"{rate / 1e12:.0f}", *shares])
        kernels = kinds_of(take)
    total = sum(kernels.values())
    times = [[kind, f"{us / 1e3:.2f}", f"{us / total:.0%}"] for kind, us in kernels.most_common()]
    header = ["rows", "ms", "products, 10^12 operations", "10^12 a second", "of the peak", "of a large product's rate"]
    return [
        f"A product of 8192 x 8192 matrices in bfloat16 reaches {by_product / 1e12:.0f} x 10^12 operations a second.",
        "",
        markdown_table(header, rows),
        "",
        f"The kernels of a step of {BATCHES[-1]} rows take {total / 1e3:.2f} ms if they run one after the other:",
        "",
        markdown_table(["kernels", "ms", "share"], times),
    ]


def operations(batch: int) -> float:
    """Return the operations of one step's matrix products, with attention's: per weight and token two forward, four
    backward."""
    flow = model()
    tokens = batch * FEATURES
    weights: int = sum(w.numel() for n, w in flow.named_parameters() if w.ndim == 2 and "positions" not in n)
    # The causal mask leaves half the pairs of tokens. Scores and weighted sums of values then take 2 x 2 x T / 2 x H
    # operations per token and block.
    cores = [module for module in flow.modules() if isinstance(module, Transformer)]
    attention = sum(core.num_blocks * 2 * FEATURES * core.hidden_features for core in cores)
    return 3 * tokens * (2 * weights + attention)


def captured(batch: int) -> Callable[[], None]:
    """Return a function that takes one training step as `fit` does on a GPU: the replay of a CUDA graph."""
    config = TrainingConfig(steps=1000, batch_size=batch, precision="bf16", clip_norm=1.0, beta2=0.98).resolve(10**6)
    with join("cuda") as processes:
        step = Step(model().train(), negative_log_likelihood, config, processes, 1.0)
    step.set_rates(1e-4, 0.1)
    take = step_hook.prepared_step(step, lambda reason: sys.exit(reason))
    rows = Batch(torch.randn(batch, FEATURES, device="cuda"))
    return lambda: take(rows)


def product_of(size: int) -> Callable[[], object]:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: a @ b


def samples(flow: Any) -> list[str]:
    """Return the lines of the section on samples: with a key-value memory, and by whole passes."""
    flow.eval()

    def draw() -> torch.Tensor:
        return flow.sample(SAMPLES, seed=0)  # type: ignore[no-any-return]

    draw()
    with_memory, found = timed(draw)
    with patch.object(CausalTransformer, "start_decoding", None):
        by_passes, expected = timed(draw)
    rows = [
        ["one feature after the other, with a cache of earlier features", f"{with_memory:.2f}", ""],
        ["whole passes", f"{by_passes:.2f}", f"{by_passes / with_memory:.0f} x"],
    ]
    return [
        markdown_table([f"{SAMPLES:,} samples of {FEATURES} features", "seconds", "slower"], rows),
        "",
        f"The samples of the two methods differ by at most {float((found - expected).abs().max()):.1e}.",
    ]


def median_ms(run: Callable[[], object], repeats: int = 30) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        seconds, _ = timed(run)
        times.append(1e3 * seconds)
    return statistics.median(times)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = run()
    torch.cuda.synchronize()
    return time.perf_counter() - began, result


def kinds_of(run: Callable[[], object]) -> Counter[str]:
    """Return the microseconds of one call's kernels, by kind."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    kinds: Counter[str] = Counter()
    for event in found.key_averages():
        kind = next(
            (kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), "everything else"
        )
        kinds[kind] += round(event.self_device_time_total)
    return kinds


if __name__ == "__main__":
    main()
