"""Bases with trained or conditional parameters, and bases of bases, against SciPy, torch and quadrature."""

from __future__ import annotations

import math

import mpmath
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import cubicflow as cf
from cubicflow.distributions import (
    BaseMixture,
    ByClass,
    ByColumn,
    DiagonalNormal,
    NormalMixture,
    StandardNormal,
    StudentT,
    Uniform,
    VonMises,
)
from cubicflow.distributions.parametric import log_gamma_ratio

from ..helpers.perturbed import perturbed


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class TestStudentT:
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
    def test_density_is_scipys(self, temperature: float) -> None:
        base = perturbed(StudentT(3, degrees=4.0).double())
        z = 5 * doubles(50, 3)
        scale = temperature * base.log_scale.exp().detach().numpy()
        laws = scipy.stats.t(base.log_degrees.exp().detach().numpy(), base.location.detach().numpy(), scale)
        expected = laws.logpdf(z.numpy()).sum(1)
        assert torch.allclose(base.log_prob(z, temperature), torch.from_numpy(expected), rtol=1e-12)

    @pytest.mark.parametrize("a", [1e-3, 0.5, 3.0, 15.999, 16.0, 40.0, 1e6, 1e12])
    def test_ratio_of_gamma_functions(self, a: float) -> None:
        with mpmath.workdps(40):
            expected = float(mpmath.loggamma(mpmath.mpf(a) + 0.5) - mpmath.loggamma(mpmath.mpf(a)))
            slope = float(mpmath.digamma(mpmath.mpf(a) + 0.5) - mpmath.digamma(mpmath.mpf(a)))
        x = torch.tensor(a, dtype=torch.float64, requires_grad=True)
        found = log_gamma_ratio(x)
        assert found.item() == pytest.approx(expected, rel=1e-13)
        assert torch.autograd.grad(found, x)[0].item() == pytest.approx(slope, rel=1e-11)

    def test_samples_follow_their_density(self) -> None:
        base = perturbed(StudentT(2, degrees=3.0).double())
        z = base.sample(20_000, generator=generator()).detach()
        for i in range(2):
            law = scipy.stats.t(*(p[i].item() for p in (base.log_degrees.exp(), base.location, base.log_scale.exp())))
            assert scipy.stats.kstest(z[:, i].numpy(), law.cdf).pvalue > 1e-3

    def test_samples_are_differentiable_in_the_degrees(self) -> None:
        """E |u| of Student's t has a closed form, and so has its slope."""
        base = StudentT(1, degrees=5.0).double()
        base.sample(400_000, generator=generator()).abs().mean().backward()
        with mpmath.workdps(30):

            def mean_size(log_degrees: mpmath.mpf) -> mpmath.mpf:
                v = mpmath.exp(log_degrees)
                return 2 * mpmath.sqrt(v / mpmath.pi) * mpmath.gamma((v + 1) / 2) / mpmath.gamma(v / 2) / (v - 1)

            slope = float(mpmath.diff(mean_size, mpmath.log(5)))
        assert base.log_degrees.grad.item() == pytest.approx(slope, rel=0.05)

    def test_a_fit_finds_the_degrees(self) -> None:
        x = torch.from_numpy(scipy.stats.t(2.5).rvs((20_000, 1), random_state=0)).float()
        flow = cf.Flow(StudentT(1, degrees=20.0), cf.transforms.Permutation([0]))
        cf.training.fit(flow, x, steps=400, batch_size=2_000, learning_rate=0.05, progress=False)
        assert flow.base.log_degrees.exp().item() == pytest.approx(2.5, rel=0.15)


def test_a_recipe_takes_the_base() -> None:
    base = StudentT(3, degrees=3.0, context_features=2)
    flow = cf.flows.tabular(3, base=base, context_features=2, num_layers=1, hidden_features=8)
    x, context = torch.randn(4, 3), torch.randn(4, 2)
    assert flow.base is base
    assert flow.log_prob(x, context).isfinite().all()
    assert flow.distribution(context).support.check(1e6 * x).all()


