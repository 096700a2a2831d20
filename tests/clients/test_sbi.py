"""cubicflow's estimators inside the real sbi: sbi's contract, sbi's trainers, and densities against quadrature."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
import torch
from sbi.inference import NLE, NPE
from sbi.utils import BoxUniform, MultipleIndependent
from torch import Tensor, nn
from torch.distributions import Exponential, Uniform

from cubicflow.clients.sbi import likelihood, posterior

# sbi's own code emits these warnings, about few epochs and its pickles.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
SMALL: dict[str, Any] = {"num_layers": 2, "hidden_features": 16, "num_bins": 6}
NOISE = 0.3


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def box() -> BoxUniform:
    return BoxUniform(torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 3.0]))


def simulated(prior: Any, count: int = 200) -> tuple[Tensor, Tensor]:
    theta = prior.sample((count,))
    return theta, theta + NOISE * torch.randn_like(theta)


def trainer(kind: Any, prior: Any, builder: Any) -> Any:
    return kind(prior, density_estimator=builder, show_progress_bars=False)


def perturbed(estimator: Any) -> Any:
    with torch.no_grad():
        for parameter in estimator.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return estimator.eval()


@torch.no_grad()
def test_the_density_integrates_to_one_over_the_box_and_is_zero_beyond() -> None:
    prior = box()
    estimator = perturbed(posterior(prior=prior, **SMALL)(*simulated(prior)))
    x = torch.tensor([[0.9, 2.8]])  # near a corner: a flow on all of space would leak out of the box
    middles = (torch.arange(400) + 0.5) / 400
    grid = torch.cartesian_prod(2 * middles - 1, 3 * middles)  # (160000, 2)
    log_prob = estimator.log_prob(grid[:, None], x)  # (160000, 1)
    assert log_prob.shape == (160_000, 1)
    assert math.isclose(float(log_prob.double().exp().mean()) * 6, 1, rel_tol=2e-3)
    beyond = torch.tensor([[1.01, 1.0], [0.0, -0.01], [5.0, 5.0]])
    assert (estimator.log_prob(beyond[:, None], x) == -math.inf).all()
    samples = estimator.sample((20_000,), x)[:, 0]
    assert prior.support.check(samples).all()
    assert prior.log_prob(samples).isfinite().all()


def test_shapes_are_those_of_sbis_contract() -> None:
    theta, x = simulated(box(), 50)
    estimator = perturbed(posterior(prior=box(), **SMALL)(theta, x))
    one_by_one = torch.stack([estimator.log_prob(t[None, None], c[None])[0, 0] for t, c in zip(theta, x, strict=True)])
    torch.testing.assert_close(estimator.log_prob(theta, x), one_by_one[None], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(estimator.loss(theta, x), -one_by_one, atol=1e-4, rtol=1e-4)
    several = theta[:6].reshape(3, 2, 2)  # three samples for each of two conditions
    assert estimator.log_prob(several, x[:2]).shape == (3, 2)
    assert estimator.log_prob(several, x[:1]).shape == (3, 2)
    samples, log_prob = estimator.sample_and_log_prob((4, 3), x[:2])
    assert samples.shape == (4, 3, 2, 2)
    assert log_prob.shape == (4, 3, 2)
    again = estimator.log_prob(samples.reshape(12, 2, 2), x[:2]).reshape(4, 3, 2)
    torch.testing.assert_close(again, log_prob, atol=1e-3, rtol=1e-3)
    assert estimator.sample((7,), x[:2]).shape == (7, 2, 2)


def test_both_training_loops_learn_a_known_posterior() -> None:
    """With x = theta + noise and a uniform theta, the posterior is a normal truncated to the box."""
    prior = box()
    theta, x = simulated(prior, 1_500)
    held, given = simulated(prior, 2_000)
    ends = torch.stack([prior.low, prior.high])
    cuts = torch.special.ndtr((ends[:, None] - given) / NOISE)  # (2, N, 2)
    normal = torch.distributions.Normal(given, NOISE).log_prob(held)
    truth = float((normal - (cuts[1] - cuts[0]).log()).sum(-1).mean())
    builder = posterior(prior=prior, hidden_features=16, num_layers=2)
    ours = builder.fit(theta, x, steps=250, progress=False)
    theirs = trainer(NPE, prior, builder).append_simulations(theta, x).train(max_num_epochs=25, learning_rate=2e-3)
    for estimator in (ours, theirs):
        with torch.no_grad():
            found = float(estimator.log_prob(held, given).mean())
        assert truth - 0.2 < found < truth + 0.05


def test_an_sbi_posterior_can_be_refined_in_a_second_round() -> None:
    prior = box()
    inference = trainer(NPE, prior, posterior(prior=prior, **SMALL))
    inference.append_simulations(*simulated(prior)).train(max_num_epochs=1)
    first = inference.build_posterior().set_default_x(torch.tensor([[0.0, 1.0]]))
    theta, x = simulated(first, 60)
    inference.append_simulations(theta, x, proposal=first).train(max_num_epochs=1, num_atoms=5)
    second = inference.build_posterior().set_default_x(torch.tensor([[0.0, 1.0]]))
    samples = second.sample((50,), show_progress_bars=False)
    # sbi corrects for the share of samples outside the prior. The share is 0 here.
    torch.testing.assert_close(
        second.log_prob(samples), second.log_prob(samples, norm_posterior=False), atol=1e-5, rtol=1e-5
    )
    assert float(second.leakage_correction(torch.tensor([[0.0, 1.0]]), show_progress_bars=False)) == 1


def test_an_estimator_trained_by_cubicflow_makes_an_sbi_posterior() -> None:
    prior = box()
    theta, x = simulated(prior)
    estimator = posterior(prior=prior, **SMALL).fit(theta, x, steps=5, progress=False)
    found = NPE(prior, show_progress_bars=False).build_posterior(estimator)
    samples = found.sample((10,), x=x[:1], show_progress_bars=False)
    assert samples.shape == (10, 2)
    loaded = pickle.loads(pickle.dumps(found))  # sbi's users save posteriors with pickle
    torch.testing.assert_close(loaded.log_prob(samples, x=x[:1]), found.log_prob(samples, x=x[:1]))


def test_a_likelihood_in_two_rounds() -> None:
    prior = box()
    inference = trainer(NLE, prior, likelihood(**SMALL))
    for _ in range(2):
        theta, x = simulated(prior, 100)
        estimator = inference.append_simulations(theta, x).train(max_num_epochs=1)
    assert estimator.input_shape == estimator.condition_shape == (2,)
    ours = likelihood(**SMALL).fit(*inference.get_simulations()[:2], steps=5, progress=False)
    for likely in (estimator, ours):  # sbi's MCMC evaluates this potential
        potential = inference.build_posterior(likely).potential(theta[:5], x=x[:1])
        wanted = likely.log_prob(x[:1, None].expand(1, 5, 2), theta[:5])[0] + prior.log_prob(theta[:5])
        torch.testing.assert_close(potential, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("ours", [True, False])
def test_an_embedding_net_is_trained_with_the_flow(ours: bool) -> None:
    prior = box()
    theta = prior.sample((80,))
    images = theta[:, :, None] + torch.randn(80, 2, 5)  # (80, 2, 5)
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 3))
    builder = posterior(prior=prior, embedding_net=net, z_score_x="structured", **SMALL)
    before = net[1].weight.detach().clone()
    if ours:
        estimator = builder.fit(theta, images, steps=20, progress=False)
    else:
        estimator = trainer(NPE, prior, builder).append_simulations(theta, images).train(max_num_epochs=1)
    assert torch.equal(net[1].weight, before)  # the builder's network is unchanged
    assert not torch.equal(estimator.embedding_net.net[1].weight, before)
    assert estimator.condition_shape == (2, 5)
    assert estimator.net.embedded_shape == (3,)
    assert estimator.sample((4,), images[:2]).shape == (4, 2, 2)


def test_parameters_with_one_bound_stay_on_their_side() -> None:
    one = torch.ones(1)
    prior = MultipleIndependent([Exponential(one), Uniform(-one, one)], validate_args=False)
    estimator = perturbed(posterior(prior=prior, **SMALL)(*simulated(prior)))
    samples = estimator.sample((1000,), torch.zeros(1, 2))[:, 0]
    assert prior.support.check(samples).all()
    assert samples[:, 0].max() > 1


@torch.no_grad()
def test_a_single_parameter_works() -> None:
    prior = BoxUniform(torch.zeros(1), torch.ones(1))
    estimator = perturbed(posterior(prior=prior, **SMALL)(*simulated(prior)))
    middles = (torch.arange(4_000) + 0.5) / 4_000
    log_prob = estimator.log_prob(middles[:, None, None], torch.tensor([[0.3]]))
    assert math.isclose(float(log_prob.double().exp().mean()), 1, rel_tol=1e-3)


def test_standardising_sees_constant_columns_and_scales() -> None:
    theta = torch.randn(100, 2)
    x = torch.stack([1e6 + 1e3 * theta[:, 0], torch.full((100,), 7.0), 1e-8 * theta[:, 1]], -1)
    estimator = posterior(**SMALL)(theta, x)
    rows = estimator.embedding_net.standardise(x)
    torch.testing.assert_close(rows.std(0), torch.tensor([1.0, 0.0, 1.0]), atol=1e-2, rtol=1e-2)
    assert estimator.log_prob(theta, x).isfinite().all()
    assert torch.equal(posterior(z_score_x="none", **SMALL)(theta, x).embedding_net.standardise(x), x)


def test_failed_simulations_follow_sbis_convention() -> None:
    prior = box()
    theta, x = simulated(prior, 100)
    x[:10, 0] = math.nan
    builder = posterior(prior=prior, **SMALL)
    trainer(NPE, prior, builder).append_simulations(theta, x).train(max_num_epochs=1)  # sbi drops failed simulations
    with pytest.warns(UserWarning, match="10 of 100 simulations have NaN or inf in x; they are left out of training"):
        builder.fit(theta, x, steps=2, progress=False)
    with pytest.raises(ValueError, match="10 of 100 simulations have NaN or inf in x; leaving them out would bias"):
        likelihood(**SMALL).fit(theta, x)
    with pytest.raises(ValueError, match="no simulation is left for training"):
        builder.fit(theta, torch.full_like(x, math.nan))
    with pytest.raises(ValueError, match="10 of 100 rows of x have NaN or inf; leave these simulations out"):
        builder(theta, x)


def test_conditions_of_another_shape_are_refused_in_one_line() -> None:
    estimator = posterior(**SMALL)(*simulated(box(), 20))
    wanted = r"condition has shape \(1, 3\), and this estimator was built for \(2,\); give condition of shape \(batch"
    with pytest.raises(ValueError, match=wanted):
        estimator.sample((5,), torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"condition has shape \(2,\)"):
        estimator.log_prob(torch.zeros(1, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"input has shape \(4, 5\)"):
        estimator.log_prob(torch.zeros(4, 5), torch.zeros(4, 2))


def test_an_embedding_net_for_other_conditions_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"embedding_net does not accept .* give a network for conditions of shape \(2,"
    ):
        posterior(embedding_net=nn.Linear(7, 3), **SMALL)(*simulated(box()))


def test_bad_arguments_are_refused_in_one_line() -> None:
    theta, x = simulated(box(), 20)
    normal = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    with pytest.raises(ValueError, match=r"the prior lacks a bound in columns \[0, 1\]; give a prior on a box"):
        posterior(prior=normal, bounded=True)(theta, x)
    with pytest.raises(ValueError, match="bounded=True needs the prior's bounds; give prior="):
        posterior(bounded=True)
    with pytest.raises(ValueError, match="20 of 20 rows of theta lie outside the prior's support"):
        posterior(prior=box())(theta + 10, x)
    assert posterior(prior=box(), bounded=False, **SMALL)(theta + 10, x).log_prob(theta, x).isfinite().all()
    with pytest.raises(ValueError, match="the same number of rows, 2 or more, got 20 and 19"):
        posterior()(theta, x[1:])
    with pytest.raises(ValueError, match=r"x must have shape \(N, D\) to have a density, got \(20, 2, 1\); flatten it"):
        likelihood()(theta, x[..., None])
    with pytest.raises(ValueError, match="z_score must be one of 'independent', 'structured', 'none', got 'both'"):
        posterior(z_score_x="both")
    with pytest.raises(TypeError, match="hidden_featurs"):
        posterior(hidden_featurs=3)
