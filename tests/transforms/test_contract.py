"""The contract of every transform, over a registry. The last test fails for a public transform not in the registry."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.flows.descriptions import build, describe
from cubicflow.flows.meta_init import default_tensor_type
from cubicflow.nets import (
    CausalGRU,
    CausalLinear,
    CausalTransformer,
    ConcatSquashMLP,
    MaskedResidualMLP,
    ResidualConv,
    ResidualMLP,
)
from cubicflow.splines.families import FAMILIES
from cubicflow.transforms import (
    ActNorm,
    Autoregressive,
    BatchNorm,
    BlockNAF,
    Compose,
    Continuous,
    Conv1x1,
    Coupling,
    ElementMap,
    Elementwise,
    EmergingConv,
    Inverse,
    Logit,
    LULinear,
    MultiScale,
    Orthogonal,
    PeriodicConv,
    Permutation,
    Planar,
    QRLinear,
    Radial,
    Recurrent,
    Sigmoid,
    Squeeze,
    Standardise,
    SVDLinear,
    Sylvester,
    Transform,
)
from cubicflow.transforms.element_map import PLAIN_MAPS, SIGMOIDAL_MAPS

CONTEXT = 2
mlp = partial(ResidualMLP, hidden_features=12, num_blocks=1)
conv = partial(ResidualConv, hidden_features=6, num_blocks=1)
made = partial(MaskedResidualMLP, hidden_features=12, num_blocks=1)
gru = partial(CausalGRU, hidden_features=6)
field_net = partial(ConcatSquashMLP, hidden_features=8, num_blocks=1)
attention = partial(CausalTransformer, hidden_features=12, num_blocks=1, num_heads=3, octaves=2, scale_output=True)


@dataclass(frozen=True)
class Case:
    """A transform to test: its constructor, and its inputs."""

    make: Callable[[], Transform]
    shape: tuple[int, ...]  # shape of one input
    unit: bool = False  # inputs in (0, 1)
    unit_out: bool = False  # outputs in (0, 1)
    error: float = 0.0  # of the map itself, beyond rounding: the tolerance of a solver
    without: dict[str, str] = field(default_factory=dict)  # what the transform does not do, and why

    def inputs(self, n: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)
        return (torch.sigmoid(x) if self.unit else 2 * x).to(dtype)


# One feature, or a coupling layer, shows that a search compiles.
LARGE_GRAPH = {"compile": "a graph of hundreds of passes, in searches for one feature after the other, takes minutes"}


def couplings() -> dict[str, Case]:
    splines = {
        name if slopes in (None, "steffen") else f"{name} {slopes}": ElementMap(name, 6, slopes or "steffen")
        for name, slopes in FAMILIES
    }
    maps = splines | {name: ElementMap(name, 4) for name in [*PLAIN_MAPS, *SIGMOIDAL_MAPS]}
    mask = [True, False, False, True, True]
    bent = {f"affine, then {name}": replace(each, affine_first=True) for name, each in splines.items()}
    dense = partial(Autoregressive, 5, made, maps.pop("dense_sigmoidal"))
    cases = {f"Coupling {name}": Case(partial(Coupling, mask, mlp, m), (5,)) for name, m in (maps | bent).items()}
    cases |= {
        f"Autoregressive {name}": Case(partial(Autoregressive, 5, made, maps[name]), (5,))
        for name in ("cubic", "affine", "rational_quadratic")
    }
    return cases | {"Autoregressive dense_sigmoidal": Case(dense, (5,), without=LARGE_GRAPH)}


unit = ElementMap("cubic", 6, domain="unit")
bent = ElementMap("cubic", 6, affine_first=True)
GRAPH = [[0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]  # 3 -> 0, 0 -> 1, 3 -> 1
STEPS_BY_VALUES = dict.fromkeys(("vmap", "compile"), "values decide the number of steps")
REGISTRY: dict[str, Case] = couplings() | {
    "Coupling unit": Case(lambda: Coupling([True, False], mlp, unit), (2,), unit=True, unit_out=True),
    "Coupling bare other half": Case(lambda: Coupling([True, False, True], mlp, transform_identity=False), (3,)),
    "Coupling context": Case(lambda: Coupling([False, True, True], mlp, context_features=CONTEXT), (3,)),
    "Coupling D=1 context": Case(lambda: Coupling([True], mlp, context_features=CONTEXT), (1,)),
    "Coupling images": Case(lambda: Coupling([True, False, True], conv), (3, 4, 2)),
    "Coupling images context": Case(lambda: Coupling([True, False], conv, context_features=CONTEXT), (2, 2, 2)),
    "Autoregressive D=1": Case(lambda: Autoregressive(1, made), (1,)),
    "Autoregressive context": Case(lambda: Autoregressive(3, made, context_features=CONTEXT), (3,)),
    "Autoregressive ordered": Case(lambda: Autoregressive(4, made, order=[2, 0, 3, 1]), (4,)),
    "Autoregressive attention": Case(lambda: Autoregressive(4, attention, bent, order=[3, 1, 0, 2]), (4,)),
    "Autoregressive attention unit": Case(lambda: Autoregressive(3, attention, unit), (3,), unit=True, unit_out=True),
    "Autoregressive attention D=1": Case(lambda: Autoregressive(1, attention, bent), (1,)),
    "Autoregressive attention context": Case(
        lambda: Autoregressive(3, attention, bent, context_features=CONTEXT), (3,)
    ),
    "Elementwise": Case(lambda: Elementwise(4), (4,)),
    "Elementwise D=1": Case(lambda: Elementwise(1), (1,)),
    "Elementwise images": Case(lambda: Elementwise(2, ElementMap("quadratic", 4)), (2, 3, 3)),
    "LULinear": Case(lambda: LULinear(5), (5,)),
    "LULinear D=1": Case(lambda: LULinear(1), (1,)),
    "LULinear bare": Case(lambda: LULinear(4, bias=False, permute=False), (4,)),
    "Conv1x1": Case(lambda: Conv1x1(3), (3, 2, 4)),
    "ActNorm": Case(lambda: ActNorm(3), (3,)),
    "ActNorm images": Case(lambda: ActNorm(2), (2, 3, 3)),
    "Permutation": Case(lambda: Permutation([2, 0, 1]), (3,)),
    "Permutation images": Case(lambda: Permutation([1, 0]), (2, 2, 2)),
    "Permutation random": Case(lambda: Permutation.random(4, seed=1), (4,)),
    "Permutation reversing": Case(lambda: Permutation.reversing(4), (4,)),
    "Planar": Case(lambda: Planar(4), (4,)),
    "Planar D=1": Case(lambda: Planar(1), (1,)),
    "Planar context": Case(lambda: Planar(3, context_features=CONTEXT, network=mlp), (3,)),
    "Radial": Case(lambda: Radial(4), (4,)),
    "Radial D=1": Case(lambda: Radial(1), (1,)),
    "Radial context": Case(lambda: Radial(3, context_features=CONTEXT, network=mlp), (3,)),
    "Sylvester": Case(lambda: Sylvester(4, rank=2), (4,)),
    "Sylvester D=1": Case(lambda: Sylvester(1), (1,)),
    "Sylvester Householder": Case(lambda: Sylvester(3, "householder", num_reflections=2), (3,)),
    "Sylvester triangular": Case(lambda: Sylvester(3, "triangular"), (3,)),
    "Sylvester triangular reversed": Case(lambda: Sylvester(3, "triangular", reverse=True), (3,)),
    "Orthogonal": Case(lambda: Orthogonal(4), (4,)),
    "Orthogonal D=1": Case(lambda: Orthogonal(1), (1,)),
    "Orthogonal two reflections": Case(lambda: Orthogonal(4, num_reflections=2, bias=False), (4,)),
    "QRLinear": Case(lambda: QRLinear(4), (4,)),
    "QRLinear D=1": Case(lambda: QRLinear(1), (1,)),
    "SVDLinear": Case(lambda: SVDLinear(4), (4,)),
    "SVDLinear D=1": Case(lambda: SVDLinear(1), (1,)),
    "BatchNorm": Case(lambda: BatchNorm(3), (3,)),
    "BatchNorm D=1": Case(lambda: BatchNorm(1), (1,)),
    "BatchNorm images": Case(lambda: BatchNorm(2), (2, 3, 3)),
    "BlockNAF": Case(lambda: BlockNAF(3, 4), (3,), without=LARGE_GRAPH),
    "BlockNAF D=1": Case(lambda: BlockNAF(1, 3), (1,)),
    "BlockNAF deep context": Case(lambda: BlockNAF(2, 3, depth=2, context_features=CONTEXT), (2,), without=LARGE_GRAPH),
    "Continuous": Case(
        lambda: Continuous(3, field_net, rtol=1e-7, atol=1e-7), (3,), error=1e-5, without=STEPS_BY_VALUES
    ),
    "Continuous D=1 adjoint": Case(
        lambda: Continuous(1, field_net, adjoint=True, rtol=1e-7, atol=1e-7),
        (1,),
        error=1e-5,
        without=STEPS_BY_VALUES,
    ),
    "Continuous fixed steps": Case(lambda: Continuous(2, field_net, solver="rk4", steps=2), (2,), error=1e-2),
    "Continuous context": Case(
        lambda: Continuous(2, field_net, solver="rk4", trace="hutchinson", steps=2, context_features=CONTEXT),
        (2,),
        error=1e-2,
    ),
    "Recurrent": Case(lambda: Recurrent(4, 3), (4,)),
    "Recurrent D=1": Case(lambda: Recurrent(1, 2), (1,)),
    "Recurrent context": Case(lambda: Recurrent(2, 3, context_features=CONTEXT), (2,)),
    "Autoregressive recurrent shift": Case(
        lambda: Autoregressive(3, gru, ElementMap("additive"), context_features=CONTEXT),
        (3,),
        without={"vmap": "torch has no batching rule for its recurrent cell"},
    ),
    "Autoregressive linear states": Case(
        lambda: Autoregressive(3, partial(CausalLinear, hidden_features=6), ElementMap("affine")), (3,)
    ),
    "Autoregressive adjacency": Case(
        lambda: Autoregressive(4, partial(made, adjacency=GRAPH), context_features=CONTEXT), (4,)
    ),
    "Autoregressive adjacency unit": Case(
        lambda: Autoregressive(4, partial(made, adjacency=GRAPH), unit), (4,), unit=True, unit_out=True
    ),
    "EmergingConv": Case(lambda: EmergingConv(2), (2, 3, 4)),
    "EmergingConv C=1": Case(lambda: EmergingConv(1, 5), (1, 4, 3)),
    "PeriodicConv": Case(lambda: PeriodicConv(2), (2, 3, 4)),
    "PeriodicConv C=1": Case(lambda: PeriodicConv(1, 5), (1, 5, 7)),
    "Compose linear layers": Case(
        lambda: Compose([Orthogonal(3), QRLinear(3), Orthogonal(3, num_reflections=1), SVDLinear(3), QRLinear(3)]), (3,)
    ),
    "Squeeze": Case(Squeeze, (2, 4, 2)),
    "MultiScale": Case(lambda: MultiScale([Coupling([True, False] * 2, conv), ActNorm(8)], (1, 4, 4)), (1, 4, 4)),
    "Compose": Case(
        lambda: Compose([LULinear(3), Coupling([True, False, True], mlp, context_features=CONTEXT), Elementwise(3)]),
        (3,),
    ),
    "Compose nothing": Case(lambda: Compose([]), (3,)),
    "Inverse": Case(lambda: Inverse(Autoregressive(3, made, ElementMap("affine"))), (3,)),
    "Inverse context": Case(lambda: Inverse(Coupling([True, False], mlp, context_features=CONTEXT)), (2,)),
    "Sigmoid": Case(Sigmoid, (3,), unit_out=True),
    "Logit": Case(Logit, (3,), unit=True),
    "Logit clipped": Case(lambda: Logit(1e-6), (3,), unit=True),
    "Standardise": Case(lambda: Standardise([1.0, -2.0], [0.5, 3.0]), (2,)),
    "Standardise images": Case(lambda: Standardise([1.0, -2.0], [0.5, 3.0]), (2, 2, 2)),
}
if torch.__version__.startswith("2.8."):  # MKL's FFT then refuses the gradients of images with one channel
    del REGISTRY["PeriodicConv C=1"]
every_transform = pytest.mark.parametrize("case", REGISTRY.values(), ids=list(REGISTRY))


def every_transform_with(what: str) -> pytest.MarkDecorator:
    """Return a parametrization over the transforms that can do this."""
    cases = {name: case for name, case in REGISTRY.items() if what not in case.without}
    return pytest.mark.parametrize("case", cases.values(), ids=list(cases))


def ready(case: Case, dtype: torch.dtype, seed: int = 0) -> Transform:
    """Return a perturbed and initialised transform, in evaluation mode."""
    torch.manual_seed(seed)
    transform = case.make()
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    transform = transform.to(dtype)
    transform(case.inputs(64, dtype, seed=1), context_for(transform, 64, dtype))  # the first batch initialises actnorm
    return transform.eval()


def context_for(transform: Transform, n: int, dtype: torch.dtype) -> Tensor | None:
    if not transform.context_features:
        return None
    return torch.randn(n, transform.context_features, generator=torch.Generator().manual_seed(2)).to(dtype)


def jacobians(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return the Jacobians (N, D, D) of all rows by autograd, independent of the transform's log-det.

    A row of the output depends on its own row of the input alone, so the gradient of a sum over rows has the gradients
    of all rows.
    """
    found = torch.autograd.functional.jacobian(lambda batch: function(batch).sum(0), rows)
    return found.reshape(rows[0].numel(), len(rows), rows[0].numel()).movedim(1, 0)


