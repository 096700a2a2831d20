"""Base densities compared with torch's distributions and with quadrature."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch.distributions import Categorical, Gamma, Independent, MixtureSameFamily, Normal

from cubicflow.distributions import (
    Base,
    BaseMixture,
    DiagonalNormal,
    NormalMixture,
    StandardNormal,
    StudentT,
    TorchDistribution,
    Uniform,
    VonMises,
)
from cubicflow.distributions import base as base_module

EVERY = [
    StandardNormal(2),
    NormalMixture(2),
    Uniform(2),
    DiagonalNormal(2),
    StudentT(2),
    VonMises(2),
    BaseMixture([Uniform(2), StudentT(2)]),
    TorchDistribution(Gamma(torch.ones(2), torch.ones(2))),
]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_standard_normal_equals_torchs(temperature: float) -> None:
    z = torch.randn(100, 3, dtype=torch.float64)
    expected = Normal(torch.zeros(3, dtype=torch.float64), temperature).log_prob(z).sum(-1)
    assert torch.allclose(StandardNormal(3).double().log_prob(z, temperature), expected, rtol=1e-14)


def trained_mixture() -> NormalMixture:
    torch.manual_seed(0)
    base = NormalMixture(2, components=4).double()
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return base


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_mixture_equals_torchs(temperature: float) -> None:
    base = trained_mixture()
    parts = Independent(Normal(base.means, temperature * base.log_scales.exp()), 1)
    expected = MixtureSameFamily(Categorical(logits=base.logits), parts)
    z = 2 * torch.randn(100, 2, dtype=torch.float64)
    assert torch.allclose(base.log_prob(z, temperature), expected.log_prob(z), rtol=1e-12)


def test_mixture_samples_follow_their_density() -> None:
    """Means and variances of 100,000 samples are within five standard errors of the exact values."""
    base = trained_mixture()
    weights = base.logits.softmax(0)[:, None]
    mean = (weights * base.means).sum(0)
    variance = (weights * (base.log_scales.exp().square() + base.means.square())).sum(0) - mean.square()
    z = base.sample(100_000, generator=torch.Generator().manual_seed(0)).detach()
    assert ((z.mean(0) - mean).abs() < 5 * (variance / 1e5).sqrt()).all()
    fourth = ((z - mean) ** 4).mean(0)
    assert ((z.var(0) - variance).abs() < 5 * ((fourth - variance.square()) / 1e5).sqrt()).all()


def test_mixture_components_differ_at_the_start() -> None:
    base = NormalMixture(3, components=5)
    assert (torch.pdist(base.means) > 0.1).all()


def test_mixture_samples_are_differentiable_in_means_and_scales() -> None:
    base = trained_mixture()
    base.sample(50).square().sum().backward()
    assert base.means.grad.abs().sum() > 0
    assert base.log_scales.grad.abs().sum() > 0


def test_uniform() -> None:
    base = Uniform(2)
    z = torch.tensor([[0.0, 1.0], [0.2, 0.3], [-0.1, 0.5], [0.5, 1.1], [math.nan, 0.5]])
    log_prob = base.log_prob(z)
    assert log_prob[:4].tolist() == [0, 0, -math.inf, -math.inf]
    assert log_prob[4].isnan()
    samples = base.sample(1000)
    assert samples.shape == (1000, 2)
    assert ((samples >= 0) & (samples <= 1)).all()


@pytest.mark.parametrize("base", EVERY, ids=lambda b: type(b).__name__)
class TestEveryBase:
    def test_generators_make_samples_repeatable(self, base) -> None:
        first, second = (base.sample(10, generator=torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, second)

    def test_no_samples(self, base) -> None:
        assert base.sample(0).shape == (0, 2)

    def test_device_and_dtype_follow_the_module(self, base) -> None:
        assert base.double().sample(2).dtype == torch.float64
        base.float()

    def test_wrong_features(self, base) -> None:
        with pytest.raises(ValueError, match="expects 2 features, got 3"):
            base.log_prob(torch.zeros(1, 3))

    def test_under_vmap_and_compiled(self, base) -> None:
        z = torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
        expected = base.log_prob(z)
        assert torch.allclose(torch.vmap(lambda row: base.log_prob(row[None])[0])(z), expected, atol=1e-6)
        compiled = torch.compile(base.log_prob, fullgraph=True, backend="eager")
        assert torch.allclose(compiled(z), expected, atol=1e-6)

    def test_second_derivatives(self, base) -> None:
        z = (0.1 + 0.8 * torch.rand(3, 2, generator=torch.Generator().manual_seed(0))).double()
        base.double()
        torch.autograd.gradgradcheck(lambda z: base.log_prob(z), z.requires_grad_())
        base.float()

    @pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf])
    def test_impossible_temperatures(self, base, temperature: float) -> None:
        for call in (lambda: base.sample(1, temperature), lambda: base.log_prob(torch.zeros(1, 2), temperature)):
            with pytest.raises(ValueError, match="temperature"):
                call()


def test_temperature_zero_is_the_mode() -> None:
    assert (StandardNormal(2).sample(3, 0.0) == 0).all()
    assert StandardNormal(2).log_prob(torch.zeros(1, 2), 0.0).item() == math.inf
    base = trained_mixture()
    mode = base.sample(3, 0.0)
    grid = torch.stack(torch.meshgrid(*[torch.linspace(-4, 4, 161, dtype=torch.float64)] * 2, indexing="ij"), -1)
    assert (mode == mode[0]).all()
    assert base.log_prob(mode[:1]) >= base.log_prob(grid.reshape(-1, 2)).max() - 0.1
    assert base.log_prob(mode[:1], 0.0).item() == math.inf


def test_uniform_refuses_temperatures_other_than_one() -> None:
    with pytest.raises(ValueError, match=r"supports only temperature 1, got 0\.5"):
        Uniform(2).sample(1, 0.5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_base_of_the_documentation_integrates_to_one(temperature: float) -> None:
    """A midpoint rule on [0, 20 temperatures] squared, whose error is about a ten-thousandth."""
    documented = doctest.DocTestFinder(recurse=False).find(Base, globs={**vars(base_module)})[0]
    exec(documented.examples[0].source, documented.globs)
    density = documented.globs["Exponential"](2).double()
    axis = 20 * temperature * (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    log_prob = density.log_prob(torch.cartesian_prod(axis, axis), temperature)
    assert float(log_prob.exp().sum()) * (20 * temperature / 1000) ** 2 == pytest.approx(1, abs=1e-3)
    samples = density.sample(10_000, temperature, torch.Generator().manual_seed(0))
    assert samples.mean(0).tolist() == pytest.approx([temperature] * 2, rel=0.05)  # five standard errors


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="features must be a positive integer, got 0"):
        StandardNormal(0)
    with pytest.raises(ValueError, match="components must be a positive integer, got 0"):
        NormalMixture(2, components=0)
