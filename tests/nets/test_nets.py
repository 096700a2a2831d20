"""The networks of the layers: initial outputs, dependence on the inputs, and errors."""

from __future__ import annotations

import pytest
import torch

from cubicflow.nets import CausalTransformer, FourierMLP, MaskedResidualMLP, ResidualConv, ResidualMLP
from cubicflow.nets.precision import _ExactLinear

NETS = {
    "mlp": (ResidualMLP, (7, 3)),
    "fourier": (FourierMLP, (7, 3)),
    "conv": (ResidualConv, (7, 3, 4, 4)),
    "masked": (MaskedResidualMLP, (7, 3)),
}
every_net = pytest.mark.parametrize(("kind", "shape"), NETS.values(), ids=list(NETS))


@every_net
@pytest.mark.parametrize("context_features", [0, 2])
@pytest.mark.parametrize("norm", [None, "batch"])
def test_starts_at_zero_and_trains_away_from_it(kind, shape, context_features, norm) -> None:
    torch.manual_seed(0)
    net = kind(3, 12, hidden_features=8, context_features=context_features, norm=norm, dropout=0.1)
    context = torch.randn(7, context_features) if context_features else None
    x = torch.randn(shape)
    out = net(x, context) if context_features else net(x)
    assert out.shape == (7, 12, *shape[2:])
    assert (out == 0).all()
    loss = (out - 1).square().sum()
    loss.backward()
    assert net.last.bias.grad.abs().sum() > 0
    torch.optim.SGD(net.parameters(), lr=1e-2).step()
    moved = net(x, context) if context_features else net(x)
    assert (moved - 1).square().sum() < loss


@every_net
def test_without_identity_start_the_outputs_differ_from_zero(kind, shape) -> None:
    torch.manual_seed(0)
    assert kind(3, 12, hidden_features=8, identity_start=False)(torch.randn(shape)).abs().sum() > 0


@every_net
def test_scaled_outputs_do_not_grow_with_width(kind, shape) -> None:
    """With weights of a fixed size, as after training, the unscaled outputs of a network 16 times as wide are 4 times
    as large."""

    def spread(width: int, scale_output: bool) -> float:
        torch.manual_seed(0)
        net = kind(3, 12, hidden_features=width, scale_output=scale_output)
        torch.nn.init.normal_(net.last.weight)
        return float(net(torch.randn(shape)).detach().std())

    assert spread(512, True) / spread(32, True) < 1.5
    assert spread(512, False) / spread(32, False) > 2.5


@every_net
def test_context_matters(kind, shape) -> None:
    torch.manual_seed(0)
    net = kind(3, 12, hidden_features=8, context_features=2, identity_start=False)
    x, context = torch.randn(shape), torch.randn(7, 2)
    assert not torch.allclose(net(x, context), net(x, context + 1))


@every_net
def test_config_rebuilds_the_network(kind, shape) -> None:
    net = kind(
        3, 12, hidden_features=8, num_blocks=3, context_features=2, dropout=0.2, norm="batch", scale_output=False
    )
    twin = kind(**net.config())
    assert twin.config() == net.config()
    assert {k: v.shape for k, v in twin.state_dict().items()} == {k: v.shape for k, v in net.state_dict().items()}


def test_inputs_are_encoded_by_waves_of_every_octave() -> None:
    """The encoding is x, sin and cos. The test writes them out."""
    net = FourierMLP(2, 4, octaves=3, hidden_features=14)
    x = torch.rand(5, 2)
    waves = [w(torch.pi * 2**j * x[:, i]) for w in (torch.sin, torch.cos) for i in range(2) for j in range(3)]
    assert torch.allclose(net._encode(x), torch.cat([2 * x - 1, torch.stack(waves, dim=1)], dim=1), atol=1e-6)
    assert FourierMLP(2, 4, octaves=0, hidden_features=8).first.in_features == 2
    with pytest.raises(ValueError, match="octaves must be a whole number, 0 or more, got -1"):
        FourierMLP(2, 4, octaves=-1)


def test_layer_norm() -> None:
    assert isinstance(ResidualMLP(3, 4, hidden_features=8, norm="layer").blocks[0].first_norm, torch.nn.LayerNorm)
    assert isinstance(ResidualConv(3, 4, hidden_features=8, norm="layer").blocks[0].first_norm, torch.nn.GroupNorm)