@every_transform
def test_shapes_and_dtypes(case: Case) -> None:
    transform = ready(case, torch.float32)
    for n in (0, 1, 7):
        x, context = case.inputs(n, torch.float32), context_for(transform, n, torch.float32)
        z, log_det = transform(x, context)
        back, log_det_back = transform.inverse(z, context)
        assert z.shape[0] == n
        assert z[:1].numel() == x[:1].numel()
        assert back.shape == x.shape
        assert log_det.shape == log_det_back.shape == (n,)
        assert {z.dtype, back.dtype, log_det.dtype, log_det_back.dtype} == {torch.float32}


@every_transform
def test_round_trip(case: Case) -> None:
    """Rounding errors of the output are multiplied by the inverse Jacobian. The factor 64 covers the deepest case."""
    for dtype in (torch.float32, torch.float64):
        transform = ready(case, dtype)
        x, context = case.inputs(20, dtype), context_for(transform, 20, dtype)
        z, log_det = transform(x, context)
        back, log_det_back = transform.inverse(z, context)
        double, wide_context = copy.deepcopy(transform).double(), None if context is None else context.double()
        gain = jacobians(lambda rows, t=double, c=wide_context: t.inverse(rows, c)[0], z.double())
        sizes = [rows.abs().flatten(1).amax(1) for rows in (x, z)]
        amplified = torch.linalg.matrix_norm(gain, 2) * (1 + sizes[1])
        bound = 64 * torch.finfo(dtype).eps * (1 + sizes[0] + amplified)
        assert ((back - x).abs().flatten(1).amax(1) <= bound + case.error).all(), dtype
        tolerance = 1e-9 if dtype == torch.float64 else 1e-3  # a log-slope changes by up to 1 / bin width per unit of x
        tolerance += case.error
        assert torch.allclose(log_det, -log_det_back, rtol=0, atol=tolerance), dtype


