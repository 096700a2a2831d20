"""Published models: their layers and sizes, counted by hand, and that each can do what its paper says."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import cubicflow as cf
from cubicflow.flows.published_models import IMAGES, PUBLISHED

from ..helpers.perturbed import perturbed

SMALL = {"num_layers": 2, "hidden_features": 8}


def small(name: str) -> cf.Flow:
    """Return a small model in float64 that has seen a batch, from which actnorm starts."""
    torch.manual_seed(0)
    flow = cf.flows.published(name, 3, **SMALL).double()
    flow.log_prob(torch.randn(32, 3, dtype=torch.float64))
    return flow.eval()


def count(flow: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in flow.parameters())


def plain(inputs: int, hidden: int, layers: int, outputs: int) -> int:
    """Return the number of weights of a plain network."""
    sizes = [inputs, *[hidden] * layers, outputs]
    return sum(a * b + b for a, b in pairwise(sizes))


@pytest.mark.parametrize("name", PUBLISHED)
class TestEveryModel:
    def test_density_and_samples(self, name: str) -> None:
        flow = perturbed(small(name), by=0.05)
        x = flow.sample(6, seed=0)
        report = flow.check(x)
        assert report.non_finite == 0
        assert report.round_trip < 1e-4  # the cubic clips, and FFJORD has a tolerance
        assert report.jacobian_error < 1e-6

    def test_saved_and_loaded(self, name: str, tmp_path) -> None:
        flow = small(name)
        flow.save(tmp_path)
        x = torch.randn(4, 3, dtype=torch.float64)
        assert torch.equal(cf.load(tmp_path).log_prob(x), flow.log_prob(x))

    def test_one_step_of_training(self, name: str) -> None:
        x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        settings = {"steps": 2, "batch_size": 32, "progress": False}
        result = cf.training.fit(cf.flows.published(name, 3, **SMALL), x, **settings)
        assert result.validation_loss < 50


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nice", 4 * plain(3, 1000, 5, 3) + 12),  # and location and log-scale of the base
        ("realnvp", 10 * (plain(3, 100, 2, 6) + 12)),
        ("maf", 5 * (plain(6, 100, 2, 12) + 12)),
        ("iaf", 4 * plain(6, 320, 2, 12)),
        ("planar", 80 * 13),
        ("block-naf", 5 * (1 + 2 * 6 * 60 + 2 * (60 + 6))),  # a gate, weights, scales and shifts
        ("naf", 5 * plain(6, 100, 2, 6 * 3 * 16) + 12),
    ],
)
def test_sizes(name: str, expected: int) -> None:
    """Numbers of weights for six columns; masked weights count."""
    assert count(cf.flows.published(name, 6)) == expected


def test_an_inverse_autoregressive_flow_samples_in_one_pass() -> None:
    flow = cf.flows.published("iaf", 5, **SMALL).eval()
    calls = 0

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    for layer in flow.modules():
        if type(layer).__name__ == "MaskedResidualMLP":
            layer.register_forward_hook(counted)
    flow.sample(3)
    assert calls == 2


def test_every_second_layer_of_maf_reverses_the_columns() -> None:
    orders = [layer.order for layer in cf.flows.published("maf", 4).transform.transforms if hasattr(layer, "order")]
    assert orders == [None, [3, 2, 1, 0], None, [3, 2, 1, 0], None]


@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str) -> None:
    flow = cf.flows.published(name, (3, 8, 8), num_layers=1, hidden_features=8)
    x = cf.flows.dequantise(torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8))
    assert flow.log_prob(x).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("mfa", 3), {}, "published has no model 'mfa'; did you mean 'maf'"),
        (("maf", (1, 8, 8)), {}, "maf is not a model of images; give a number of columns, or one of glow, cubic"),
        (("planar", 3), {"clip": 1e-6}, "layer='planar' has no maps of single numbers; leave out clip= and family="),
        (("sylvester", 3), {"context_features": 1}, "Sylvester layers take no context"),
        (("maf", 3), {"normalise": "layer"}, "normalise must be one of None, 'act', 'batch', got 'layer'"),
        (("maf", 3), {"network": "transformer"}, "is residual; leave out residual=False"),
    ],
)
def test_refusals(arguments, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cf.flows.published(*arguments, **settings)


def test_radial_layers_and_context() -> None:
    for layer in ("planar", "radial"):
        flow = perturbed(cf.flows.tabular(2, layer=layer, context_features=1, **SMALL).double())
        x, context = torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
        assert flow.check(x, context).round_trip < 1e-9
        assert not torch.equal(flow.log_prob(x, context), flow.log_prob(x, -context))


def test_a_plain_network_is_a_plain_network() -> None:
    torch.manual_seed(0)
    net = cf.nets.ResidualMLP(3, 4, hidden_features=8, num_blocks=2, residual=False, identity_start=False)
    first, (second, third), last = net.first, [block.layer for block in net.blocks], net.last
    x = torch.randn(5, 3)
    expected = last(third(second(first(x).relu()).relu()).relu()) / 8**0.5
    assert torch.allclose(net(x), expected)
    assert net.config()["residual"] is False
    masked = cf.nets.MaskedResidualMLP(3, 6, hidden_features=8, residual=False, identity_start=False)
    jacobian = torch.autograd.functional.jacobian(lambda row: masked(row[None])[0], x[0]).view(3, 2, 3)
    assert all((jacobian[i, :, i:] == 0).all() for i in range(3))
    assert (jacobian[2, :, :2] != 0).any()
