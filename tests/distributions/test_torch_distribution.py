"""Distributions of torch as bases, compared with themselves, and their descriptions, which may come from a file."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import distributions as d

import cubicflow as cf
from cubicflow.distributions import TorchDistribution

TWO = torch.tensor([2.0, 0.5])
COVARIANCE = torch.tensor([[2.0, 0.3], [0.3, 1.0]])
CASES = {
    "normal": d.Normal(TWO, TWO),
    "gamma": d.Gamma(TWO, TWO),
    "chi2": d.Chi2(TWO),
    "uniform": d.Uniform(torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 5.0])),
    "log normal": d.LogNormal(TWO, TWO),
    "pareto": d.Pareto(TWO, TWO),
    "half cauchy": d.HalfCauchy(TWO),
    "fisher": d.FisherSnedecor(TWO, 2 * TWO),
    "continuous bernoulli": d.ContinuousBernoulli(logits=TWO),
    "covariance": d.MultivariateNormal(TWO, COVARIANCE),
    "precision": d.MultivariateNormal(TWO, precision_matrix=COVARIANCE),
    "low rank": d.LowRankMultivariateNormal(TWO, torch.ones(2, 1), TWO),
    "independent": d.Independent(d.Laplace(TWO, TWO), 1),
    "mixture": d.MixtureSameFamily(
        d.Categorical(logits=torch.tensor([0.1, 1.0, -2.0])), d.Independent(d.Normal(torch.randn(3, 2), 1.0), 1)
    ),
}


@pytest.mark.parametrize("law", CASES.values(), ids=CASES)
class TestEveryDistribution:
    def test_density(self, law: d.Distribution) -> None:
        base, z = TorchDistribution(law), law.sample((50,))
        expected = law.log_prob(z)
        assert torch.allclose(base.log_prob(z), expected.sum(-1) if law.batch_shape else expected, atol=1e-5)

    def test_samples_are_those_of_torch_with_the_same_generator(self, law: d.Distribution) -> None:
        torch.manual_seed(7)
        expected, after = law.sample((20,)), torch.rand(1)
        torch.manual_seed(5)
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(7)
        assert torch.allclose(TorchDistribution(law).sample(20, generator=generator), expected, rtol=1e-4)
        assert torch.equal(torch.rand(1, generator=generator), after)
        assert torch.equal(torch.get_rng_state(), before)

    def test_saved_and_loaded(self, law: d.Distribution, tmp_path) -> None:
        flow = cf.Flow(TorchDistribution(law), cf.transforms.LULinear(2)).double()
        flow.save(tmp_path)
        again = cf.load(tmp_path)
        x = flow.sample(10, seed=0)
        assert torch.equal(again.log_prob(x), flow.log_prob(x))
        assert torch.equal(again.sample(10, seed=0), x)


def test_outside_the_support_there_is_no_density_and_no_bad_gradient() -> None:
    base = TorchDistribution(CASES["uniform"])
    z = torch.tensor([[0.0, 3.0], [1.5, 3.0], [0.0, 1.0], [math.nan, 3.0]], requires_grad=True)
    found = base.log_prob(z)
    assert found[:3].tolist() == pytest.approx([-math.log(6), -math.inf, -math.inf])
    assert found[3].isnan()
    gamma = TorchDistribution(CASES["gamma"])
    z = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], requires_grad=True)
    gamma.log_prob(z)[0].backward()
    assert z.grad.isfinite().all()
    assert base.bounds() == [(-1.0, 1.0), (2.0, 5.0)]
    flow = cf.Flow(base, cf.transforms.Permutation([1, 0]))
    assert flow.distribution().support.check(torch.tensor([[3.0, 0.0], [0.0, 3.0]])).tolist() == [True, False]


def test_one_number() -> None:
    base = TorchDistribution(d.Exponential(torch.tensor(2.0)))
    assert base.features == 1
    assert base.log_prob(torch.tensor([[1.0]])).item() == pytest.approx(math.log(2) - 2)
    assert base.sample(3).shape == (3, 1)


def test_samples_are_differentiable_where_torchs_are() -> None:
    flow = cf.Flow(TorchDistribution(CASES["gamma"]), cf.transforms.LULinear(2))
    flow.sample_and_log_prob(10)[0].sum().backward()
    assert flow.transform.bias.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d.Poisson(TWO), "a continuous distribution, and Poisson is discrete"),
        (lambda: d.Normal(COVARIANCE, 1.0), r"draws of this Normal have shape \(2, 2\)"),
        (lambda: d.Dirichlet(TWO), "a density on a box, and the support of Dirichlet is"),
        (
            lambda: d.TransformedDistribution(d.Normal(TWO, 1.0), [d.ExpTransform()]),
            "its argument 'base_distribution' is not a tensor",
        ),
        (lambda: type("Own", (d.Normal,), {})(TWO, 1.0), "is not a class of torch.distributions; write a base"),
        (lambda: ["Normal", ["loc", [0.0]], ["scale", [-1.0]]], "parameter scale"),
        (lambda: ["Normal", ["loc", [0.0]], ["scale", [math.nan]]], "parameter scale"),
        (lambda: ["Normal", ["loc", [0.0]], ["scale", "one"]], "could not convert string to float"),
        (lambda: ["Normal", ["loc", [0.0]], ["scale", [[1.0], [1.0, 2.0]]]], "inhomogeneous"),
        (lambda: ["Normal", ["validate_args", [0.0]]], "Normal has no argument 'validate_args'"),
        (lambda: ["LKJCholesky", ["dim", 10**12], ["concentration", 1.0]], "LKJCholesky has no argument 'dim'"),
        (lambda: ["kl_divergence"], "'kl_divergence' is not a class of torch.distributions"),
        (lambda: ["Transform"], "'Transform' is not a class of torch.distributions"),
        (lambda: ["__class__"], "is not a class of torch.distributions"),
        (lambda: [["Normal"]], "is not a class of torch.distributions"),
        (list, "None is not a class of torch.distributions"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TorchDistribution(make())


def test_a_file_with_a_bad_description_is_refused(tmp_path) -> None:
    cf.Flow(TorchDistribution(CASES["gamma"]), cf.transforms.LULinear(2)).save(tmp_path)
    path = tmp_path / "config.json"
    good = json.loads(path.read_text())
    for bad in ("Gamma", 3, None, {"type": "Uniform"}, ["Gamma"], ["Gamma", 3], ["Gamma", ["rate", [[[]]]]]):
        good["flow"]["base"]["distribution"] = bad
        path.write_text(json.dumps(good))
        with pytest.raises(cf.flows.FlowFileError):
            cf.load(tmp_path)