class TestDiagonalNormal:
    @pytest.mark.parametrize("temperature", [0.5, 1.0])
    def test_density_is_torchs(self, temperature: float) -> None:
        base = perturbed(DiagonalNormal(3, context_features=2).double())
        z, context = doubles(20, 3), doubles(20, 2, seed=1)
        changes = base.network(context)
        mean, log_scale = base.location + changes[:, :3], base.log_scale + changes[:, 3:]
        expected = torch.distributions.Normal(mean, temperature * log_scale.exp()).log_prob(z).sum(1)
        assert torch.allclose(base.log_prob(z, temperature, context), expected)

    def test_noise(self) -> None:
        base = perturbed(DiagonalNormal(2).double())
        drawn = base.sample(5, generator=generator())
        assert torch.equal(base.from_noise(torch.randn(5, 2, dtype=torch.float64, generator=generator())), drawn)
        mean, scale = base.as_normal()
        assert torch.equal(mean, base.location)
        assert torch.equal(scale, base.log_scale.exp())
        conditional = DiagonalNormal(2, context_features=1)
        assert conditional.noise is None
        assert conditional.as_normal() is None

    def test_a_flow_of_one_conditional_normal_learns_a_regression(self) -> None:
        context = torch.rand(4_000, 1, generator=generator()) * 2 - 1
        x = torch.cat([3 * context, -context], 1) + 0.1 * torch.randn(4_000, 2, generator=generator())
        network = nn.Linear(1, 4)
        flow = cf.Flow(DiagonalNormal(2, context_features=1, network=network), cf.transforms.Permutation([0, 1]))
        cf.training.fit(flow, (x, context), steps=600, batch_size=500, learning_rate=0.03, progress=False)
        drawn = flow.sample(2_000, torch.tensor([[0.5]]), seed=1)[:, 0]
        assert torch.allclose(drawn.mean(0), torch.tensor([1.5, -0.5]), atol=0.03)
        assert torch.allclose(drawn.std(0), torch.tensor([0.1, 0.1]), atol=0.02)

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="network of a DiagonalNormal needs context_features="):
            DiagonalNormal(2, network=nn.Linear(1, 4))
        base = DiagonalNormal(2, context_features=1, network=nn.Linear(1, 3))
        with pytest.raises(ValueError, match="must return 4 numbers for each row, got 3"):
            base.log_prob(torch.zeros(1, 2), context=torch.zeros(1, 1))
        with pytest.raises(ValueError, match="context_features=1; pass context="):
            base.log_prob(torch.zeros(1, 2))


class TestVonMises:
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_density_is_scipys(self, temperature: float) -> None:
        base = perturbed(VonMises(2).double())
        z = math.pi * (2 * torch.rand(50, 2, dtype=torch.float64) - 1)
        concentration = base.log_concentration.exp().detach().numpy() / temperature**2
        expected = scipy.stats.vonmises(concentration, base.location.detach().numpy()).logpdf(z.numpy()).sum(1)
        assert torch.allclose(base.log_prob(z, temperature), torch.from_numpy(expected), rtol=1e-12)

    @pytest.mark.parametrize("log_concentration", [-10.0, 0.0, 10.0])
    def test_it_integrates_to_one_on_its_circle(self, log_concentration: float) -> None:
        base = VonMises(1, low=-1.0, high=4.0).double()
        with torch.no_grad():
            base.location.fill_(2.5)
            base.log_concentration.fill_(log_concentration)
        z = torch.linspace(-1, 4, 10_001, dtype=torch.float64)[:, None]
        assert torch.trapezoid(base.log_prob(z).exp(), z[:, 0]).item() == pytest.approx(1, abs=1e-9)
        assert base.log_prob(torch.tensor([[-1.01], [4.01]], dtype=torch.float64)).tolist() == [-math.inf, -math.inf]

    def test_samples_follow_their_density(self) -> None:
        base = perturbed(VonMises(2, low=0.0, high=1.0).double())
        z = base.sample(20_000, generator=generator()).detach()
        assert z.min() >= 0
        assert z.max() <= 1
        grid = torch.linspace(0, 1, 20_001, dtype=torch.float64)
        for i in range(2):
            rows = torch.full((len(grid), 2), 0.3, dtype=torch.float64)
            rows[:, i] = grid
            density = base.log_prob(rows).exp().detach()
            cdf = torch.cumulative_trapezoid(density, grid) / torch.trapezoid(density, grid)
            places = torch.searchsorted(grid[1:], z[:, i].contiguous()).clamp(max=len(cdf) - 1)
            assert scipy.stats.kstest(cdf[places].numpy(), "uniform").pvalue > 1e-3

    def test_mode_and_slope_of_the_location(self) -> None:
        base = VonMises(1).double()
        with torch.no_grad():
            base.location.fill_(3.5)  # more than pi
        mode = base.sample(1, 0.0)
        assert mode.item() == pytest.approx(3.5 - 2 * math.pi)
        assert base.log_prob(mode.detach(), 0.0).item() == math.inf
        base.sample(10, generator=generator()).sum().backward()
        assert base.location.grad.item() == pytest.approx(10)

    def test_a_box_of_circles_takes_it(self) -> None:
        circle = [(0.0, 1.0)]
        flow = cf.flows.box(circle * 2, circles=[0, 1], base=VonMises(2, low=0.0, high=1.0), hidden_features=8)
        assert flow.log_prob(flow.sample(5, seed=0)).isfinite().all()
        with pytest.raises(ValueError, match="need noise on \\[0, 1\\] where the ByColumn base has it"):
            cf.flows.box(circle * 2, circles=[0, 1], base=VonMises(2))

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match=r"low must be below high, and both finite, got 1\.0 and 0\.0"):
            VonMises(1, low=1.0, high=0.0)