@pytest.mark.parametrize("kind", [MaskedResidualMLP, CausalTransformer])
@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("context_features", [0, 3])
def test_causal_outputs_see_earlier_features_and_nothing_else(kind, features: int, context_features: int) -> None:
    """The Jacobian of feature i's outputs is zero from feature i on. Before i, a random net has no zeros."""
    torch.manual_seed(0)
    net = kind(
        features, 4 * features, hidden_features=64, context_features=context_features, identity_start=False
    ).double()
    context = torch.randn(1, context_features, dtype=torch.float64) if context_features else None
    row = torch.randn(features, dtype=torch.float64)

    def outputs(row: torch.Tensor) -> torch.Tensor:
        return (net(row[None]) if context is None else net(row[None], context))[0]

    jacobian = torch.autograd.functional.jacobian(outputs, row).reshape(features, 4, features)
    for i in range(features):
        assert (jacobian[i, :, i:] == 0).all()
        assert (jacobian[i, :, :i].abs().sum(0) > 0).all()
    if context_features:
        jacobian_of_context = torch.autograd.functional.jacobian(lambda c: net(row[None], c[None])[0], context[0])
        assert (jacobian_of_context.reshape(features, 4, -1).abs().sum((1, 2)) > 0).all()  # including the first feature


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResidualMLP(0, 4), "at least one input or context feature"),
        (lambda: ResidualMLP(3, 0), "out_features must be a positive integer"),
        (lambda: ResidualMLP(3, 4, hidden_features=0), "hidden_features must be a positive integer"),
        (lambda: ResidualMLP(3, 4, norm="group"), "norm must be one of None, 'batch', 'layer', got 'group'"),
        (lambda: MaskedResidualMLP(3, 4), "multiple of in_features"),
        (lambda: MaskedResidualMLP(3, 6, norm="layer"), "breaks the causal order"),
        (
            lambda: ResidualMLP(3, 4, context_features=2)(torch.zeros(1, 3)),
            "context_features=2; pass context=",
        ),
        (lambda: ResidualMLP(3, 4)(torch.zeros(1, 3), torch.zeros(1, 2)), "built without context but got context"),
        (
            lambda: ResidualMLP(3, 4, context_features=2)(torch.zeros(1, 3), torch.zeros(1, 3)),
            r"ResidualMLP expects context of shape \(N, 2\), got \(1, 3\)",
        ),
    ],
)
def test_errors_name_the_wrong_argument(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_derivatives_of_exact_products(bias: bool) -> None:
    """The autograd function for GPUs agrees with finite differences, in both modes and to second order."""
    torch.manual_seed(0)
    shapes = [(3, 5), (4, 5), (4,)][: 2 + bias]
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return _ExactLinear.apply(x, weight, bias)

    assert torch.allclose(product(*tensors), torch.nn.functional.linear(*tensors))
    options = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(product, tensors, check_forward_ad=True, **options)
    assert torch.autograd.gradgradcheck(product, tensors)


def transformer(features: int = 4, **settings) -> CausalTransformer:
    torch.manual_seed(0)
    net = CausalTransformer(features, 3 * features, hidden_features=16, identity_start=False, **settings).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("features", [1, 4])
@pytest.mark.parametrize("context_features", [0, 2])
@pytest.mark.parametrize("rows", [0, 5])
def test_stepping_feature_by_feature_equals_a_whole_pass(features: int, context_features: int, rows: int) -> None:
    net = transformer(features, context_features=context_features)
    x = torch.randn(rows, features, dtype=torch.float64)
    context = torch.randn(rows, context_features, dtype=torch.float64) if context_features else None
    next_outputs = net.start_decoding(rows, context)
    steps = [next_outputs(x[:, i - 1] if i else None) for i in range(features)]
    expected = net(x) if context is None else net(x, context)
    assert torch.allclose(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=f"has {features} features, and all outputs were computed"):
        next_outputs(x[:, -1])


def test_a_transformer_depends_on_the_order_of_features() -> None:
    net = transformer()
    x = torch.randn(5, 4, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3]]
    assert not torch.allclose(net(x)[:, 9:], net(swapped)[:, 9:])


def test_a_transformer_multiplies_features_exactly_under_autocast() -> None:
    """Two inputs that are equal in bfloat16 must give different outputs, because locations are computed from them."""
    net = transformer().float()
    x = torch.full((1, 4), 1.0)
    near = x + 1e-3
    assert torch.equal(x.bfloat16(), near.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        one, other = net(x), net(near)
    assert one.dtype == torch.float32
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: CausalTransformer(3, 10), "out_features must be a multiple of in_features.* got 10 and 3"),
        (lambda: CausalTransformer(0, 10), "in_features must be a positive integer"),
        (lambda: CausalTransformer(3, 9, hidden_features=10), "num_heads must divide hidden_features, got 4 and 10"),
        (lambda: CausalTransformer(3, 9, octaves=0), "octaves must be a positive integer"),
        (lambda: transformer()(torch.zeros(5, 6)), r"expects inputs of shape \(N, 4\), got \(5, 6\).*position"),
        (lambda: transformer()(torch.zeros(5, 4), torch.zeros(5, 2)), "built without context but got context"),
        (lambda: transformer(context_features=2)(torch.zeros(5, 4)), "context_features=2; pass context="),
        (
            lambda: transformer(context_features=2)(torch.zeros(5, 4), torch.zeros(5, 3)),
            r"expects context of shape \(N, 2\), got \(5, 3\)",
        ),
    ],
)
def test_a_transformer_refuses_bad_arguments(act, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()
