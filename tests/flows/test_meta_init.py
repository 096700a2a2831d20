"""Loading builds a flow on the meta device, without values and without importing torch's compiler."""

from __future__ import annotations

from pathlib import Path

import torch

from cubicflow.flows.meta_init import default_tensor_type

SAVED = Path(__file__).parents[1] / "cli" / "saved_run"


def test_scaled_and_filled_tensors_have_their_shapes() -> None:
    with default_tensor_type(torch.float64, torch.device("meta")):
        scaled = 0.5 * torch.randn(3, 1) / torch.ones(4).sqrt() * 2
        filled = torch.nn.Embedding(5, 2).weight
    assert (scaled.shape, scaled.dtype, scaled.device.type) == ((3, 4), torch.float64, "meta")
    assert (filled.shape, filled.device.type) == ((5, 2), "meta")
