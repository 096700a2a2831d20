"""The pieces of work that are measured: single splines, training steps, densities and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cubicflow.bench import peers
from cubicflow.bench.timing import Measurement, measure
from cubicflow.data.rows import Batch
from cubicflow.flows import tabular
from cubicflow.flows.flow import Flow
from cubicflow.splines import cubic_spline, quadratic_spline
from cubicflow.splines.dispatch import BACKENDS
from cubicflow.training.captured_step import CapturedStep
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import World
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step, float32_products
from cubicflow.transforms import Coupling

OURS = "cubicflow"
NETWORKS_ALONE = "its networks alone"
FLOOR = "a copy of as many bytes"


def splines(
    device: torch.device, *, rows: int, num_bins: int, seconds: float, quadratic: bool = False
) -> Iterator[Measurement]:
    """Forward, inverse, and forward with backward of one spline for each element."""
    x, params = peers.spline_params(rows, num_bins, device)
    contenders: dict[str, Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]] = {
        f"{OURS} {name}": partial(_cubic, name) for name in backends_on(device)
    }
    if quadratic:
        contenders[f"{OURS} quadratic"] = _quadratic
    contenders |= peers.spline_functions(num_bins)
    label = f"{rows:,} elements, K = {num_bins}"

    def one_way(function: Any, inverse: bool) -> Callable[[], Any]:
        @torch.no_grad()
        def run() -> Any:
            return function(x, params, inverse)

        return run

    def both_ways(function: Any) -> Callable[[], Any]:
        leaf_x, leaf_params = x.clone().requires_grad_(), params.clone().requires_grad_()

        def run() -> None:
            leaf_x.grad = leaf_params.grad = None
            y, log_slope = function(leaf_x, leaf_params, False)
            torch.autograd.backward((y, log_slope), (x, x))

        return run

    works = {
        "spline forward": {name: one_way(function, False) for name, function in contenders.items()},
        "spline inverse": {name: one_way(function, True) for name, function in contenders.items()},
        "spline forward + backward": {name: both_ways(function) for name, function in contenders.items()},
    }
    moved = {  # bytes read and written: params and x in, two numbers out; the backward pass reads all that again
        "spline forward": params.nbytes + 3 * x.nbytes,
        "spline inverse": params.nbytes + 3 * x.nbytes,
        "spline forward + backward": 3 * params.nbytes + 7 * x.nbytes,
    }
    for work, runs in works.items():
        runs[FLOOR] = copying(moved[work], device)
        if device.type == "cuda":
            fused = [name for name in (f"{OURS} triton", f"{OURS} quadratic") if name in runs]
            runs = {**{f"{name}, captured": captured(runs[name]) for name in fused}, **runs}
        yield from measure(f"{work}, {label}", runs, device, seconds=seconds)


def copying(moved: int, device: torch.device) -> Callable[[], Any]:
    """What it takes to move so many bytes, half of them read and half of them written."""
    source, target = torch.zeros(2, moved // 2, dtype=torch.uint8, device=device)
    return lambda: target.copy_(source)


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same work as a CUDA graph, as it runs inside a training step: what is left is the time of the kernels,
    without the time Python takes to launch them."""
    run()  # compiles, before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def backends_on(device: torch.device) -> list[str]:
    """The backends that "auto" would consider for tensors on the device."""
    return [name for name, backend in BACKENDS.items() if backend.at_home_on(device) and backend.unavailable() is None]


