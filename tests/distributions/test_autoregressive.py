"""The autoregressive base and its networks, against torch's mixtures, quadrature and SciPy."""

from __future__ import annotations

from functools import partial

import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal

import cubicflow as cf
from cubicflow.distributions import AutoregressiveMixture
from cubicflow.nets import CausalGRU, CausalLinear, MaskedResidualMLP

from ..helpers.perturbed import perturbed

NETWORKS = {
    "RAM": partial(CausalGRU, hidden_features=8),
    "LAM": partial(CausalLinear, hidden_features=8, num_blocks=2),
    "MADE": partial(MaskedResidualMLP, hidden_features=8, num_blocks=1),
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=list(NETWORKS))


def made(network, features: int = 2, context_features: int = 0) -> AutoregressiveMixture:
    torch.manual_seed(0)
    base = AutoregressiveMixture(features, 3, network=network, context_features=context_features)
    return perturbed(base, by=0.4).double()


def mixture(base: AutoregressiveMixture, z: Tensor, i: int, context: Tensor | None = None) -> MixtureSameFamily:
    """Return the law of feature i given earlier features, by torch."""
    outputs = base.network(z) if context is None else base.network(z, context)
    logits, means, log_scales = outputs.view(len(z), base.features, 3, 3)[:, i].unbind(1)
    means = means + torch.tensor([-2 / 3, 0, 2 / 3])
    return MixtureSameFamily(Categorical(logits=logits), Normal(means, log_scales.exp()))


@every_network
@pytest.mark.parametrize("context_features", [0, 2])
def test_density_is_the_product_of_mixtures(network, context_features: int) -> None:
    base, z = made(network, 4, context_features), 2 * torch.randn(20, 4).double()
    context = torch.randn(20, 2).double() if context_features else None
    expected = sum(mixture(base, z, i, context).log_prob(z[:, i]) for i in range(4))
    assert torch.allclose(base.log_prob(z, 1.0, context), expected)


@every_network
def test_it_integrates_to_one(network) -> None:
    base = made(network)
    line = torch.linspace(-30, 30, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        density = base.log_prob(grid).exp().view(601, 601)
    assert torch.trapezoid(torch.trapezoid(density, line), line).item() == pytest.approx(1, abs=1e-3)


@every_network
def test_samples_follow_their_density(network) -> None:
    base = made(network, 3)
    z = base.sample(5_000, generator=torch.Generator().manual_seed(0)).detach()
    for i in range(3):
        shares = mixture(base, z, i).cdf(z[:, i]).detach()
        assert scipy.stats.kstest(shares.numpy(), "uniform").pvalue > 1e-3


@every_network
def test_outputs_depend_on_earlier_features_alone(network) -> None:
    net = perturbed(network(4, 8, context_features=0), by=0.5)
    jacobian = torch.autograd.functional.jacobian(net, torch.randn(1, 4))[0, :, 0].view(4, 2, 4).abs().sum(1)
    assert (jacobian.triu() == 0).all()
    assert (jacobian[1:, 0] > 0).all()


def test_the_recurrent_network_decodes_what_it_computes_in_one_pass() -> None:
    net = perturbed(CausalGRU(3, 6, hidden_features=8, context_features=2))
    x, context = torch.randn(5, 3), torch.randn(5, 2)
    next_outputs = net.start_decoding(5, context)
    steps = [next_outputs(x[:, i - 1] if i else None) for i in range(3)]
    assert torch.allclose(torch.cat(steps, dim=1), net(x, context), atol=1e-6)


def test_a_fit_finds_a_curve(tmp_path) -> None:
    """The second column is the square of the first, with noise: no product of marginal laws has this density."""
    first = torch.randn(3_000, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat([first, first.square() + 0.2 * torch.randn(3_000, 1)], dim=1)
    base = AutoregressiveMixture(2, 4, network=partial(CausalLinear, hidden_features=16))
    flow = cf.Flow(base, cf.transforms.Permutation([0, 1]))
    result = cf.training.fit(flow, x, steps=500, batch_size=300, learning_rate=0.02, progress=False)
    entropy = Normal(0.0, 1.0).entropy() + Normal(0.0, 0.2).entropy()
    assert result.validation_loss < float(entropy) + 0.25
    flow.save(tmp_path)
    again = cf.load(tmp_path)
    assert torch.equal(again.log_prob(x), flow.log_prob(x))
    assert torch.equal(again.sample(4, seed=0), flow.sample(4, seed=0))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="needs a network with out_features=18, got one with 12"):
        AutoregressiveMixture(2, 3, network=CausalGRU(2, 12))
    with pytest.raises(ValueError, match=r"supports only temperature 1, got 0\.5"):
        AutoregressiveMixture(2).sample(3, 0.5)
    with pytest.raises(ValueError, match="out_features must be a multiple of in_features"):
        CausalLinear(2, 3)
