"""Coupling layers whose splines read and write slices of whole rows agree with the plain pass."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.helpers.triton_interpreter import MANY
from torch import Tensor

import cubicflow as cf
from cubicflow.nets import ResidualMLP
from cubicflow.transforms import Coupling, ElementMap, LULinear
from cubicflow.transforms.coupling import alternating_mask, contiguous_mask

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in Triton's interpreter


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


def made(mask: list[bool], context_features: int = 0, **settings: object) -> Coupling:
    torch.manual_seed(0)
    network = partial(ResidualMLP, hidden_features=8, num_blocks=1)
    layer = Coupling(mask, network, ElementMap(**settings), context_features=context_features)  # type: ignore[arg-type]
    with torch.no_grad():
        for param in layer.parameters():
            param += 0.5 * torch.randn(param.shape, generator=torch.Generator().manual_seed(param.numel()))
    return layer


@pytest.mark.parametrize(
    ("mask", "settings"),
    [
        (alternating_mask(6), {}),
        (alternating_mask(5, even=False), {"num_bins": 4, "slopes": "free"}),
        (contiguous_mask(5), {"family": "quadratic", "num_bins": 3}),
        ([True, False], {"family": "rational_quadratic", "num_bins": MANY, "domain": "unit"}),
        (contiguous_mask(4, second=False), {"num_bins": MANY}),
    ],
    ids=["alternating", "odd", "contiguous", "pair", "chunks"],
)
@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.usefixtures("small_chunks")
def test_values_and_gradients(device: str, mask: list[bool], settings: dict[str, object], rows: int) -> None:
    """Compare two layers with a linear layer between them, against the plain pass in float64."""
    from cubicflow.accel import fused_coupling

    layers = [made(mask, 2, **settings), made([not chosen for chosen in mask], **settings)]
    linear, generator = LULinear(len(mask), seed=0), torch.Generator().manual_seed(rows)
    x = torch.rand(rows, len(mask), generator=generator) if "domain" in settings else None
    x = torch.randn(rows, len(mask), generator=generator) if x is None else x
    context = torch.randn(rows, 2, generator=generator)
    weights = torch.randn(rows, generator=generator)

    def found(dtype: torch.dtype, where: str, call) -> list[Tensor]:
        parts = [part.to(where, dtype) for part in (*layers, linear)]
        params = [param for part in parts for param in part.parameters()]
        inputs = x.to(where, dtype).requires_grad_()
        z, log_det = call(parts[0], inputs, context.to(inputs))
        z, more = (z, 0) if "domain" in settings else parts[2](z)
        z, last = call(parts[1], z, None)
        losses = (z.sin().sum(1) - log_det - more - last) * weights.to(inputs)
        return [z, log_det + last, *torch.autograd.grad(losses.sum(), [inputs, *params], allow_unused=True)]

    def fused(layer: Coupling, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        specs = fused_coupling.specs_of(layer, x)
        assert specs is not None
        return fused_coupling.fused(layer, x, context, specs)

    exact = found(torch.float64, "cpu", lambda layer, x, context: layer(x, context))
    plain = found(torch.float32, device, lambda layer, x, context: layer(x, context))
    ours = found(torch.float32, device, fused)
    assert len(exact) == len(ours) > 20
    for mine, usual, theirs in zip(ours, plain, exact, strict=True):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            rounding = float((usual.double().cpu() - theirs).detach().abs().max())
            atol = 2e-4 * float(theirs.detach().abs().max()) + 2 * rounding
            torch.testing.assert_close(mine.double().cpu(), theirs, rtol=1e-4, atol=atol)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: made([True, True, False, True]),  # not a slice
        lambda: made(alternating_mask(4), family="affine"),
        lambda: made(alternating_mask(4), family="linear"),
        lambda: made(alternating_mask(4), affine_first=True),
        lambda: made(alternating_mask(4), backend="reference"),
        lambda: made(alternating_mask(4), num_bins=300, min_bin_width=1e-4, min_bin_height=1e-4),
        lambda: made(alternating_mask(4), domain=["unit", "circle", "circle", "unit"]),
        lambda: Coupling(alternating_mask(4), partial(ResidualMLP, hidden_features=8), transform_identity=False),
    ],
)
def test_layers_that_the_kernels_refuse(device: str, layer) -> None:
    from cubicflow.accel.fused_coupling import specs_of

    x = torch.rand(3, 4, device=device)
    assert specs_of(layer().to(device), x) is None
    supported = made(alternating_mask(4)).to(device)
    assert specs_of(supported, x) is not None
    assert specs_of(supported, x.double()) is None
    assert specs_of(supported, x.mT.contiguous().mT.expand(3, 4)) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_uses_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubicflow.accel import fused_coupling

    calls: list[Coupling] = []
    plain = fused_coupling.fused
    monkeypatch.setattr(fused_coupling, "fused", lambda layer, *rest: calls.append(layer) or plain(layer, *rest))
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    cf.training.fit(cf.flows.tabular(4, num_layers=2, hidden_features=8), x, steps=3, device="cuda", progress=False)
    assert len({id(layer) for layer in calls}) == 2
