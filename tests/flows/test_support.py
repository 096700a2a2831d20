"""The support of a flow's distribution, compared with the density and the samples of every recipe and base."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from tests.helpers.perturbed import perturbed
from torch.distributions import biject_to, constraints

import cubicflow as cf
from cubicflow.distributions import Base, ByColumn, NormalMixture, StandardNormal, Uniform
from cubicflow.nets import ResidualMLP
from cubicflow.transforms import (
    ActNorm,
    Autoregressive,
    Compose,
    Conv1x1,
    Coupling,
    ElementMap,
    Elementwise,
    Inverse,
    Logit,
    LULinear,
    MultiScale,
    Permutation,
    Sigmoid,
    Standardise,
    Transform,
)

LINE = (-math.inf, math.inf)
SMALL = {"num_layers": 2, "hidden_features": 12, "num_bins": 4}


class Exponential(Base):
    support = constraints.nonnegative

    def log_prob(self, z, temperature=1.0):
        log_prob = -(z / temperature).sum(-1) - self.features * math.log(temperature)
        return torch.where((z < 0).any(-1), -torch.inf, log_prob)

    def sample(self, n, temperature=1.0, generator=None):
        return -temperature * torch.rand(n, self.features, generator=generator, dtype=self.anchor.dtype).log()


class Columns(Transform):
    """The pixels of 1 x 2 x 2 images as columns. It does not say that it changes the shape."""

    def forward(self, x, context=None):
        return x.flatten(1), x.new_zeros(len(x))

    def inverse(self, z, context=None):
        return z.unflatten(1, (1, 2, 2)), z.new_zeros(len(z))

    def config(self):
        return {}


class Pixels(Columns):
    def map_box(self, ends, *, inverse=False):
        return ends.unflatten(1, (1, 2, 2)) if inverse else ends.flatten(1)


def unit(features: int = 2, domain="unit") -> Coupling:
    mask = [i % 2 == 0 for i in range(features)]
    return Coupling(mask, partial(ResidualMLP, hidden_features=8), ElementMap(num_bins=4, domain=domain))


def image(**settings) -> cf.Flow:
    flow = cf.flows.image((2, 4, 4), num_layers=1, hidden_features=6, num_bins=4, **settings)
    flow.log_prob(256 * torch.rand(16, 2, 4, 4, generator=torch.Generator().manual_seed(0)))  # initialises actnorm
    return flow


# The flow, and the lowest and the highest value of each feature, or None for a support that is not a box.
FLOWS = {
    "tabular": (lambda: cf.flows.tabular(2, **SMALL), [LINE] * 2),
    "tabular, paper": (lambda: cf.flows.tabular(2, paper=True, **SMALL), [LINE] * 2),
    "tabular, noise": (lambda: cf.flows.tabular(2, direction="noise", **SMALL), [LINE] * 2),
    "tabular, paper, noise": (lambda: cf.flows.tabular(2, paper=True, direction="noise", **SMALL), [LINE] * 2),
    "tabular, mixture": (lambda: cf.flows.tabular(2, base_components=3, **SMALL), [LINE] * 2),
    "tabular, autoregressive": (lambda: cf.flows.tabular(2, layer="autoregressive", **SMALL), [LINE] * 2),
    "tabular, Real NVP": (lambda: cf.flows.tabular(2, family="affine", **SMALL), [LINE] * 2),
    "tabular, one feature": (lambda: cf.flows.tabular(1, num_layers=1), [LINE]),
    "tabular, context": (lambda: cf.flows.tabular(2, context_features=1, **SMALL), [LINE] * 2),
    "plane": (lambda: cf.flows.plane(**SMALL), [(0, 1)] * 2),
    "plane, noise": (lambda: cf.flows.plane(direction="noise", **SMALL), [(0, 1)] * 2),
    "box": (lambda: cf.flows.box([(0, 2), (-3, 5)], **SMALL), [(0, 2), (-3, 5)]),
    "box, noise": (lambda: cf.flows.box([(0, 2), (-3, 5)], direction="noise", **SMALL), [(0, 2), (-3, 5)]),
    "box with a line": (lambda: cf.flows.box([(0, 2), LINE], **SMALL), [(0, 2), LINE]),
    "box of one column": (lambda: cf.flows.box([(1, 2)]), [(1, 2)]),
    "box, context": (lambda: cf.flows.box([(0, 2), LINE], context_features=1, **SMALL), [(0, 2), LINE]),
    "image": (image, [(-256 * 0.05 / 0.9, 256 * 0.95 / 0.9)] * 32),
    "image, paper": (lambda: image(paper=True), [(-256 * 0.05 / 0.9, 256 * 0.95 / 0.9)] * 32),
    "scaled uniform": (
        lambda: cf.Flow(Uniform(2), Compose([Standardise([0.0, 1.0], [2.0, 4.0]), unit()])),
        [(0, 2), (1, 5)],
    ),
    "permuted uniform": (
        lambda: cf.Flow(Uniform(2), Compose([Standardise([0.0, 1.0], [2.0, 4.0]), Permutation([1, 0]), unit()])),
        [(0, 2), (1, 5)],
    ),
    "by column": (
        lambda: cf.Flow(
            ByColumn(["real", "unit", "unit"]),
            Compose([Standardise([0.0, 1.0, 2.0], [3.0, 2.0, 1.0]), unit(3, ["real", "unit", "unit"])]),
        ),
        [LINE, (1, 3), (2, 3)],
    ),
    "autoregressive, by column": (
        lambda: cf.Flow(
            ByColumn(["unit", "real"]), Autoregressive(2, element_map=ElementMap(domain=["unit", "real"]), order=[1, 0])
        ),
        [(0, 1), LINE],
    ),
    "logit of a normal": (lambda: cf.Flow(StandardNormal(2), Compose([Logit(), LULinear(2)])), [(0, 1)] * 2),
    "uniform after a sigmoid": (lambda: cf.Flow(Uniform(2), Compose([LULinear(2), Sigmoid()])), [LINE] * 2),
    "mixture of normals": (lambda: cf.Flow(NormalMixture(2), Inverse(Elementwise(2))), [LINE] * 2),
    "custom base": (
        lambda: cf.Flow(Exponential(2), Standardise([0.0, 3.0], [1.0, 2.0])),
        [(0, math.inf), (3, math.inf)],
    ),
    "turned square": (lambda: cf.Flow(Uniform(2), LULinear(2)), None),
    "normal on the unit square": (lambda: cf.Flow(StandardNormal(2), unit()), None),
}


def ready(name: str) -> tuple[cf.Flow, torch.Tensor | None, torch.Tensor]:
    """Return a perturbed flow in float64, its context and samples."""
    torch.manual_seed(0)
    flow = perturbed(FLOWS[name][0](), 0.15).double()
    context = torch.zeros(flow.context_features).double() if flow.context_features else None
    return flow, context, flow.sample(200, context, seed=0)


@pytest.mark.parametrize("name", FLOWS)
def test_the_density_is_positive_exactly_on_the_support(name: str) -> None:
    """Points on a grid around the samples: inside each feature's bounds, and beyond each of its ends."""
    flow, context, x = ready(name)
    p, bounds = flow.distribution(context), FLOWS[name][1]
    assert p.support.event_dim == len(flow.shape)
    if name != "normal on the unit square":  # its base draws noise for which no data exist
        assert bool(p.support.check(x).all())
    if bounds is None:
        grid = 3 * torch.rand(500, *flow.shape, generator=torch.Generator().manual_seed(1)).double() - 1
        positive = p.log_prob(grid) > -math.inf
        assert 0 < int(positive.sum()) < 500
        assert torch.equal(p.support.check(grid), positive)
        return
    for feature, ends in enumerate(bounds):
        low, high = (end if math.isfinite(end) else other for end, other in zip(ends, (-30.0, 30.0), strict=True))
        low, high = (low, low + 30) if ends[1] == math.inf != -ends[0] else (low, high)
        for share in (-0.5, -1e-6, 1e-6, 0.5, 1 - 1e-6, 1 + 1e-6, 2.0):
            value = low + share * (high - low)
            moved = x[:5].clone()
            moved.flatten(1)[:, feature] = value
            inside = ends[0] < value < ends[1]
            assert p.support.check(moved).tolist() == [inside] * 5, (feature, value)
            assert (p.log_prob(moved) > -math.inf).tolist() == [inside] * 5, (feature, value)