@every_transform
def test_log_det_agrees_with_the_jacobian_in_both_directions(case: Case) -> None:
    transform = ready(case, torch.float64)
    x, context = case.inputs(4, torch.float64), context_for(transform, 4, torch.float64)
    z, log_det = transform(x, context)
    _, log_det_back = transform.inverse(z, context)
    forward = jacobians(lambda rows: transform(rows, context)[0], x)
    backward = jacobians(lambda rows: transform.inverse(rows, context)[0], z)
    assert torch.allclose(forward.slogdet().logabsdet, log_det, rtol=0, atol=1e-10 + case.error)
    assert torch.allclose(backward.slogdet().logabsdet, log_det_back, rtol=0, atol=1e-10 + case.error)


@every_transform
def test_a_row_does_not_depend_on_the_other_rows(case: Case) -> None:
    transform = ready(case, torch.float64)
    x, context = case.inputs(4, torch.float64), context_for(transform, 4, torch.float64)
    for method in (transform.forward, transform.inverse):
        together = method(x, context)
        alone = method(x[2:3], None if context is None else context[2:3])
        for whole, part in zip(together, alone, strict=True):
            assert torch.allclose(whole[2:3], part, rtol=1e-12, atol=1e-12)
        x = together[0]


@every_transform
def test_gradients_are_finite_and_reach_every_parameter(case: Case) -> None:
    for direction in ("forward", "inverse"):
        transform = ready(case, torch.float32)
        x, context = case.inputs(32, torch.float32), context_for(transform, 32, torch.float32)
        if direction == "inverse":
            x = transform(x, context)[0].detach()
        x.requires_grad_()
        outputs, log_det = (transform if direction == "forward" else transform.inverse)(x, context)
        (outputs.square().sum() + log_det.sum()).backward()
        assert x.grad is not None, direction
        assert x.grad.isfinite().all(), direction
        for name, parameter in transform.named_parameters():
            assert parameter.grad is not None, (direction, name)
            assert parameter.grad.isfinite().all(), (direction, name)


