"""Exported flows give the same numbers as the flow, for any number of rows."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.helpers.made_up_layer import linear_flow
from tests.helpers.perturbed import perturbed
from torch import Tensor

import cubicflow as cf
from cubicflow.export import export_model
from cubicflow.export.exporting import about_graph
from cubicflow.export.files import onnx_bytes, program_bytes
from cubicflow.export.graphs import frozen, graph_of
from cubicflow.export.tracing import traced
from cubicflow.training import fit
from cubicflow.transforms import LULinear
from cubicflow.transforms.linear import FixedLinear

from .runtimes import ROWS, by_reference, check_distribution, check_float32, eager_error, rows, runtime, trained_flow


def as_inputs(**tensors: Tensor | None) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in tensors.items() if value is not None}


class Scored(NamedTuple):
    """Rows, their exact log densities, and the errors of eager float32."""

    x: Tensor
    context: Tensor | None
    exact: np.ndarray
    eager: np.ndarray

    def check(self, found: np.ndarray) -> None:
        assert found.shape == (len(self.x),)
        check_float32(found, self.exact, self.eager)


@torch.no_grad()
def scored(flow: cf.Flow, x: Tensor, context: Tensor | None = None) -> Scored:
    inputs = (x,) if context is None else (x, context)
    double = deepcopy(flow).double()
    exact = double.log_prob(*(values.double() for values in inputs)).numpy()
    return Scored(x, context, exact, eager_error(flow.log_prob, double.log_prob, *inputs))


@pytest.fixture(scope="module")
def scored_rows(conditional_flow: cf.Flow) -> list[Scored]:
    """Return scored rows for every number of rows.

    They are shared by both file types, because eager errors are slow to compute.
    """
    found = []
    for number in ROWS:
        x, context = rows(number, 2, seed=number)
        x[:1] *= 30  # far in the tails
        found.append(scored(conditional_flow, x, context))
    return found


@pytest.fixture(scope="module")
def exported(conditional_flow: cf.Flow, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return both graphs of a conditional flow in ONNX files, and the density also in a .pt2 file, traced once."""
    folder = tmp_path_factory.mktemp("exported")
    for name, sampler in (("model", False), ("sampler", True)):
        graph = graph_of(conditional_flow, sampler=sampler)
        program, about = traced(graph), about_graph(graph, sampler=sampler)
        (folder / f"{name}.onnx").write_bytes(onnx_bytes(program, graph, about))
        if not sampler:
            (folder / f"{name}.pt2").write_bytes(program_bytes(program, about))
    return folder


def test_log_density_in_onnxruntime(scored_rows: list[Scored], exported: Path) -> None:
    graph = runtime(exported / "model.onnx")
    for expected in scored_rows:
        expected.check(graph(as_inputs(x=expected.x, context=expected.context))[0])


@torch.no_grad()
def test_float32_errors_have_the_distribution_of_eager_errors(
    conditional_flow: cf.Flow, scored_rows: list[Scored], exported: Path
) -> None:
    expected = scored_rows[-1]
    x, context = expected.x, expected.context
    found = runtime(exported / "model.onnx")(as_inputs(x=x, context=context))[0]
    z, log_det = deepcopy(conditional_flow).double().transform(x.double(), context.double())
    terms = (z**2 / 2 + math.log(2 * math.pi) / 2).sum(1) + log_det.abs()
    eager = conditional_flow.log_prob(x, context).numpy()
    check_distribution(found, eager, expected.exact, terms.numpy())
    with by_reference():  # two backends in PyTorch differ as much as the graph and PyTorch
        other = conditional_flow.log_prob(x, context).numpy()
    check_distribution(other, eager, expected.exact, terms.numpy(), "reference")