def _cubic(backend: str, x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return cubic_spline(x, params, inverse=inverse, backend=backend)


def _quadratic(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return quadratic_spline(x, params[..., :-1], inverse=inverse)


def training_step(
    device: torch.device, *, features: int, batch: int, num_layers: int, hidden: int, num_bins: int, seconds: float
) -> Iterator[Measurement]:
    """One step of Adam on the paper's tabular flow, beside the peers' and beside the networks of ours alone."""
    torch.manual_seed(0)
    x = torch.randn(batch, features, device=device)
    flow = tabular(features, num_layers=num_layers, hidden_features=hidden, num_bins=num_bins).to(device)
    runs: dict[str, Callable[[], Any]] = {OURS: our_step(flow, x)}
    runs[NETWORKS_ALONE] = networks_alone(flow, x)
    for name, peer in peers.coupling_flows(features, num_layers, hidden, num_bins, device).items():
        runs[name] = peer_step(peer, x)
    yield from measure(f"training step, D = {features}, batch {batch}", runs, device, seconds=seconds)


def our_step(flow: Flow, x: Tensor) -> Callable[[], Any]:
    """The trainer's own step, captured where it can be."""
    config = TrainingConfig(steps=10**6, batch_size=len(x)).resolve(10**6)
    step = Step(flow, negative_log_likelihood, config, World(x.device), 1.0)
    step.tell(5e-4, 1e-3)
    taken = CapturedStep(step, print)
    return lambda: taken(Batch(x))


def peer_step(peer: peers.PeerFlow, x: Tensor) -> Callable[[], Any]:
    """The usual loop of a peer's user: loss, backward, clipping, Adam."""
    optimiser = torch.optim.Adam(peer.module.parameters(), lr=5e-4)

    def run() -> None:
        optimiser.zero_grad()
        loss = -peer.log_prob(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.module.parameters(), 5.0)
        optimiser.step()

    return run


def networks_alone(flow: Flow, x: Tensor) -> Callable[[], Any]:
    """Forward and backward of the coupling layers' networks, and nothing else: what no spline can undercut."""
    couplings = [module for module in flow.modules() if isinstance(module, Coupling)]
    inputs = [x[:, coupling.identity].clone() for coupling in couplings]

    def run() -> None:
        for coupling, part in zip(couplings, inputs, strict=True):
            coupling.network.zero_grad()
            params = coupling.network(part)
            params.backward(torch.ones_like(params))

    return run


def densities_and_samples(
    device: torch.device, *, features: int, rows: int, num_layers: int, hidden: int, num_bins: int, seconds: float
) -> Iterator[Measurement]:
    """log_prob and sample of many rows, without gradients; on a GPU every contender's products are in TF32."""
    torch.manual_seed(0)
    x = torch.randn(rows, features, device=device)
    flow = tabular(features, num_layers=num_layers, hidden_features=hidden, num_bins=num_bins).to(device).eval()
    couplings = [module for module in flow.modules() if isinstance(module, Coupling)]
    rivals = peers.coupling_flows(features, num_layers, hidden, num_bins, device)

    @torch.no_grad()
    def networks() -> None:
        for coupling in couplings:
            coupling.network(x[:, coupling.identity])

    density: dict[str, Callable[[], Any]] = {OURS: lambda: flow.log_prob(x), NETWORKS_ALONE: networks}
    sampling: dict[str, Callable[[], Any]] = {OURS: lambda: flow.sample(rows), NETWORKS_ALONE: networks}
    for name, peer in rivals.items():
        density[name] = partial(peer.log_prob, x)
        sampling[name] = partial(peer.sample, rows)
    with torch.no_grad(), float32_products(tf32=True, device=device):
        yield from measure(f"log_prob, D = {features}, {rows:,} rows", density, device, seconds=seconds)
        yield from measure(f"sample, D = {features}, {rows:,} rows", sampling, device, seconds=seconds)


def one_pass(device: torch.device, *, features: int, rows: int, hidden: int, seconds: float) -> Iterator[Measurement]:
    """The paper's argument as a curve: how the time of log_prob and of sample grows with the number of features."""
    torch.manual_seed(0)
    x = torch.randn(rows, features, device=device)
    settings: dict[str, Any] = {"num_layers": 3, "hidden_features": hidden}
    coupling = tabular(features, **settings).to(device).eval()
    autoregressive = tabular(features, layer="autoregressive", **settings).to(device).eval()
    flows: dict[str, Any] = {f"{OURS} coupling": coupling, f"{OURS} autoregressive": autoregressive}
    flows |= peers.one_pass_rivals(features, hidden, device)
    with torch.no_grad():
        for work in ("log_prob", "sample"):
            runs: dict[str, Callable[[], Any]] = {
                name: partial(flow.log_prob, x) if work == "log_prob" else partial(flow.sample, rows)
                for name, flow in flows.items()
            }
            yield from measure(
                f"one pass: {work}, D = {features}, {rows:,} rows", runs, device, seconds=seconds, most=20
            )
