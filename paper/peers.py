"""Flows of other packages (peers) on the tables of the paper, trained by cubicflow's loop on the same arrays.

    python -m paper peers -o runs/table-1 --dataset miniboone

Each peer has the sizes, batches, learning rate, weight averaging and early stopping of the recipe's cell. Training ends
after the recipe's steps or its seconds for peers, whichever comes first. The learning rate reaches 0 at that point.
Records go into the folder of ``python -m paper table-1``, and its table is rebuilt. The error of a peer that fails is
printed, and the other peers still run. The table has no score of a fit that its time ended: it has not converged.

A peer's fit cannot be stopped and resumed. With ``--seconds``, a fit begins only if there is enough time for it. A fit
whose training and scoring exceed the time is aborted. In both cases the exit status is 75, and running the same command
again continues.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.data.rows import Batch
from cubicflow.training import TrainingError, fit
from cubicflow.training.distributed import choose_device
from paper.cells import (
    Cell,
    TableSettings,
    all_settings,
    load_rows,
    record_cell,
    table_settings,
    weighted,
    why_left_out,
)
from paper.data import Benchmark
from paper.experiment import Request
from paper.recipe_files import Settings
from paper.table_1 import chosen_cells, write_table

SCORING_SECONDS = 60  # time to score the test rows: a continuous flow may need a minute for a quarter of a million


class TimeIsOverError(Exception):
    """The seconds of this call have passed."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise TimeIsOverError in the block after this many seconds. The exception unwinds the interpreter normally.
    Killing a process that shares a GPU with others may take the others down."""

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

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:  # noqa: ARG002 - no peer here takes a context
        return self._log_prob(x)


def nflows_coupling(features: int, sizes: Settings, device: torch.device, *, cubic: bool) -> PeerDensity:
    """Return a flow of alternating LU layers and couplings. The cubic coupling is the code of the paper's authors,
    between a clipped sigmoid and logit as in the paper. The rational-quadratic one has linear tails as in its paper."""
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
        """A clamp to [0, 1]. Rounding puts some outputs of nflows' spline an epsilon outside, and its logit raises."""

        def forward(self, inputs: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
            return inputs.clamp(0, 1), inputs.new_zeros(len(inputs))

    def clipped(coupling: nn.Module) -> list[nn.Module]:
        sigmoid, logit = Sigmoid(), Logit()
        for part in (sigmoid, logit._transform):  # the temperature is no buffer: .to() would leave it on the CPU
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
    """Return a flow of zuko. MAF has as many transforms as the recipe's flow has layers. NAF has two transforms, each a
    deep network. CNF has the exact trace, because scores have to be exact."""
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
    """Return -log p(x). A separate loss function keeps CUDA graphs off: cubicflow captures steps only with its own
    losses, and the peers' code reads values back from the GPU, which a graph cannot."""
    return -flow.log_prob(batch.x)


def seconds_for(cell: Cell, settings: TableSettings) -> float:
    """Return the seconds that a peer may train."""
    seconds: Any = settings.datasets[cell.dataset].get("peer_seconds", settings.peers["seconds"])
    return float(seconds)


def run_peer(cell: Cell, table: Benchmark, settings: TableSettings, request: Request) -> None:
    """Train one peer and score its test rows. There is no run folder: cubicflow can save only its own flows."""
    used: dict[str, Any] = all_settings(settings, cell)
    table = weighted(table, used.get("weight_power", 1))
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
    request.report(
        f"{cell}: test {test['mean']:.3f} ± {test['error']:.3f} nats, {fitted.steps:,} steps ({fitted.stopped})"
    )


def run_peers(request: Request) -> None:
    """Train every chosen peer without a record, on the tables whose data is present, and rebuild the table.

    Raises TrainingError if a peer failed, else UnfinishedError if the time was not enough for all peers.
    """
    request.check()
    settings = table_settings(request.recipe)
    peers = settings.peers["models"]
    tables: dict[str, Benchmark] = {}
    left_out: dict[str, str | None] = {}
    cells = chosen_cells(request, settings, peers)
    failed: list[str] = []
    waiting = False
    for cell in cells:
        if cell.dataset not in left_out:
            left_out[cell.dataset] = None if request.datasets else why_left_out(cell.dataset, request.data)
            if left_out[cell.dataset]:
                request.report(f"{cell.dataset.upper()} is left out: {left_out[cell.dataset]}")
        if left_out[cell.dataset]:
            continue
        if importlib.util.find_spec(peers[cell.model]["package"]) is None:
            request.report(f"{cell}: {peers[cell.model]['package']} is not installed (pip install 'cubicflow[bench]')")
            continue
        if cell.dataset not in tables:
            tables[cell.dataset] = load_rows(cell.dataset, settings, request.data)
        needed = seconds_for(cell, settings) + SCORING_SECONDS
        left = request.deadline.left()
        if left is not None and left < needed:
            request.report(f"{cell}: not begun, it may take {needed:.0f} seconds but only {left:.0f} are left")
            waiting = True
            continue
        try:
            with at_most(left):
                run_peer(cell, tables[cell.dataset], settings, request)
        except TimeIsOverError:
            request.report(f"{cell}: given up, the time is over")
            waiting = True
        except Exception as error:  # a peer may fail in any way; the others should still be measured
            request.report(f"{cell}: left out, {type(error).__name__}: {error}")
            failed.append(str(cell))
    write_table(request, settings)
    if failed:
        raise TrainingError(f"{len(failed)} of {len(cells)} cells failed, for the reasons above: {'; '.join(failed)}")
    if waiting:
        raise request.unfinished()