@torch.no_grad()
def test_sampler_in_onnxruntime(conditional_flow: cf.Flow, exported: Path) -> None:
    import onnx

    path = exported / "sampler.onnx"
    graph = runtime(path)
    exact = deepcopy(conditional_flow).double()
    for number in ROWS:
        noise, context = torch.randn(number, 3), torch.randn(number, 2)
        x, log_prob = graph(as_inputs(noise=noise, context=context))
        samples = exact.from_noise(noise.double(), context.double())[0]
        np.testing.assert_allclose(x, samples, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(log_prob, exact.log_prob(samples, context.double()), rtol=1e-4, atol=1e-4)
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(about["cubicflow.json"]) == {
        "format": "cubicflow-export",
        "version": 1,
        "graph": "sampler",
        "inputs": {"noise": ["rows", 3], "context": ["rows", 2]},
        "outputs": ["x", "log_prob"],
        "dtype": "float32",
        "noise": "standard normal",
    }


def test_files_hold_no_path_of_this_machine(exported: Path) -> None:
    for name in ("model.onnx", "model.pt2"):
        assert str(Path(cf.__file__).parent).encode() not in (exported / name).read_bytes()


WITHOUT_CUBICFLOW = """
import sys
sys.modules["cubicflow"] = None  # any import of it fails
import numpy as np, torch
program, inputs, found = torch.export.load(sys.argv[1]).module(), np.load("inputs.npz"), {}
for rows in sys.argv[2:]:
    results = program(torch.from_numpy(inputs[rows]), torch.from_numpy(inputs[f"{rows} context"]))
    found[rows] = (results[0] if isinstance(results, tuple) else results).detach().numpy()
np.savez("outputs.npz", **found)
"""


@torch.no_grad()
def test_exported_programs_have_operators_of_torch_alone(scored_rows: list[Scored], exported: Path) -> None:
    """A program without operators of cubicflow needs no cubicflow. A soak test runs the program in such a process."""
    program = torch.export.load(exported / "model.pt2")
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert {function.namespace for function in called if isinstance(function, torch._ops.OpOverload)} == {"aten"}
    others = {function for function in called if not isinstance(function, torch._ops.OpOverload)}
    assert {function.__module__ for function in others} <= {"_operator", "math", "torch"}
    for each in scored_rows:
        each.check(program.module()(each.x, each.context).numpy())


@pytest.mark.soak
@torch.no_grad()
@pytest.mark.parametrize("name", ["model", "sampler"])
def test_exported_programs_run_without_cubicflow(
    name: str, conditional_flow: cf.Flow, scored_rows: list[Scored], tmp_path: Path
) -> None:
    """A process that imports torch's loader takes ten seconds. The previous test loads the program in this process."""
    export_model(conditional_flow, tmp_path / f"{name}.pt2", sampler=name == "sampler")
    inputs = {str(len(each.x)): each.x.numpy() for each in scored_rows}
    contexts = {f"{len(each.x)} context": each.context.numpy() for each in scored_rows if each.context is not None}
    np.savez(tmp_path / "inputs.npz", **inputs, **contexts)
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_CUBICFLOW, f"{name}.pt2", *map(str, ROWS)]
    subprocess.run(command, check=True, cwd=tmp_path)
    outputs = np.load(tmp_path / "outputs.npz")
    for each in scored_rows:
        found = outputs[str(len(each.x))]
        if name == "model":
            each.check(found)
        else:
            samples = conditional_flow.from_noise(each.x, each.context)[0]
            np.testing.assert_allclose(found, samples, rtol=1e-4, atol=1e-5)


def check_both(flow: cf.Flow, folder: Path, x: Tensor, noise: Tensor) -> None:
    """Check the log density and the sampler of a flow in onnxruntime, for every number of rows."""
    [path] = export_model(flow, folder / "model.onnx")
    graph = runtime(path)
    for number in (1, 2, 3, 17, len(x)):
        scored(flow, x[:number]).check(graph(as_inputs(x=x[:number]))[0])
    [path] = export_model(flow, folder / "sampler.onnx", sampler=True)
    with torch.no_grad():
        samples = deepcopy(flow).double().from_noise(noise.double())[0]
    np.testing.assert_allclose(runtime(path)(as_inputs(noise=noise))[0], samples, rtol=1e-4, atol=1e-4)


@pytest.mark.soak
@torch.no_grad()
def test_float64_is_at_least_as_precise_as_eager_float32_in_every_row(
    conditional_flow: cf.Flow, tmp_path: Path
) -> None:
    """Tracing and converting one more graph takes ten seconds. test_tables.py checks a float64 graph of a table."""
    flow = conditional_flow
    double = deepcopy(flow).double()
    [path] = export_model(flow, tmp_path / "model.onnx", precision="float64")
    x, context = rows(10_000, 2, seed=1)
    x[:10] *= 30  # far in the tails
    exact = double.log_prob(x.double(), context.double()).numpy()
    found = runtime(path)(as_inputs(x=x.double(), context=context.double()))[0]
    assert found.dtype == np.float64
    # Two float64 programs differ by the roundings of a few hundred operations.
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)
    eager = np.abs(flow.log_prob(x, context).double().numpy() - exact)
    assert (np.abs(found - exact) <= 2 * eager).all()


