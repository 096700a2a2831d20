"""A run that a test kills. Another call resumes the run."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.helpers.processes import hold_at_checkpoint

import cubicflow as cf
from cubicflow.training import fit


def main(run: str, steps: int, hold: int | None = None) -> None:
    """Train for ``steps`` steps. At a checkpoint of step ``hold`` or later, wait for the kill."""
    if hold is not None:
        hold_at_checkpoint(Path(run, "never"), hold)
    torch.manual_seed(5)
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, num_blocks=1, num_bins=4, dropout=0.1)
    z = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    x = torch.stack([z[:, 0], z[:, 0] ** 2 + 0.3 * z[:, 1]], dim=1)
    weights = torch.rand(600, generator=torch.Generator().manual_seed(1))
    # Checkpoints are written every few steps, so that a kill often interrupts one.
    settings = {"steps": steps, "learning_rate": 1e-2, "validate_every": 7, "patience": 0, "checkpoint_seconds": 0.02}
    fit(flow, (x, None, weights), run=run, resume=True, progress=False, **settings)
