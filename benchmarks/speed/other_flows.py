"""A training step of flows of other papers, ours against another package's.

    python -m benchmarks.speed.other_flows -o results/other_flows [--device cuda] [--only maf,naf,...]

Both packages have the same number of layers and networks of the same sizes, and take turns of one step in one process.
On a CPU the time of a step is processor time, so other work on the machine is not counted. A pair of turns gives a
ratio, their time over ours: above 1, ours is faster. The record has the median of the ratios and their quartiles. A
pair whose package is not installed is left out. DEVICE.csv is written again after every pair.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.machine import machine, name_of
from benchmarks.speed import peers
from benchmarks.speed.peers import PeerFlow
from benchmarks.speed.workloads import our_step
from cubicflow.flows import published, tabular
from cubicflow.nets.precision import float32_products
from cubicflow.training import reverse_kl

FEATURES, BATCH = 6, 512
PAIRS, WARM_UPS = 41, 3
LAYERS, HIDDEN = 5, 64  # of every flow but the planar one
PLANAR_LAYERS = 16

Run = Callable[[], Any]


class Pair(NamedTuple):
    """Our step and another package's step of the same flow."""

    what: str
    ours: Run
    theirs: Run


def maf(x: Tensor) -> Pair:
    """Affine maps, plain masked networks with two hidden layers."""
    import zuko

    sizes: dict[str, Any] = {"num_layers": LAYERS, "hidden_features": HIDDEN}
    ours = published("maf", FEATURES, normalise=None, **sizes).to(x.device)
    theirs = zuko.flows.MAF(FEATURES, transforms=LAYERS, hidden_features=[HIDDEN] * 2)
    return Pair("MAF, zuko", our_step(ours, x), _zuko_step(theirs, x))


def maf_residual(x: Tensor) -> Pair:
    """Affine maps, masked residual networks with two blocks."""
    from nflows.flows.autoregressive import MaskedAutoregressiveFlow

    settings: dict[str, Any] = {"layer": "autoregressive", "family": "affine", "linear": False}
    ours = tabular(FEATURES, num_layers=LAYERS, hidden_features=HIDDEN, **settings).to(x.device)
    theirs = MaskedAutoregressiveFlow(FEATURES, HIDDEN, LAYERS, num_blocks_per_layer=2).to(x.device)
    peer = PeerFlow(theirs, theirs.log_prob, theirs.sample)
    return Pair("MAF with residual networks, nflows", our_step(ours, x), peers.training_step(peer, x))


def naf(x: Tensor, family: str = "deep_sigmoidal", depth: int = 1) -> Pair:
    """Monotone networks with layers of 16 sigmoids as maps, and plain masked networks with two hidden layers. Our
    network computes 48 params of a layer, and 64 of a dense one that follows another. zuko's computes 16 inputs of the
    map, whose weights all rows share."""
    import zuko

    settings: dict[str, Any] = {"family": family, "depth": depth, "num_layers": LAYERS, "hidden_features": HIDDEN}
    ours = published("naf", FEATURES, **settings).to(x.device)
    of_map = {"hidden_features": [16] * depth}
    theirs = zuko.flows.NAF(FEATURES, transforms=LAYERS, hidden_features=[HIDDEN] * 2, signal=16, network=of_map)
    return Pair(f"NAF, {family} maps of {depth} layers, zuko", our_step(ours, x), _zuko_step(theirs, x))


def continuous(x: Tensor, *, exact: bool) -> Pair:
    """One differential equation, solved by adaptive steps to the same tolerance, two hidden layers. zuko solves another
    equation backwards for its gradients; ours are those of the steps that were taken."""
    import zuko

    settings: dict[str, Any] = {"layer": "continuous" if exact else "ffjord", "identity_start": False}
    ours = tabular(FEATURES, num_layers=1, linear=False, hidden_features=HIDDEN, **settings).to(x.device)
    theirs = zuko.flows.CNF(FEATURES, hidden_features=[HIDDEN] * 2, exact=exact, atol=1e-5, rtol=1e-5)
    name = f"continuous, {'exact' if exact else 'estimated'} trace, zuko"
    return Pair(name, our_step(ours, x), _zuko_step(theirs, x))


