"""The benchmarked workloads: single splines, training steps, densities and samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed import peers
from benchmarks.speed.peers import SplineFunction
from benchmarks.speed.timing import Captured, Measurement, measure
from cubicflow.accel.side_stream import SideStream
from cubicflow.data.rows import Batch
from cubicflow.flows import tabular
from cubicflow.flows.flow import Flow
from cubicflow.nets.precision import float32_products
from cubicflow.splines import cubic_spline, quadratic_spline, rational_quadratic_spline
from cubicflow.splines.dispatch import BACKENDS, FAST
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import Loss, negative_log_likelihood
from cubicflow.training.step import Step
from cubicflow.training.step_hook import step_hook
from cubicflow.transforms import Coupling

OURS = "cubicflow"
NETWORKS_ALONE = "its networks alone"
FLOOR = "a copy of as many bytes"
CAPTURED = ", captured"
RELATIVES = ("quadratic", "rational-quadratic")
TOO_SLOW = 5.0  # seconds of one run; a slower implementation is not measured at the later points of a curve


def splines(
    device: torch.device,
    *,
    rows: int,
    num_bins: int,
    seconds: float,
    relatives: bool = False,
    rivals: tuple[str, ...] | None = None,
) -> Iterator[Measurement]:
    """Measure forward, inverse, and forward with backward, with one spline for each element.

    ``relatives`` adds our other spline families. ``rivals`` restricts the peers to these names, and our backends to the
    fastest.
    """
    x, params = peers.spline_params(rows, num_bins, device)
    backends = backends_on(device) if rivals is None else backends_on(device)[:1]
    contenders = {f"{OURS} {name}": our_spline("cubic", params, name) for name in backends}
    if relatives:
        contenders |= {f"{OURS} {name}": our_spline(name, params, "auto") for name in RELATIVES}
    for name, function in peers.spline_functions(num_bins).items():
        if rivals is None or name in rivals:
            contenders[name] = function, params
    # Captured runs have their own tensors, so that the plain call starts without gradients when its peak is measured.
    captured = ["triton", *RELATIVES] if device.type == "cuda" else []
    fused = [name for name in (f"{OURS} {kind}" for kind in captured) if name in contenders]
    label = f"{rows:,} elements, K = {num_bins}"
    # Bytes read and written: forward reads params and x, and writes two outputs. Backward reads params, x and two
    # gradients, and writes the gradients of params and x.
    forward_bytes, both_bytes = params.nbytes + 3 * x.nbytes, 3 * params.nbytes + 7 * x.nbytes
    works: dict[str, tuple[Callable[[SplineFunction, Tensor, Tensor], Callable[[], Any]], int]] = {
        "spline forward": (partial(one_way, inverse=False), forward_bytes),
        "spline inverse": (partial(one_way, inverse=True), forward_bytes),
        "spline forward + backward": (both_ways, both_bytes),
    }
    for work, (make, moved) in works.items():
        runs: dict[str, Callable[[], Any]] = {
            f"{name}{CAPTURED}": Captured(make(*contenders[name], x)) for name in fused
        }
        runs |= {name: make(function, own, x) for name, (function, own) in contenders.items()}
        runs[FLOOR] = copying(moved, device)
        yield from measure(f"{work}, {label}", runs, device, seconds=seconds)


def our_spline(family: str, params: Tensor, backend: str) -> tuple[SplineFunction, Tensor]:
    """Return one of our splines, and params of the size that it needs."""
    spline = {"cubic": cubic_spline, "quadratic": quadratic_spline, "rational-quadratic": rational_quadratic_spline}
    if family == "quadratic":
        params = params[..., :-1].contiguous()
    elif family == "rational-quadratic":
        params = torch.cat([params, params[..., : params.shape[-1] // 2 - 2]], -1)  # 3K + 1 in all
    return lambda x, params, inverse: spline[family](x, params, inverse=inverse, backend=backend), params


def one_way(function: SplineFunction, params: Tensor, x: Tensor, *, inverse: bool) -> Callable[[], Any]:
    """Return a function that runs forward or inverse without gradients."""

    @torch.no_grad()
    def run() -> Any:
        return function(x, params, inverse)

    return run


def both_ways(function: SplineFunction, params: Tensor, x: Tensor) -> Callable[[], Any]:
    """Return a function that runs forward and backward; each run allocates new gradients.

    The backward pass of every contender stays in this thread. Otherwise torch would wake its autograd thread. A model
    wakes that thread once, so the time of a single spline should not include the wake-up.
    """
    leaf_x, leaf_params = x.clone().requires_grad_(), params.clone().requires_grad_()

    def run() -> None:
        leaf_x.grad = leaf_params.grad = None
        y, log_slope = function(leaf_x, leaf_params, False)
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.backward((y, log_slope), (x, x))

    return run


def copying(moved: int, device: torch.device) -> Callable[[], Any]:
    """Return a function that moves ``moved`` bytes: it reads half of them and writes the other half."""
    source, target = torch.zeros(2, moved // 2, dtype=torch.uint8, device=device)
    return lambda: target.copy_(source)


def backends_on(device: torch.device) -> list[str]:
    """Return the names of the backends that "auto" considers for tensors on the device."""
    names = [FAST[device.type], "reference"] if device.type in FAST else ["reference"]
    return [name for name in names if BACKENDS[name].unavailable() is None]


def training_step(
    device: torch.device, *, features: int, batch: int, num_layers: int, hidden: int, num_bins: int, seconds: float
) -> Iterator[Measurement]:
    """Measure one training step of the paper's tabular flow, of the peers' flows, and of our flow's networks alone.

    On a GPU, the matrix products of every contender are in TF32.
    """
    torch.manual_seed(0)
    x = torch.randn(batch, features, device=device)
    flow = tabular(features, num_layers=num_layers, hidden_features=hidden, num_bins=num_bins).to(device)
    networks = networks_alone(copy.deepcopy(flow), x)
    runs: dict[str, Callable[[], Any]] = {
        OURS: our_step(flow, x),
        NETWORKS_ALONE: Captured(networks) if device.type == "cuda" else networks,
    }
    for name, peer in peers.coupling_flows(features, num_layers, hidden, num_bins, device).items():
        runs[name] = peers.training_step(peer, x)
    with float32_products(tf32=True, device=device):
        # The first step also allocates the optimiser's state, or captures a graph, so its memory is not reported.
        label = f"training step, D = {features}, batch {batch}"
        yield from measure(label, runs, device, seconds=seconds, memory=False)


def our_step(flow: Flow, x: Tensor, loss: Loss = negative_log_likelihood) -> Callable[[], Any]:
    """Return the training step of :func:`cubicflow.training.fit`, captured as a CUDA graph if possible."""
    config = TrainingConfig(steps=10**6, batch_size=len(x)).resolve(10**6)
    step = Step(flow, loss, config, Processes(x.device), 1.0)
    step.set_rates(5e-4, 1e-3)
    taken = step_hook.prepared_step(step, print)
    return lambda: taken(Batch(x))


def networks_alone(flow: Flow, x: Tensor) -> Callable[[], Any]:
    """Return a function that runs only forward and backward of the coupling layers' networks, as a training step does.

    This time is a lower bound for a training step with any spline.
    """
    couplings = [module for module in flow.modules() if isinstance(module, Coupling)]
    inputs = [x[:, coupling.identity].clone() for coupling in couplings]
    passes = SideStream(x.device).weight_gradients if x.is_cuda else nullcontext

    def run() -> None:
        with passes():
            for coupling, part in zip(couplings, inputs, strict=True):
                coupling.network.zero_grad()
                params = coupling.network(part)
                params.backward(torch.ones_like(params))

    return run


def densities_and_samples(
    device: torch.device, *, features: int, rows: int, num_layers: int, hidden: int, num_bins: int, seconds: float
) -> Iterator[Measurement]:
    """Measure log_prob and sample of many rows, without gradients. On a GPU, all matrix products are in TF32."""
    torch.manual_seed(0)
    x = torch.randn(rows, features, device=device)
    flow = tabular(features, num_layers=num_layers, hidden_features=hidden, num_bins=num_bins).to(device).eval()
    couplings = [module for module in flow.modules() if isinstance(module, Coupling)]
    rivals = peers.coupling_flows(features, num_layers, hidden, num_bins, device)

    @torch.no_grad()
    def networks() -> None:
        for coupling in couplings:
            coupling.network(x[:, coupling.identity])

    with torch.no_grad(), float32_products(tf32=True, device=device):
        for work, argument in (("log_prob", x), ("sample", rows)):
            ours = partial(getattr(flow, work), argument)
            runs: dict[str, Callable[[], Any]] = {OURS: ours, NETWORKS_ALONE: networks}
            runs |= {name: partial(getattr(peer, work), argument) for name, peer in rivals.items()}
            yield from measure(f"{work}, D = {features}, {rows:,} rows", runs, device, seconds=seconds)


def one_pass(
    device: torch.device, *, features: int, rows: int, hidden: int, seconds: float, too_slow: set[tuple[str, str]]
) -> Iterator[Measurement]:
    """Measure one point of a curve: the time of log_prob and of sample for a number of features.

    A contender whose run takes more than TOO_SLOW seconds is added to ``too_slow``, and left out at later points.
    """
    torch.manual_seed(0)
    x = torch.randn(rows, features, device=device)
    settings: dict[str, Any] = {"num_layers": 3, "hidden_features": hidden}
    coupling = tabular(features, **settings).to(device).eval()
    autoregressive = tabular(features, layer="autoregressive", **settings).to(device).eval()
    flows: dict[str, Any] = {f"{OURS} coupling": coupling, f"{OURS} autoregressive": autoregressive}
    flows |= peers.one_pass_rivals(features, hidden, device)
    with torch.no_grad():
        for work, argument in (("log_prob", x), ("sample", rows)):
            runs: dict[str, Callable[[], Any]] = {
                name: partial(getattr(flow, work), argument)
                for name, flow in flows.items()
                if (work, name) not in too_slow
            }
            label = f"one pass: {work}, D = {features}, {rows:,} rows"
            for measurement in measure(label, runs, device, seconds=seconds, most=20):
                yield measurement
                if measurement.median > TOO_SLOW * 1e3:
                    name = measurement.implementation
                    print(f"  {work}: {name} left out from here on: one run takes over {TOO_SLOW:g} s")
                    too_slow.add((work, name))
