"""Common helpers of the tests of layers."""

from __future__ import annotations

import torch


def perturbed(layer: torch.nn.Module, by: float = 0.3) -> torch.nn.Module:
    """Return the layer with perturbed weights. Initially a layer is the identity."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(by * torch.randn_like(parameter) / max(parameter.shape[-1:] or (1,)) ** 0.5)
    return layer
