"""Loading builds a flow on the meta device, without values and without importing torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from cubicflow.flows.making import making

SAVED = Path(__file__).parents[1] / "cli" / "saved_run"


def test_scaled_and_filled_tensors_have_their_shapes() -> None:
    with making(torch.float64, torch.device("meta")):
        scaled = 0.5 * torch.randn(3, 1) / torch.ones(4).sqrt() * 2
        filled = torch.nn.Embedding(5, 2).weight
    assert (scaled.shape, scaled.dtype, scaled.device.type) == ((3, 4), torch.float64, "meta")
    assert (filled.shape, filled.device.type) == ((5, 2), "meta")


def test_opening_a_model_of_columns_does_not_import_the_compiler() -> None:
    """The import would cost every command and every worker seconds."""
    code = (
        "import sys, torch\n"
        "from cubicflow.flows.serialization import build_flow\n"
        "from cubicflow.flows.descriptions import describe\n"
        "from cubicflow.tables.columns_model import ColumnsModel\n"
        "model = ColumnsModel(outcomes=[3, 1], shapes=[0, 1])\n"
        "assert 'torch._dynamo' not in sys.modules, 'imported before'\n"
        "build_flow(describe(model), torch.float32)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "assert 'torch.fx.experimental.symbolic_shapes' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
