"""One of several processes that train together. Without torchrun, one process trains on whole batches."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.training import FitResult, TrainingInterrupted, fit


def train() -> FitResult:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    x = torch.stack([z[:, 0], z[:, 0] ** 2 + 0.3 * z[:, 1], 5 + 3 * z[:, 2]], dim=1)
    weights = 0.1 + torch.rand(500, generator=generator, dtype=torch.float64)
    # Every process has other initial weights. The weights of process 0 must be used.
    torch.manual_seed(7 + int(os.environ.get("RANK", "0")))
    inner = cf.flows.tabular(3, num_layers=2, hidden_features=8, num_blocks=1, num_bins=4)
    flow = cf.Flow(inner.base, cf.transforms.Compose([cf.transforms.ActNorm(3), inner.transform])).double()
    settings = {"steps": 40, "learning_rate": 1e-2, "batch_size": 33, "validate_every": 10, "device": "cpu"}
    return fit(flow, (x, None, weights), progress=False, **settings)


def outcome(result: FitResult) -> dict[str, Tensor]:
    metrics = [
        [line["step"], line["loss"], line["gradient_norm"], line.get("validation_loss", 0.0)] for line in result.history
    ]
    return {**result.flow.state_dict(), "metrics": torch.tensor(metrics, dtype=torch.float64)}


def main(folder: Path) -> None:
    """Train as one process of several, and write the result to a file named after the rank."""
    from safetensors.torch import save_file

    rank = os.environ["RANK"]
    for _ in range(2):  # earlier fits must not affect later ones
        fit(cf.flows.tabular(1, num_layers=1, hidden_features=4), torch.randn(64, 1), steps=1, progress=False)
    try:  # one process requests a stop; all processes stop after the same step
        flow = cf.flows.tabular(1, num_layers=1, hidden_features=4)
        fit(flow, torch.randn(64, 1), steps=50, stop=lambda: rank == "1", progress=False)
    except TrainingInterrupted as stopped:
        (folder / f"{rank}.stopped").write_text(str(stopped))
    save_file(outcome(train()), folder / f"{rank}.safetensors")