def planar(x: Tensor) -> Pair:
    """Reverse KL to a normal, because normflows has no densities of given rows."""
    import normflows

    target = torch.distributions.Normal(1.0, 0.5)

    def log_density(x: Tensor) -> Tensor:
        log_probs: Tensor = target.log_prob(x)
        return log_probs.sum(-1)

    class Target(torch.nn.Module):
        log_prob = staticmethod(log_density)

    ours = published("planar", FEATURES, num_layers=PLANAR_LAYERS).to(x.device)
    layers = [normflows.flows.Planar((FEATURES,)) for _ in range(PLANAR_LAYERS)]
    base = normflows.distributions.DiagGaussian(FEATURES, trainable=False)
    theirs = normflows.NormalizingFlow(base, layers, Target()).to(x.device)
    # The loss of this step is the mean of -log_prob, so the divergence is passed as its negative.
    peer = PeerFlow(theirs, lambda rows: -theirs.reverse_kld(len(rows)), theirs.sample)
    return Pair("planar, normflows", our_step(ours, x, reverse_kl(log_density)), peers.training_step(peer, x))


def _zuko_step(flow: Any, x: Tensor) -> Run:
    flow = flow.to(x.device)
    return peers.training_step(PeerFlow(flow, lambda rows: flow().log_prob(rows), lambda n: flow().sample((n,))), x)


# The name on the command line, the package, and a function of the rows.
PAIRS_BY_NAME: dict[str, tuple[str, Callable[[Tensor], Pair]]] = {
    "maf": ("zuko", maf),
    "maf-residual": ("nflows", maf_residual),
    "naf": ("zuko", naf),
    "naf-dense": ("zuko", partial(naf, family="dense_sigmoidal", depth=2)),
    "continuous": ("zuko", partial(continuous, exact=True)),
    "ffjord": ("zuko", partial(continuous, exact=False)),
    "planar": ("normflows", planar),
}


def compare(pair: Pair, device: torch.device, pairs: int = PAIRS) -> dict[str, Any]:
    """Run both steps in turns, and return the medians of their milliseconds and of the ratios."""
    for _ in range(WARM_UPS):
        pair.ours()
        pair.theirs()
    times = [(milliseconds(pair.ours, device), milliseconds(pair.theirs, device)) for _ in range(pairs)]
    ratios = [theirs / ours for ours, theirs in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    found = {"flow": pair.what, "ours (ms)": f"{ours:.4g}", "theirs (ms)": f"{theirs:.4g}"}
    return found | {"ratio": f"{middle:.3f}", "lower quartile": f"{low:.3f}", "upper quartile": f"{high:.3f}"}


def milliseconds(run: Run, device: torch.device) -> float:
    """Return the time of one run: processor time on a CPU, and the time until all kernels have ended on a GPU."""
    if device.type == "cpu":
        begun = time.process_time()
        run()
        return (time.process_time() - begun) * 1e3
    torch.cuda.synchronize(device)
    begun = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - begun) * 1e3


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default=",".join(PAIRS_BY_NAME))
    parser.add_argument("--pairs", type=int, default=PAIRS)
    chosen = parser.parse_args(arguments)
    device = torch.device("cuda", 0) if chosen.device == "cuda" else torch.device("cpu")
    rows: list[dict[str, Any]] = []
    for name in chosen.only.split(","):
        if name not in PAIRS_BY_NAME:
            parser.error(f"unknown flow {name!r}; the flows are {', '.join(PAIRS_BY_NAME)}")
        package, make = PAIRS_BY_NAME[name]
        if importlib.util.find_spec(package) is None:
            print(f"{name} left out: {package} is not installed")
            continue
        torch.manual_seed(0)
        with float32_products(tf32=True, device=device):
            found = compare(make(torch.randn(BATCH, FEATURES, device=device)), device, chosen.pairs)
        rows.append(found | {"machine": name_of(machine(chosen.device), threads=True)})
        print(found, flush=True)
        chosen.output.mkdir(parents=True, exist_ok=True)
        with (chosen.output / f"{chosen.device}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
