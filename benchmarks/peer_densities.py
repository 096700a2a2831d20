"""Other packages' flows on the tables of the paper, trained by our loop on the same arrays.

    python -m benchmarks.peer_densities -o runs/table-1 --dataset miniboone

Each is built to the sizes of the recipe's cell and gets its batches, its learning rate, its averaging and its early
stopping. Training ends after the recipe's steps or its seconds for peers, whichever is first, and the learning rate
reaches 0 there. Records go into the folder of ``cubicflow reproduce table-1``, whose table is rebuilt. What a peer
fails with is printed, and the exit status is then 1; one that is not installed is named so in the table.

A peer's fit cannot be stopped and resumed. With ``--seconds`` a fit begins only if it can end within them; one that is
not over by then, its scoring included, is given up. Either way the exit status is 75, and the same command goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.data.benchmarks import Benchmark
from cubicflow.data.rows import Batch
from cubicflow.reproduce.cells import (
    Cell,
    TableSettings,
    all_settings,
    load_rows,
    record_cell,
    table_settings,
    why_left_out,
)
from cubicflow.reproduce.experiment import Request
from cubicflow.reproduce.recipe_files import Settings, load_recipe
from cubicflow.reproduce.table_1 import chosen_cells, write_table
from cubicflow.training import fit
from cubicflow.training.distributed import choose_device

FAILED, UNFINISHED = 1, 75  # exit statuses; the second as that of ``cubicflow reproduce``
SCORING_SECONDS = 60  # of test rows, after a fit: what a continuous flow may need for a quarter of a million of them


class TimeIsOverError(Exception):
    """The seconds of this call have passed."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise TimeIsOverError in the block once so many seconds have passed. The interpreter unwinds as after any error:
    a process that is killed while it shares a GPU with others may take them along."""

    def give_up(*_: object) -> None:
        raise TimeIsOverError

    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class PeerDensity(nn.Module):
    """A peer's flow with the one method that training and scoring need."""

    def __init__(self, flow: nn.Module, log_prob: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.flow = flow
        self._log_prob = log_prob

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:  # noqa: ARG002 - none of them has any
        return self._log_prob(x)


def nflows_coupling(features: int, sizes: Settings, device: torch.device, *, cubic: bool) -> PeerDensity:
    """LU layers and couplings in turn. The cubic is the paper authors' own code in the paper's clipped sandwich; the
    rational-quadratic has linear tails, as its own paper has."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.nn.nets import ResidualNet
    from nflows.transforms import (
        CompositeTransform,
        LULinear,
        PiecewiseCubicCouplingTransform,
        PiecewiseRationalQuadraticCouplingTransform,
        RandomPermutation,
    )
    from nflows.transforms.base import Transform
    from nflows.transforms.nonlinearities import Logit, Sigmoid
    from nflows.utils import create_alternating_binary_mask

    def network(inputs: int, outputs: int) -> nn.Module:
        net: nn.Module = ResidualNet(
            inputs,
            outputs,
            hidden_features=sizes["hidden_features"],
            num_blocks=sizes["num_blocks"],
            dropout_probability=sizes.get("dropout", 0.0),
        )
        return net

    class IntoUnit(Transform):  # type: ignore[misc] # nflows is untyped
        """Rounding puts some of its spline's outputs an epsilon outside [0, 1], which its logit then refuses."""

        def forward(self, inputs: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
            return inputs.clamp(0, 1), inputs.new_zeros(len(inputs))

    def clipped(coupling: nn.Module) -> list[nn.Module]:
        sigmoid, logit = Sigmoid(), Logit()
        for part in (sigmoid, logit._transform):  # their temperature is no buffer, and would stay on the CPU
            part.temperature = part.temperature.to(device)
        return [sigmoid, coupling, IntoUnit(), logit]

    layers: list[nn.Module] = []
    for i in range(sizes["num_layers"]):
        mask = create_alternating_binary_mask(features, even=i % 2 == 0)
        layers += [RandomPermutation(features), LULinear(features, identity_init=True)]
        common = {"num_bins": sizes["num_bins"], "apply_unconditional_transform": True}
        if cubic:
            layers += clipped(PiecewiseCubicCouplingTransform(mask, network, **common))
        else:
            tails = {"tails": "linear", "tail_bound": 3.0}
            layers.append(PiecewiseRationalQuadraticCouplingTransform(mask, network, **common, **tails))
    flow = Flow(CompositeTransform(layers), StandardNormal([features]))
    return PeerDensity(flow, flow.log_prob)


def zuko_flow(features: int, sizes: Settings, kind: str) -> PeerDensity:
    """MAF as deep as the recipe's flow; NAF with two transforms, each of which is a network deep; CNF with its exact
    trace, since scores have to be exact."""
    import zuko

    hidden = [sizes["hidden_features"]] * 2
    if kind == "maf":
        flow = zuko.flows.MAF(features, transforms=sizes["num_layers"], hidden_features=hidden)
    elif kind == "naf":
        flow = zuko.flows.NAF(features, transforms=2, hidden_features=hidden)
    else:
        flow = zuko.flows.CNF(features, hidden_features=hidden, exact=True)
    return PeerDensity(flow, lambda x: flow().log_prob(x))


BUILDERS: dict[str, Callable[[int, Settings, torch.device], PeerDensity]] = {
    "nflows-cubic": lambda features, sizes, device: nflows_coupling(features, sizes, device, cubic=True),
    "nflows-rational-quadratic": lambda features, sizes, device: nflows_coupling(features, sizes, device, cubic=False),
    "zuko-maf": lambda features, sizes, _: zuko_flow(features, sizes, "maf"),
    "zuko-naf": lambda features, sizes, _: zuko_flow(features, sizes, "naf"),
    "zuko-cnf": lambda features, sizes, _: zuko_flow(features, sizes, "cnf"),
}


def peer_loss(flow: PeerDensity, batch: Batch) -> Tensor:
    """-log p(x). It is no loss of cubicflow's own: steps with those may be replayed as CUDA graphs, and other people's
    code reads numbers back from the GPU, which no graph can."""
    return -flow.log_prob(batch.x)


def seconds_for(cell: Cell, settings: TableSettings) -> float:
    """How long a peer may train."""
    seconds: Any = settings.datasets[cell.dataset].get("peer_seconds", settings.peers["seconds"])
    return float(seconds)


def run_peer(cell: Cell, table: Benchmark, settings: TableSettings, request: Request) -> None:
    """Train one peer in this call, and score its test rows. There is no run folder: only flows of ours can be saved."""
    used: dict[str, Any] = all_settings(settings, cell)
    torch.manual_seed(cell.seed)
    flow = BUILDERS[cell.model](table.features, used["flow"], choose_device(request.device))
    fitted = fit(
        flow,
        (table.train, None, table.weights),
        table.validation,
        loss=peer_loss,
        time_budget=seconds_for(cell, settings),
        device=request.device,
        seed=cell.seed,
        **used["training"],
    )
    test = record_cell(request.folder, cell, table, fitted, settings, request.command).about["test"]
    print(f"{cell}: test {test['mean']:.3f} ± {test['error']:.3f} nats, {fitted.steps:,} steps ({fitted.stopped})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/table-1"), help="the table's folder")
    parser.add_argument("--dataset", action="append", default=[], help="only this one; repeat it")
    parser.add_argument("--model", action="append", default=[], help="only this one; repeat it")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="end this call after so long")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--recipe", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.seconds is not None and not arguments.seconds >= 0:
        parser.error(f"--seconds must be a number, 0 or more, got {arguments.seconds}")
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    request = Request(
        name="table-1",
        folder=arguments.output,
        recipe=load_recipe("table-1", arguments.recipe, quick=arguments.quick),
        command=f"python -m benchmarks.peer_densities {shlex.join(sys.argv[1:])}",
        quick=arguments.quick,
        data=arguments.data,
        device=arguments.device,
        seed=arguments.seed,
        datasets=tuple(arguments.dataset),
        models=tuple(arguments.model),
    )
    try:
        return run_peers(request, end)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def run_peers(request: Request, end: float | None) -> int:
    """Train every peer that is asked for and has no record yet, on the tables that are there."""
    request.check()
    settings = table_settings(request.recipe)
    peers = settings.peers["models"]
    tables: dict[str, Benchmark] = {}
    left_out: dict[str, str | None] = {}
    status = 0
    for cell in chosen_cells(request, settings, peers):
        if cell.dataset not in left_out:
            left_out[cell.dataset] = None if request.datasets else why_left_out(cell.dataset, request.data)
            if left_out[cell.dataset]:
                print(f"{cell.dataset.upper()} is left out: {left_out[cell.dataset]}")
        if left_out[cell.dataset]:
            continue
        if importlib.util.find_spec(peers[cell.model]["package"]) is None:
            print(f"{cell}: {peers[cell.model]['package']} is not installed (pip install 'cubicflow[bench]')")
            continue
        if cell.dataset not in tables:
            tables[cell.dataset] = load_rows(cell.dataset, settings, request.data)
        needed = seconds_for(cell, settings) + SCORING_SECONDS
        left = None if end is None else end - time.monotonic()
        if left is not None and left < needed:
            print(f"{cell}: not begun, it may take {needed:.0f} seconds and {max(left, 0):.0f} are left")
            status = status or UNFINISHED
            continue
        try:
            with at_most(left):
                run_peer(cell, tables[cell.dataset], settings, request)
        except TimeIsOverError:
            print(f"{cell}: given up, the time is over")
            status = status or UNFINISHED
        except Exception as error:  # other people's code may fail in any way, and the rest should still be measured
            print(f"{cell}: left out, {type(error).__name__}: {error}")
            status = FAILED
    write_table(request, settings)
    return status


if __name__ == "__main__":
    sys.exit(main())