@every_transform
def test_a_state_dict_loads_into_another_instance(case: Case) -> None:
    transform, other = ready(case, torch.float32, seed=0), ready(case, torch.float32, seed=1)
    other.load_state_dict(transform.state_dict())
    x, context = case.inputs(5, torch.float32), context_for(transform, 5, torch.float32)
    for first, second in zip(transform(x, context), other(x, context), strict=True):
        assert torch.equal(first, second)


@every_transform
def test_is_rebuilt_from_its_config_on_the_meta_device(case: Case) -> None:
    """A constructor that computed a value from a tensor would fail, or leave a value that is not in the state."""
    transform = ready(case, torch.float32)
    with default_tensor_type(torch.float32, torch.device("meta"), whole_numbers="cpu"):
        rebuilt: Transform = build(json.loads(json.dumps(describe(transform))))
    assert all(tensor.is_meta for tensor in rebuilt.state_dict().values() if tensor.is_floating_point())
    rebuilt.load_state_dict(transform.state_dict(), assign=True)
    x, context = case.inputs(5, torch.float32), context_for(transform, 5, torch.float32)
    for first, second in zip(transform(x, context), rebuilt.eval()(x, context), strict=True):
        assert torch.equal(first, second)


def check_compiled(case: Case, backend: str, dtype: torch.dtype = torch.float64, *, inverse: bool = True) -> None:
    """Compile both directions in one graph, which takes half the time of two graphs, and compare with eager code."""
    transform = ready(case, dtype)
    x, context = case.inputs(5, dtype), context_for(transform, 5, dtype)

    def there_and_back(x: Tensor) -> tuple[Tensor, ...]:
        z, log_det = transform(x, context)
        return z, log_det, *(transform.inverse(z, context) if inverse else ())

    torch.compiler.reset()
    compiled = torch.compile(there_and_back, fullgraph=True, backend=backend)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for eager, traced in zip(there_and_back(x), compiled(x), strict=True):
        assert torch.allclose(eager, traced, rtol=tolerance, atol=tolerance)