def three_bases() -> list[cf.distributions.Base]:
    return [perturbed(StudentT(2).double()), perturbed(DiagonalNormal(2).double()), Uniform(2).double()]


class TestSeveralBases:
    @pytest.mark.parametrize("temperature", [0.5, 1.0])
    def test_a_mixture_of_normals_is_a_normal_mixture(self, temperature: float) -> None:
        expected = perturbed(NormalMixture(2, components=3).double())
        base = BaseMixture([DiagonalNormal(2) for _ in range(3)]).double()
        with torch.no_grad():
            base.logits.copy_(expected.logits)
            for k, part in enumerate(base.bases):
                part.location.copy_(expected.means[k])
                part.log_scale.copy_(expected.log_scales[k])
        z = 2 * doubles(30, 2)
        assert torch.allclose(base.log_prob(z, temperature), expected.log_prob(z, temperature))
        assert torch.equal(base.sample(2, 0.0), expected.sample(2, 0.0))
        assert base.log_prob(base.sample(2, 0.0), 0.0).tolist() == [math.inf, math.inf]

    def test_samples_of_a_mixture_come_from_its_bases(self) -> None:
        base = perturbed(BaseMixture([VonMises(1, low=0.0, high=1.0), VonMises(1, low=5.0, high=6.0)]).double())
        z = base.sample(10_000, generator=generator())[:, 0]
        share = base.logits.softmax(0)[0].item()
        assert (z < 2).double().mean().item() == pytest.approx(share, abs=5 * math.sqrt(0.25 / 10_000))
        assert (((z >= 0) & (z <= 1)) | ((z >= 5) & (z <= 6))).all()
        assert base.sample(0).shape == (0, 1)

    def test_support(self) -> None:
        assert BaseMixture([Uniform(2), ByColumn(["unit", "unit"])]).bounds() == [(0.0, 1.0)] * 2
        assert BaseMixture([StandardNormal(2), StudentT(2)]).bounds() == [(-math.inf, math.inf)] * 2
        mixed = cf.Flow(BaseMixture([StandardNormal(1), Uniform(1)]), cf.transforms.Permutation([0]))
        support = mixed.distribution().support
        assert support.check(torch.tensor([[0.5], [7.0]])).tolist() == [True, True]

    def test_a_mixture_passes_the_context_to_the_bases_that_take_it(self) -> None:
        parts = [perturbed(DiagonalNormal(2, context_features=3)), StandardNormal(2)]
        base = BaseMixture(parts)
        z, context = torch.randn(7, 2), torch.randn(7, 3)
        expected = torch.stack([parts[0].log_prob(z, 1.0, context), parts[1].log_prob(z)]).logsumexp(0) - math.log(2)
        assert torch.allclose(base.log_prob(z, 1.0, context), expected)
        assert base.sample(7, context=context).shape == (7, 2)
        assert base.sample(7, 0.0, context=context).shape == (7, 2)

    def test_the_class_chooses_the_base(self) -> None:
        bases = three_bases()
        base = ByClass(bases)
        z, classes = doubles(6, 2).abs() / 3, torch.tensor([0, 2, 1, 1, 2, 0])
        found = base.log_prob(z, 1.0, classes[:, None].double())
        expected = [bases[k].log_prob(z[i : i + 1]).item() for i, k in enumerate(classes.tolist())]
        assert found.tolist() == pytest.approx(expected)
        drawn = base.sample(3_000, 1.0, generator(), torch.tensor([0.0, 1.0, 2.0]).repeat(1_000)[:, None])
        means = drawn.view(1_000, 3, 2).mean(0)
        assert torch.allclose(means[1], bases[1].location, atol=5 * bases[1].log_scale.exp().max().item() / 30)
        assert ((drawn[2::3] >= 0) & (drawn[2::3] <= 1)).all()

    def test_unknown_classes(self) -> None:
        base = ByClass([StandardNormal(1), StandardNormal(1)])
        classes = torch.tensor([[0.0], [2.0], [-1.0], [0.5], [math.nan]])
        assert base.log_prob(torch.zeros(5, 1), 1.0, classes).isnan().tolist() == [False, True, True, True, True]
        with pytest.raises(ValueError, match="a class must be a whole number from 0 to 1"):
            base.sample(5, context=classes)

    def test_a_flow_by_class_is_fitted_and_saved(self, tmp_path) -> None:
        classes = torch.randint(2, (2_000, 1), generator=generator()).float()
        x = 6 * classes - 3 + torch.randn(2_000, 2, generator=generator())
        flow = cf.Flow(ByClass([DiagonalNormal(2), DiagonalNormal(2)]), cf.transforms.LULinear(2))
        result = cf.training.fit(flow, (x, classes), steps=300, batch_size=500, learning_rate=0.05, progress=False)
        assert result.validation_loss == pytest.approx(2 * 1.4189, abs=0.1)  # of two standard normals
        flow.save(tmp_path)
        again = cf.load(tmp_path)
        assert torch.equal(again.log_prob(x, classes), flow.log_prob(x, classes))
        assert torch.equal(again.sample(1, classes, seed=2), flow.sample(1, classes, seed=2))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: BaseMixture([]), "BaseMixture needs at least one base"),
            (lambda: ByClass([Uniform(1), Uniform(2)]), r"the same number of features, got \[1, 2\]"),
            (lambda: ByClass([DiagonalNormal(1, context_features=1)]), "the bases of ByClass take no context"),
            (
                lambda: BaseMixture([DiagonalNormal(1, context_features=c) for c in (1, 2)]),
                r"the same context_features, got \[1, 2\]",
            ),
            (lambda: ByClass([Uniform(1)]).log_prob(torch.zeros(1, 1)), "ByClass needs context"),
        ],
    )
    def test_refusals(self, make, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize(
    "base",
    [
        StudentT(2, degrees=3.0),
        VonMises(2, low=0.0, high=2.0),
        DiagonalNormal(2, context_features=2),
        BaseMixture([StudentT(2, context_features=2), BaseMixture([StandardNormal(2)])]),
    ],
    ids=lambda base: type(base).__name__,
)
def test_saved_and_loaded(base, tmp_path) -> None:
    flow = cf.Flow(perturbed(base), cf.transforms.LULinear(2))
    context = torch.randn(4, 2) if base.context_features else None
    flow.save(tmp_path)
    again = cf.load(tmp_path)
    x = torch.rand(4, 2)
    assert torch.equal(again.log_prob(x, context), flow.log_prob(x, context))
    assert torch.allclose(again.sample(1, context, seed=0), flow.sample(1, context, seed=0), atol=1e-5)
