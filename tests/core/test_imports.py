"""The core imports torch and numpy alone, and works where nothing else is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CORE = ("accel", "data", "distributions", "flows", "nets", "splines", "training", "transforms")
USE = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")
        if top[0] in BLOCKED or (top[0] == "cubicflow" and top[2].partition(".")[0] in OUTER):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

BLOCKED, OUTER, CORE = eval(sys.argv[1])
sys.meta_path.insert(0, Blocked())
import torch, cubicflow as cf

for package in CORE:
    __import__(f"cubicflow.{package}")
    for module in pkgutil.walk_packages(sys.modules[f"cubicflow.{package}"].__path__, f"cubicflow.{package}."):
        try:
            if not module.name.endswith("libcubicflow"):  # a library, not a module
                importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            # Kernels are imported where Triton is, and the reader of Parquet files where such a file is opened.
            if not error.name.startswith("triton") and module.name != "cubicflow.data.parquet_files":
                raise
x = torch.randn(100, 2)
result = cf.training.fit(cf.flows.tabular(2, num_layers=1, hidden_features=8), x, steps=3)
assert result.flow.log_prob(x).isfinite().all() and result.flow.sample(3).shape == (3, 2)
"""
ELSEWHERE = ("safetensors", "pyarrow", "rich", "PIL", "matplotlib", "typer", "scipy", "sklearn", "pandas")


def test_the_core_imports_and_trains_with_torch_and_numpy_alone() -> None:
    packages = Path(__file__).parents[2] / "src" / "cubicflow"
    outer = {path.name for path in packages.iterdir() if path.is_dir()} - {*CORE, "__pycache__"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USE, repr((ELSEWHERE, outer, CORE))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