# One case of every public transform, and every kind of network. The backend aot_eager also traces the backward pass.
# The backend eager takes half the time. Cases with many operators use eager. So do Compose and Inverse, because other
# cases already trace their layers.
COMPILED = {
    "Coupling cubic": "aot_eager",
    "Coupling images context": "eager",
    "Autoregressive context": "aot_eager",
    "Autoregressive attention context": "eager",
    "Elementwise images": "aot_eager",
    "LULinear": "aot_eager",
    "Conv1x1": "aot_eager",
    "ActNorm": "aot_eager",
    "Permutation": "aot_eager",
    "Squeeze": "aot_eager",
    "MultiScale": "aot_eager",
    "Compose": "eager",
    "Inverse": "eager",
    "Sigmoid": "aot_eager",
    "Logit clipped": "aot_eager",
    "Standardise": "aot_eager",
    "Planar": "eager",
    "Radial context": "aot_eager",
    "Orthogonal": "aot_eager",
    "QRLinear": "aot_eager",
    "SVDLinear": "aot_eager",
    "BatchNorm": "aot_eager",
    "Sylvester": "eager",
    "BlockNAF D=1": "eager",
    "Continuous fixed steps": "eager",
    "Autoregressive adjacency": "eager",
    "Recurrent context": "aot_eager",
    "EmergingConv": "eager",
    "PeriodicConv": "aot_eager",
    "Autoregressive recurrent shift": "eager",
}