@pytest.mark.soak
@torch.no_grad()
def test_samples_in_float64(conditional_flow: cf.Flow, tmp_path: Path) -> None:
    [path] = export_model(conditional_flow, tmp_path / "sampler.onnx", precision="float64", sampler=True)
    noise, context = torch.randn(10_000, 5, dtype=torch.float64).split([3, 2], dim=1)
    samples = deepcopy(conditional_flow).double().from_noise(noise, context)[0]
    found = runtime(path)(as_inputs(noise=noise, context=context))[0]
    np.testing.assert_allclose(found, samples, rtol=1e-10, atol=1e-10)


def test_an_unknown_precision(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one with precision='float32' or precision='float64'"):
        export_model(cf.flows.tabular(2, num_layers=1), tmp_path / "model.onnx", precision="half")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_flows_without_context(tmp_path: Path) -> None:
    check_both(trained_flow(), tmp_path, rows(10_000, 0, seed=1)[0], torch.randn(500, 3))


@pytest.mark.soak
@pytest.mark.parametrize("family", ["quadratic", "rational_quadratic", "linear", "affine"])
def test_every_family(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    flow = cf.flows.tabular(3, num_layers=1, hidden_features=16, num_bins=4, family=family)
    x = rows(500, 0, seed=1)[0]
    fit(flow, x, steps=60, batch_size=100, progress=False)
    check_both(flow.eval(), tmp_path, x, torch.randn(500, 3))


@pytest.mark.soak
@pytest.mark.parametrize("network", ["mlp", "transformer"])
def test_autoregressive_flows(network: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    how = {} if network == "mlp" else {"network": network, "num_heads": 2}
    flow = cf.flows.tabular(3, num_layers=1, hidden_features=16, num_bins=4, layer="autoregressive", **how)
    x = rows(500, 0, seed=1)[0]
    fit(flow, x, steps=60, batch_size=100, progress=False)
    check_both(flow.eval(), tmp_path, x, torch.randn(500, 3))


@pytest.mark.soak
@torch.no_grad()
def test_a_base_of_several_normals(tmp_path: Path) -> None:
    """Draws are made from normal numbers and a uniform number. Their distribution is that of the base."""
    torch.manual_seed(0)
    base = cf.distributions.NormalMixture(2, components=3, correlated=True)
    covariances = torch.tensor([[[1.0, 0.9], [0.9, 1.0]], [[2.0, 0.0], [0.0, 0.1]], [[0.1, -0.05], [-0.05, 0.1]]])
    base.set_(torch.tensor([0.6, 0.3, 0.1]), torch.tensor([[0.0, 0.0], [5.0, 1.0], [-4.0, 2.0]]), covariances)
    flow = cf.Flow(base, LULinear(2, seed=0)).eval()
    [path] = export_model(flow, tmp_path / "sampler.onnx", sampler=True)
    noise = torch.cat([torch.randn(100_000, 2), torch.rand(100_000, 1)], dim=1)
    x, log_prob = runtime(path)(as_inputs(noise=noise))
    drawn = flow.sample(100_000, seed=0).numpy()
    np.testing.assert_allclose(x.mean(0), drawn.mean(0), atol=0.05)  # standard errors of 0.01
    np.testing.assert_allclose(np.cov(x.T), np.cov(drawn.T), rtol=0.03, atol=0.05)
    np.testing.assert_allclose(log_prob, flow.log_prob(torch.from_numpy(x)), rtol=1e-4, atol=1e-3)


def test_a_linear_layer_from_elsewhere_is_multiplied_out() -> None:
    flow, x = linear_flow(), torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    fixed = frozen(flow, torch.float64)
    assert isinstance(fixed.transform[0], FixedLinear)
    assert torch.allclose(fixed.log_prob(x), flow.log_prob(x), atol=1e-13)


def test_a_graph_takes_the_images_of_an_embedding() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    flow = perturbed(cf.flows.tabular(2, context_features=2, context_shape=(1, 4, 4), embedding_net=network))
    x, images = torch.randn(40, 2), torch.rand(40, 1, 4, 4)
    graph = graph_of(flow, sampler=False)
    assert graph.inputs["context"] == (1, 4, 4)
    assert torch.allclose(graph.module(x, images), flow.log_prob(x, images), atol=1e-5)
