"""The recipes: the flows that they build, and that samples of every recipe follow log_prob."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.distributions import NormalMixture, StandardNormal, Uniform
from cubicflow.flows import ImageConfig, PlaneConfig, TabularConfig, bits_per_dim, dequantise


def parts(flow: cf.Flow) -> Counter[str]:
    return Counter(type(module).__name__ for module in flow.modules())


def chi_square_p_value(counts: torch.Tensor, masses: torch.Tensor) -> float:
    """Return the p-value of observed counts against cell masses. Cells that expect fewer than 10 are pooled."""
    expected = masses / masses.sum() * counts.sum()
    small = expected < 10
    observed = torch.cat([counts[~small], counts[small].sum()[None]])
    expected = torch.cat([expected[~small], expected[small].sum()[None]]).clamp(min=1e-9)
    keep = expected > 1
    expected = expected[keep] * observed[keep].sum() / expected[keep].sum()
    return float(stats.chisquare(observed[keep].numpy(), expected.numpy()).pvalue)


TABULAR = {
    "default": {},
    "paper": {"paper": True},
    "quadratic": {"family": "quadratic"},
    "linear": {"family": "linear"},
    "rational-quadratic": {"family": "rational_quadratic"},
    "free slopes": {"slopes": "free"},
    "Real NVP": {"family": "affine"},
    "NICE": {"family": "additive"},
    "MAF": {"layer": "autoregressive", "family": "affine"},
    "IAF": {"layer": "autoregressive", "family": "affine", "direction": "noise"},
    "autoregressive cubic": {"layer": "autoregressive"},
    "NAF": {"layer": "naf", "depth": 1},
    "TAN": {"layer": "tan"},
    "recurrent": {"layer": "recurrent", "linear": False},
    "continuous": {"layer": "continuous", "linear": False},
    "Block-NAF": {"layer": "block_naf", "linear": False, "depth": 1},
    "affine, then cubic": {"affine_first": True},
    "attention": {"layer": "autoregressive", "network": "transformer", "order": [1, 0], "scale_logits": True},
    "towards data": {"direction": "noise"},
    "mixture base": {"base_components": 3},
}


@pytest.mark.parametrize("settings", TABULAR.values(), ids=list(TABULAR))
def test_tabular_samples_follow_log_prob(settings: dict) -> None:
    """The test is chi-square on a 40 x 40 grid over the samples' range, with cell masses by a 5 x 5 midpoint rule. A
    correct flow fails once in ten thousand times, and the seed is fixed."""
    torch.manual_seed(0)
    flow = perturbed(cf.flows.tabular(2, num_layers=2, hidden_features=12, num_bins=5, **settings), by=0.2).double()
    x = flow.sample(20_000, seed=1, batch_size=10_000)
    low, high = x.quantile(0.002, dim=0), x.quantile(0.998, dim=0)
    cells, fine = 40, 5
    unit = (torch.arange(cells * fine, dtype=torch.float64) + 0.5) / (cells * fine)
    grid = low + torch.cartesian_prod(unit, unit) * (high - low)
    with torch.no_grad():
        density = flow.log_prob(grid, batch_size=20_000).exp()
    area = (high - low).prod() / (cells * fine) ** 2
    masses = density.reshape(cells, fine, cells, fine).sum((1, 3)) * area
    inside = ((x > low) & (x < high)).all(1)
    index = ((x[inside] - low) / (high - low) * cells).long()
    counts = torch.bincount(index[:, 0] * cells + index[:, 1], minlength=cells * cells).double()
    assert chi_square_p_value(counts, masses.flatten()) > 1e-4
    assert abs(inside.double().mean() - masses.sum()) < 5 * math.sqrt(0.01 / 20_000) + 5e-3, (
        "the absolute mass is right, not only the shape"
    )


@pytest.mark.parametrize("settings", [{}, {"paper": True}, {"family": "quadratic"}, {"direction": "noise"}], ids=str)
def test_plane_samples_follow_log_prob_which_integrates_to_one(settings: dict) -> None:
    torch.manual_seed(0)
    flow = perturbed(cf.flows.plane(num_bins=12, hidden_features=16, **settings), by=0.15).double()
    cells, fine = 32, 8
    unit = (torch.arange(cells * fine, dtype=torch.float64) + 0.5) / (cells * fine)
    with torch.no_grad():
        density = flow.log_prob(torch.cartesian_prod(unit, unit), batch_size=65536).exp()
    masses = density.reshape(cells, fine, cells, fine).mean((1, 3)) / cells**2
    assert abs(masses.sum() - 1) < 1e-3
    x = flow.sample(20_000, seed=1)
    index = (x * cells).long().clamp(max=cells - 1)
    counts = torch.bincount(index[:, 0] * cells + index[:, 1], minlength=cells**2).double()
    assert chi_square_p_value(counts, masses.flatten()) > 1e-4


@pytest.mark.parametrize("settings", [{}, {"paper": True}, {"family": "affine"}], ids=str)
def test_image_samples_follow_log_prob(settings: dict) -> None:
    """Images have four pixels. Masses of sixteen four-dimensional cells are by a midpoint rule, 16 points an axis."""
    torch.manual_seed(0)
    flow = cf.flows.image(
        (1, 2, 2), num_levels=1, num_layers=2, hidden_features=6, num_bins=4, logit_margin=0.2, **settings
    )
    flow.log_prob(256 * torch.rand(256, 1, 2, 2))  # initialises actnorm
    flow = perturbed(flow, by=0.05).double()
    axis = (torch.arange(16, dtype=torch.float64) + 0.5) / 16 * 256
    grid = torch.cartesian_prod(axis, axis, axis, axis).reshape(-1, 1, 2, 2)
    with torch.no_grad():
        density = flow.log_prob(grid, batch_size=50_000).exp() * (256 / 16) ** 4
    masses = density.reshape(2, 8, 2, 8, 2, 8, 2, 8).sum((1, 3, 5, 7)).flatten()
    x = flow.sample(20_000, seed=1, batch_size=5_000).flatten(1)
    inside = ((x >= 0) & (x < 256)).all(1)
    index = (x[inside] / 128).long()
    counts = torch.bincount((index * torch.tensor([8, 4, 2, 1])).sum(1), minlength=16).double()
    assert chi_square_p_value(counts, masses) > 1e-4
    share = inside.double().mean()
    assert abs(share - masses.sum()) < 5 * math.sqrt(float(share * (1 - share)) / 20_000) + 5e-3


def test_tabular_has_the_papers_layers() -> None:
    flow = cf.flows.tabular(6, paper=True)
    found = parts(flow)
    assert (found["LULinear"], found["Coupling"], found["Sigmoid"], found["Logit"]) == (10, 10, 20, 10)
    assert isinstance(flow.base, StandardNormal)
    coupling = next(m for m in flow.modules() if type(m).__name__ == "Coupling")
    assert coupling.mask == [False] * 3 + [True] * 3
    assert (coupling.element_map.num_bins, coupling.element_map.domain) == (10, "unit")
    assert coupling.network.num_blocks == 2
    assert coupling.identity_maps is not None, "the paper's layer transforms all its inputs"
    assert all(m.bias is None for m in flow.modules() if type(m).__name__ == "LULinear")
    assert flow.log_prob(torch.randn(5, 6)).isfinite().all()


def test_each_difference_from_the_paper_has_its_own_switch() -> None:
    paper, default = TabularConfig.make(True, {"features": 4}), TabularConfig.make(False, {"features": 4})
    names = [name for name in vars(paper) if getattr(paper, name) != getattr(default, name)]
    assert set(names) == {"clip", "mask", "linear_bias", "final_linear", "identity_start", "scale_logits"}
    for name in names:
        flow = cf.flows.tabular(4, num_layers=2, hidden_features=8, **{name: getattr(paper, name)})
        assert flow.log_prob(torch.zeros(2, 4)).isfinite().all()
        flow = cf.flows.tabular(4, num_layers=2, hidden_features=8, paper=True, **{name: getattr(default, name)})
        assert flow.log_prob(torch.zeros(2, 4)).isfinite().all()


def test_default_tabular_starts_as_a_permutation() -> None:
    flow = cf.flows.tabular(5)
    x = torch.randn(10, 5)
    z, log_det = flow.to_noise(x)
    assert torch.allclose(z.sort(1).values, x.sort(1).values, atol=1e-4)
    assert torch.allclose(log_det, torch.zeros(10), atol=1e-4)
    assert parts(flow)["LULinear"] == 11


def test_masks_alternate() -> None:
    couplings = [m for m in cf.flows.tabular(3, num_layers=3).modules() if type(m).__name__ == "Coupling"]
    assert [c.mask for c in couplings] == [[True, False, True], [False, True, False], [True, False, True]]


def test_arguments_choose_the_base_and_the_parts() -> None:
    assert isinstance(cf.flows.tabular(2, base_components=4).base, NormalMixture)
    assert parts(cf.flows.tabular(3, linear=False))["LULinear"] == 0
    assert parts(cf.flows.tabular(1))["Elementwise"] == 10
    assert parts(cf.flows.tabular(3, layer="autoregressive"))["Autoregressive"] == 10
    assert parts(cf.flows.tabular(3, direction="noise"))["Inverse"] == 1
    assert parts(cf.flows.tabular(3, identity_maps=False))["Elementwise"] == 0


def test_plane_has_the_papers_layers() -> None:
    flow = cf.flows.plane()
    couplings = [m for m in flow.modules() if type(m).__name__ == "Coupling"]
    assert [c.mask for c in couplings] == [[True, False], [False, True]]
    assert {c.element_map.num_bins for c in couplings} == {128}
    assert isinstance(flow.base, Uniform)
    assert parts(flow)["LULinear"] == 0
    assert sum(p.numel() for p in flow.parameters()) == 69_896 < 0.3 * 512 * 512
    outside = torch.tensor([[1.2, 0.5], [0.5, -0.1], [0.5, 0.5]])
    assert flow.log_prob(outside).tolist()[:2] == [-math.inf, -math.inf]
    assert flow.log_prob(outside)[2].isfinite()


def test_image_is_a_glow_of_two_scales() -> None:
    flow = cf.flows.image(num_layers=3, hidden_features=8)
    found = parts(flow)
    assert (found["ActNorm"], found["Conv1x1"], found["Coupling"], found["MultiScale"]) == (6, 6, 6, 1)
    assert flow.shape == (1, 28, 28)
    x = dequantise(torch.randint(256, (16, 1, 28, 28), dtype=torch.uint8))
    assert flow.log_prob(x).isfinite().all()
    flow.eval()
    z, _ = flow.to_noise(x)
    assert z.shape == (16, 784)
    assert torch.allclose(flow.from_noise(z)[0], x, atol=0.02)  # 1e-4 of a pixel's range, through the logit and back
    assert flow.sample(2).shape == (2, 1, 28, 28)
    assert flow.sample(2, temperature=0.5).isfinite().all()


def test_image_likelihood_counts_the_preprocessing() -> None:
    """An untrained flow is logit preprocessing, actnorm and permutations. The test writes these out."""
    torch.manual_seed(0)
    flow = cf.flows.image((1, 2, 2), num_levels=1, num_layers=1, hidden_features=4, logit_margin=0.1).double()
    x = 256 * torch.rand(100, 1, 2, 2, dtype=torch.float64)
    log_prob = flow.log_prob(x)
    p = 0.1 + 0.8 * x.flatten(1) / 256
    logits = torch.logit(p)
    normal = torch.distributions.Normal(logits.mean(0), logits.std(0, correction=0))
    expected = (normal.log_prob(logits) - (p * (1 - p)).log() + math.log(0.8 / 256)).sum(1)
    assert torch.allclose(log_prob, expected, rtol=1e-6)
    assert torch.allclose(bits_per_dim(expected, 4), -expected / 4 / math.log(2))


def test_dequantise_adds_less_than_one() -> None:
    pixels = torch.randint(256, (1000, 1, 2, 2), dtype=torch.uint8)
    x = dequantise(pixels, torch.Generator().manual_seed(0))
    assert torch.equal(x.floor().to(torch.uint8), pixels)
    assert torch.equal(x, dequantise(pixels, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cf.flows.tabular(3, num_layer=2), TypeError, "no setting 'num_layer'; did you mean 'num_layers'"),
        (lambda: cf.flows.tabular(3, colour=2), TypeError, "TabularConfig has no setting 'colour'. It has: family, "),
        (lambda: cf.flows.tabular(0), ValueError, "features must be a positive integer, got 0"),
        (lambda: cf.flows.tabular(3, num_layers=0), ValueError, "num_layers must be a positive integer, got 0"),
        (lambda: cf.flows.tabular(3, layer="rnn"), ValueError, "layer must be one of 'coupling', 'auto"),
        (
            lambda: cf.flows.tabular(3, layer="ffjord", dropout=0.1),
            ValueError,
            "layer='ffjord' has no residual network",
        ),
        (lambda: cf.flows.tabular(3, network="lstm"), ValueError, "network must be 'mlp' or 'transformer', got 'lstm'"),
        (lambda: cf.flows.tabular(3, network="transformer"), ValueError, "coupling layers need network='mlp'"),
        (lambda: attention(3, num_heads=5), ValueError, "num_heads must divide hidden_features, got 5 and 16"),
        (lambda: attention(3, norm="batch"), ValueError, "layer norms of its own; leave out norm='batch'"),
        (lambda: attention(3, family="affine", affine_first=True), ValueError, "affine_first needs a spline"),
        (lambda: attention(3, order=[0, 1, 1]), ValueError, "order must hold every number from 0 to 2 once"),
        (lambda: attention(3, order=[0, 1]), ValueError, "order must hold every number from 0 to 2 once, got [0, 1]"),
        (lambda: attention(3, order=3), ValueError, "order must hold every number from 0 to 2 once, got 3"),
        (lambda: attention(2, order=["b", 0]), ValueError, "every number from 0 to 1 once, got ['b', 0]"),
        (lambda: attention(3, order=[2, 1, 0], linear=True), ValueError, "linear layers mix the features"),
        (lambda: cf.flows.tabular(3, order=[2, 1, 0]), ValueError, "order needs layer='autoregressive'"),
        (lambda: attention(3, domain="unit"), TypeError, "TabularConfig has no setting 'domain'"),
        (lambda: cf.flows.tabular(3, mask="random"), ValueError, "mask must be 'alternating' or 'contiguous'"),
        (lambda: cf.flows.tabular(3, direction="up"), ValueError, "direction must be 'data' or 'noise', got 'up'"),
        (lambda: cf.flows.tabular(3, family="septic"), ValueError, "family must be one of"),
        (lambda: cf.flows.plane(1), ValueError, "at least 2 features, got 1; use tabular for one"),
        (lambda: cf.flows.image((1, 28, 28), num_levels=3), ValueError, "cannot be squeezed 3 times"),
        (lambda: cf.flows.image(direction="noise"), ValueError, "an image flow supports only direction='data', got"),
        (
            lambda: cf.flows.image(logit_margin=0.7),
            ValueError,
            "logit_margin must be a finite number, above 0 and below 0.5",
        ),
    ],
)
def test_refusals(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


def attention(features: int, **settings) -> cf.Flow:
    settings = {"hidden_features": 16, "num_blocks": 1, **settings}
    return cf.flows.tabular(features, layer="autoregressive", network="transformer", **settings)


def test_attention_layers_have_opposite_orders() -> None:
    """A feature sees the earlier features in the first layer, and the later ones in the second."""
    flow = attention(4, order=[2, 0, 3, 1])
    first, second = (layer for layer in flow.modules() if isinstance(layer, cf.transforms.Autoregressive))
    assert (first.order, second.order) == ([2, 0, 3, 1], [1, 3, 0, 2])
    for layer in (first, second):
        perturbed(layer.double())
        row = torch.randn(4, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(lambda r, layer=layer: layer(r[None])[0][0], row)
        ordered = jacobian[layer.order][:, layer.order]
        assert (ordered.triu(1) == 0).all()
        assert (ordered.tril(-1)[*torch.tril_indices(4, 4, -1)] != 0).all()


@pytest.mark.parametrize("order", [(2, 0, 1), np.array([2, 0, 1]), torch.tensor([2, 0, 1])], ids=type)
def test_an_order_may_be_any_sequence(order, tmp_path) -> None:
    attention(3, order=order).save(tmp_path / "flow")
    orders = [getattr(part, "order", None) for part in cf.load(tmp_path / "flow").transform.transforms]
    assert orders == [None, [2, 0, 1], [1, 0, 2]]


def test_attention_starts_at_the_identity_and_whitens_by_columns() -> None:
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 20.0, 0.1]) + 5
    flow = attention(3)
    assert torch.allclose(flow.to_noise(x)[0], x, rtol=1e-5, atol=1e-5)
    z, log_det = cf.flows.whiten(flow, x).to_noise(x)
    assert torch.allclose(z, (x - x.mean(0)) / x.std(0, correction=0), rtol=1e-4, atol=1e-4)
    assert torch.allclose(log_det, -x.std(0, correction=0).log().sum().expand(500), atol=1e-4)


@pytest.mark.parametrize(("family", "params"), [("affine", 2), ("additive", 1), ("quadratic", 2 + 25)])
def test_attention_with_every_kind_of_map(family: str, params: int) -> None:
    """Only splines are shifted and scaled first: maps that are not splines have no such setting."""
    flow = perturbed(attention(3, family=family)).double()
    layers = [layer for layer in flow.modules() if isinstance(layer, cf.transforms.Autoregressive)]
    assert [layer.element_map.num_params for layer in layers] == [params] * 2
    assert flow.check(torch.randn(20, 3, dtype=torch.float64)).round_trip < 1e-9


def test_large_calls_of_attention_run_in_pieces(monkeypatch) -> None:
    """Without gradients, large inputs run in pieces, with the same result."""
    flow = perturbed(attention(5)).double()
    x = torch.randn(1200, 5, dtype=torch.float64)
    seen = []
    forward = cf.nets.Transformer.forward

    def counted(self, tokens, memory=None):
        seen.append(len(tokens))
        return forward(self, tokens, memory)

    monkeypatch.setattr(cf.nets.Transformer, "forward", counted)
    monkeypatch.setattr("cubicflow.flows.flow.ROWS_AT_ONCE", 2_000)
    whole = flow.log_prob(x)
    assert seen == [1200, 1200]  # with gradients: one pass of each layer
    seen.clear()
    with torch.no_grad():
        assert torch.allclose(flow.log_prob(x), whole, rtol=0, atol=1e-11)
    assert seen == [400] * 6


def test_configs_are_typed_and_documented() -> None:
    for config in (TabularConfig, PlaneConfig, ImageConfig):
        documented = "".join(cls.__doc__ or "" for cls in config.__mro__)
        for name in vars(config.make(False, {})):
            assert name in documented, f"{config.__name__}.{name} is not documented"
