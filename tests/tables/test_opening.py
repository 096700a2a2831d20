"""Opening a model of columns imports no compiler."""

from __future__ import annotations

import subprocess
import sys


def test_opening_a_model_of_columns_does_not_import_the_compiler() -> None:
    """The import would cost every command and every worker seconds."""
    code = (
        "import sys, torch\n"
        "from cubicflow.flows.serialization import build_flow\n"
        "from cubicflow.flows.descriptions import describe\n"
        "from cubicflow.tables.model.network import ColumnsModel\n"
        "model = ColumnsModel(outcomes=[3, 1], shapes=[0, 1])\n"
        "assert 'torch._dynamo' not in sys.modules, 'imported before'\n"
        "build_flow(describe(model), torch.float32)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "assert 'torch.fx.experimental.symbolic_shapes' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