# Layers with a search, which evaluates the map half as often in float32.
SEARCHES = {"Sylvester", "BlockNAF D=1", "Planar"}


@pytest.mark.parametrize("name", COMPILED)
def test_compiles_as_one_graph(name: str) -> None:
    """Block-NAF's search is that of Sylvester's layer. Here, only its forward direction is traced."""
    dtype = torch.float32 if name in SEARCHES else torch.float64
    check_compiled(REGISTRY[name], COMPILED[name], dtype, inverse=name != "BlockNAF D=1")


@pytest.mark.soak
@every_transform_with("compile")
def test_compiles_as_one_graph_with_its_backward(case: Case) -> None:
    """Tracing all 50 cases takes two minutes. The previous test traces one case of every public transform.

    Most other cases are couplings with another family; tests/splines/test_tracing.py compiles every family.
    """
    check_compiled(case, "aot_eager")


@every_transform_with("vmap")
def test_vmap_over_batches(case: Case) -> None:
    transform = ready(case, torch.float64)
    x = torch.stack([case.inputs(3, torch.float64, seed) for seed in range(4)])
    context = context_for(transform, 3, torch.float64)
    mapped = torch.func.vmap(lambda batch: transform(batch, context))(x)
    looped = [transform(batch, context) for batch in x]
    for i, expected in enumerate(zip(*looped, strict=True)):
        assert torch.allclose(mapped[i], torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_one_flow_through_inductor() -> None:
    """The default compiler runs once, on a flow of LU, coupling and splines with its backward pass."""
    torch.manual_seed(0)
    # One C++ program is compiled for every few operators.
    flow = cf.flows.tabular(3, num_layers=1, hidden_features=8, num_blocks=1, num_bins=4, final_linear=False)
    x = torch.randn(16, 3)
    torch.compiler.reset()
    compiled = torch.compile(flow.log_prob, fullgraph=True)
    eager = torch.autograd.grad(flow.log_prob(x).sum(), list(flow.parameters()))
    traced = torch.autograd.grad(compiled(x).sum(), list(flow.parameters()))
    for expected, found in zip(eager, traced, strict=True):
        assert torch.allclose(expected, found, rtol=1e-4, atol=1e-5)


def test_every_public_transform_is_in_the_registry_and_compiled() -> None:
    not_layers = {"Transform", "LinearTransform", "NotInvertibleError", "SolverError", "ElementMap"}
    public = set(cf.transforms.__all__) - not_layers
    assert public == {type(case.make()).__name__ for case in REGISTRY.values()}
    exempt = {type(case.make()).__name__ for case in REGISTRY.values() if "compile" in case.without}
    assert public == {type(REGISTRY[name].make()).__name__ for name in COMPILED} | exempt