@pytest.mark.parametrize("name", [name for name, (_, bounds) in FLOWS.items() if bounds is not None])
def test_unconstrained_values_map_onto_the_support(name: str) -> None:
    flow, context, x = ready(name)
    to_support = biject_to(flow.distribution(context).support)
    torch.testing.assert_close(to_support(to_support.inv(x)), x, atol=1e-6, rtol=1e-6)
    assert flow.log_prob(to_support(torch.randn(50, *flow.shape).double()), context).isfinite().all()


def test_a_copy_and_a_map_from_a_prior_keep_the_support() -> None:
    flow, _, x = ready("box with a line")
    assert copy.deepcopy(flow).distribution().support.check(x).all()
    assert biject_to(copy.deepcopy(flow).distribution().support).inv(x).isfinite().all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cf.Flow(StandardNormal(2), LULinear(3)), "LULinear has 3 features, but .* beside it has 2; give the"),
        (lambda: cf.Flow(Uniform(2), unit(3)), "Coupling has 3 features, but the base .* has 2"),
        (lambda: cf.Flow(Uniform(2), Compose([LULinear(3), LULinear(2)])), "LULinear has 3 features, but .* has 2"),
        (lambda: cf.Flow(StandardNormal(4), Columns(), (1, 2, 2)), r"shape \(4,\), .* overrides map_box"),
        (
            lambda: cf.Flow(StandardNormal(4), Compose([Conv1x1(1), Columns()]), (1, 2, 2)),
            "Conv1x1 has 1 features, .* overrides map_box",
        ),
        (lambda: cf.Flow(StandardNormal(3), Inverse(Compose([LULinear(3), Permutation([1, 0])]))), "Permutation has 2"),
        (lambda: cf.Flow(StandardNormal(2), Compose([Standardise([0.0], [1.0])])), "Standardise has 1 features"),
        (lambda: cf.Flow(StandardNormal(2), Elementwise(2), (3,)), r"shape \(2,\), and this flow has shape=\(3,\)"),
        (
            lambda: cf.Flow(StandardNormal(4), MultiScale([ActNorm(8)], (2, 4, 4)), (2, 4, 4)),
            r"MultiScale of shape=\(2, 4, 4\) expects noise of shape \(32,\), .* give a base of 32 features",
        ),
        (
            lambda: cf.Flow(StandardNormal(32), Compose([ActNorm(3), MultiScale([ActNorm(8)], (2, 4, 4))]), (2, 4, 4)),
            "ActNorm has 3 features, but .* has 2",
        ),
        (
            lambda: cf.Flow(StandardNormal(32), MultiScale([ActNorm(9)], (2, 4, 4)), (2, 4, 4)),
            "ActNorm has 9 features, but .* has 8",
        ),
    ],
)
def test_parts_of_different_sizes_are_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_a_layer_of_the_users_own_may_change_the_shape() -> None:
    flow = cf.Flow(StandardNormal(4), Compose([Conv1x1(1), Pixels()]), (1, 2, 2))
    assert flow.distribution().support.check(flow.sample(3)).all()
    assert flow.log_prob(flow.sample(3)).shape == (3,)


def test_a_saved_flow_keeps_its_support(tmp_path) -> None:
    for name in ("box, noise", "scaled uniform", "image"):
        flow, _, x = ready(name)
        flow.save(tmp_path / name)
        support = cf.load(tmp_path / name).distribution().support
        assert bool(support.check(x).all())
        assert not support.check(x[:1] - 1000).item()
