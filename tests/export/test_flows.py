"""Exported flows give the numbers of the flow, for any number of rows."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.export import export_model

from .conftest import ROWS, check_float32, eager_error, rows, runtime, trained_flow


def as_inputs(**tensors: Tensor | None) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in tensors.items() if value is not None}


@torch.no_grad()
def check_log_density(flow: cf.Flow, x: Tensor, context: Tensor | None, found: np.ndarray) -> None:
    inputs = (x,) if context is None else (x, context)
    double = deepcopy(flow).double()
    exact = double.log_prob(*(values.double() for values in inputs)).numpy()
    assert found.shape == (len(x),)
    check_float32(found, exact, eager_error(flow.log_prob, double.log_prob, *inputs))


def test_log_density_in_onnxruntime(conditional_flow: cf.Flow, tmp_path: Path) -> None:
    [path] = export_model(conditional_flow, tmp_path / "model.onnx")
    graph = runtime(path)
    for number in ROWS:
        x, context = rows(number, 2, seed=number)
        x[:1] *= 30  # far in the tails
        check_log_density(conditional_flow, x, context, graph(as_inputs(x=x, context=context))[0])


@torch.no_grad()
def test_sampler_in_onnxruntime(conditional_flow: cf.Flow, tmp_path: Path) -> None:
    import onnx

    [path] = export_model(conditional_flow, tmp_path / "sampler.onnx", sampler=True)
    graph = runtime(path)
    exact = deepcopy(conditional_flow).double()
    for number in ROWS:
        noise, context = torch.randn(number, 3), torch.randn(number, 2)
        x, log_prob = graph(as_inputs(noise=noise, context=context))
        samples = exact.from_noise(noise.double(), context.double())[0]
        np.testing.assert_allclose(x, samples, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(log_prob, exact.log_prob(samples, context.double()), rtol=1e-4, atol=1e-4)
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(about["cubicflow.json"]) == {
        "format": "cubicflow-export",
        "version": 1,
        "graph": "sampler",
        "inputs": {"noise": ["rows", 3], "context": ["rows", 2]},
        "outputs": ["x", "log_prob"],
        "noise": "standard normal",
    }
    assert str(Path(cf.__file__).parent).encode() not in path.read_bytes()  # nothing of the machine it was made on


WITHOUT_CUBICFLOW = """
import sys
sys.modules["cubicflow"] = None  # any import of it fails
import numpy as np, torch
program = torch.export.load(sys.argv[1]).module()
inputs = np.load(sys.argv[2])
np.savez(sys.argv[3], **{name: program(torch.from_numpy(inputs[name])).detach().numpy() for name in inputs})
"""


def test_exported_program_runs_without_cubicflow(tmp_path: Path) -> None:
    flow = trained_flow()
    [path] = export_model(flow, tmp_path / "model.pt2")
    inputs = {str(number): rows(number, 0, seed=number)[0] for number in ROWS}
    np.savez(tmp_path / "inputs.npz", **{name: x.numpy() for name, x in inputs.items()})
    files = [str(path), str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz")]
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT_CUBICFLOW, *files], check=True, cwd=tmp_path)
    outputs = np.load(tmp_path / "outputs.npz")
    for name, x in inputs.items():
        check_log_density(flow, x, None, outputs[name])
