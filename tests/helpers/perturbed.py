"""Weights that are not the initial ones: a new layer is often the identity."""

from __future__ import annotations

import torch

import cubicflow as cf


def perturbed(flow: torch.nn.Module, by: float = 0.3, seed: int = 0) -> cf.Flow:
    """Return a flow with perturbed weights, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=generator).to(parameter))
    return flow.eval()
