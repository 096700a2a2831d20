"""Parts that the package does not know: a linear layer, a layer without an inverse, and a base with a support and a
context of its own. Each follows the contract, and every other part works with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.made_up_layer import RankOne, linear_flow, made
from torch import Tensor, nn
from torch.distributions import Exponential, constraints

import cubicflow as cf
from cubicflow.distributions import Base
from cubicflow.nets.rng import current_generator
from cubicflow.transforms import Compose, Conv1x1, Elementwise, Inverse, LULinear, NotInvertibleError, Transform


@cf.register
class Cubed(Transform):
    """x + x^3, whose inverse nobody has written."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return x + x**3, torch.log1p(3 * x**2).sum(1)

    def config(self) -> dict[str, Any]:
        return {}


@cf.register
class Decay(Base):
    """Exponential noise whose rates are exp(context)."""

    support = constraints.nonnegative

    def __init__(self, features: int, context_features: int) -> None:
        super().__init__(features)
        self.context_features = context_features

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        assert context is not None
        log_rate = context.sum(-1, keepdim=True)
        log_prob = (log_rate - log_rate.exp() * z).sum(-1)
        return torch.where((z < 0).any(-1), -torch.inf, log_prob)

    def sample(self, n: int, temperature: float = 1.0, generator=None, context: Tensor | None = None) -> Tensor:
        assert context is not None
        assert len(context) == n
        u = torch.rand(n, self.features, generator=generator, dtype=self.anchor.dtype)
        return -torch.log1p(-u) * torch.exp(-context.sum(-1, keepdim=True))

    def config(self) -> dict[str, Any]:
        return {"features": self.features, "context_features": self.context_features}


class TestLinearLayer:
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def test_it_has_the_log_determinant_of_autograd_and_an_inverse_in_every_container(self) -> None:
        report = linear_flow().check(self.x)
        assert max(report.round_trip, report.log_dets_cancel, report.jacobian_error) < 1e-12

    def test_compose_makes_the_matrices_of_a_class_together(self) -> None:
        made.clear()
        linear_flow().log_prob(self.x)
        assert made[0] == 2

    def test_it_solves_with_gradients_and_multiplies_without(self) -> None:
        flow = linear_flow()
        z = torch.randn(50, 3, dtype=torch.float64)
        solved, log_det = flow.from_noise(z)
        with torch.no_grad():
            multiplied, log_det_too = flow.from_noise(z)
        assert torch.allclose(solved, multiplied, atol=1e-13)
        assert torch.allclose(log_det, log_det_too, atol=1e-13)

    def test_it_is_a_1x1_convolution(self) -> None:
        layer = Conv1x1(3, linear=RankOne(3)).double()
        images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
        z, log_det = layer(images)
        assert torch.allclose(layer.inverse(z)[0], images)
        assert torch.allclose(log_det, 16 * layer.linear.log_scales().sum())
        with pytest.raises(ValueError, match="linear has 3 features, and this layer has 2"):
            Conv1x1(2, linear=RankOne(3))

    def test_it_is_saved(self, tmp_path) -> None:
        flow = linear_flow()
        flow.save(tmp_path)
        assert torch.equal(cf.load(tmp_path).log_prob(self.x), flow.log_prob(self.x))

    def test_it_is_trained(self) -> None:
        flow = linear_flow()
        before = flow.log_prob(self.x).mean()
        cf.training.fit(flow, self.x, steps=30, validation_fraction=0.0, progress=False, device="cpu")
        assert flow.log_prob(self.x).mean() > before


class TestWithoutAnInverse:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    flow = cf.Flow(cf.distributions.StandardNormal(2), Compose([LULinear(2, seed=0), Cubed()]))

    def test_it_has_densities(self) -> None:
        report = self.flow.check(self.x)
        assert report.jacobian_error < 1e-5
        assert report.round_trip is None
        assert "not measured" in str(report)

    @pytest.mark.parametrize(
        "call",
        [
            lambda flow: flow.sample(3),
            lambda flow: flow.sample_and_log_prob(3),
            lambda flow: flow.distribution().sample(),
            lambda flow: cf.Mixture([flow]).sample(3),
        ],
    )
    def test_samples_are_refused_in_one_sentence(self, call) -> None:
        with pytest.raises(
            NotInvertibleError, match=r"Cubed has no inverse\. A flow with this layer has log densities but"
        ):
            call(self.flow)

    def test_turned_round_it_has_samples_with_their_densities(self) -> None:
        flow = cf.Flow(cf.distributions.StandardNormal(2), Inverse(Cubed()))
        x, log_prob = flow.sample_and_log_prob(4, seed=0)
        z = flow.base.sample(4, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(x, z + z**3)
        assert torch.allclose(log_prob, flow.base.log_prob(z) - torch.log1p(3 * z**2).sum(1))
        with pytest.raises(NotInvertibleError):
            flow.log_prob(x)

    def test_a_fit_by_densities_works_and_one_by_samples_stops_before_its_first_step(self, tmp_path) -> None:
        cf.training.fit(self.flow, self.x, steps=3, validation_fraction=0.0, progress=False, device="cpu")
        loss = cf.training.reverse_kl(lambda x: -x.square().sum(-1))
        with pytest.raises(NotInvertibleError):
            cf.training.fit(self.flow, None, steps=3, loss=loss, progress=False, device="cpu")


class TestBase:
    flow = cf.Flow(Decay(2, 3), cf.transforms.Standardise([1.0, 0.0], [2.0, 3.0])).double()
    context = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)

    def test_densities_are_those_of_torch(self) -> None:
        x = torch.rand(4, 2, dtype=torch.float64) + 1
        mean, std = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 3.0])
        rate = self.context.sum(1, keepdim=True).exp()
        expected = (Exponential(rate).log_prob((x - mean) / std) - std.log()).sum(1)
        assert torch.allclose(self.flow.log_prob(x, self.context), expected)
        assert torch.allclose(self.flow.distribution(self.context).log_prob(x), expected)

    def test_samples_follow_the_context(self) -> None:
        x, log_prob = self.flow.sample_and_log_prob(20_000, self.context, seed=0)
        assert torch.allclose(log_prob, self.flow.log_prob(x, self.context))
        means = torch.tensor([1.0, 0.0]) + torch.tensor([2.0, 3.0]) / self.context.sum(1, keepdim=True).exp()
        errors = torch.tensor([2.0, 3.0]) / self.context.sum(1, keepdim=True).exp() / 20_000**0.5
        assert ((x.mean(0) - means).abs() < 5 * errors).all()
        drawn, log_prob = self.flow.distribution(self.context).rsample_and_log_prob((5,))
        assert drawn.shape == (5, 4, 2)
        assert torch.allclose(log_prob, self.flow.log_prob(drawn, self.context))
        mixed = cf.Mixture([self.flow, self.flow])
        assert mixed.sample(7, self.context, seed=0).shape == (7, 4, 2)

    def test_the_support_is_the_bases(self) -> None:
        support = self.flow.distribution(self.context).support
        assert support.check(torch.tensor([[1.5, 0.1], [0.9, 0.1]], dtype=torch.float64)).tolist() == [True, False]

    def test_a_context_is_asked_for_and_checked(self) -> None:
        with pytest.raises(ValueError, match=r"this flow is conditional: pass context= of shape \(\.\.\., 3\)"):
            self.flow.log_prob(torch.ones(4, 2).double())
        spline = cf.transforms.Coupling([True, False], cf.nets.ResidualMLP, context_features=2)
        with pytest.raises(ValueError, match="the base takes 3 context features, and the transform takes 2"):
            cf.Flow(Decay(2, 3), spline)

    def test_it_is_saved_and_trained(self, tmp_path) -> None:
        self.flow.save(tmp_path)
        x = torch.rand(4, 2, dtype=torch.float64) + 1
        assert torch.equal(cf.load(tmp_path).log_prob(x, self.context), self.flow.log_prob(x, self.context))
        torch.manual_seed(0)
        context = torch.randn(200, 3)
        rows = (Exponential(context.sum(1, keepdim=True).exp()).sample((1,))[0] + 1).expand(-1, 1)
        flow = cf.Flow(Decay(1, 3), cf.transforms.ActNorm(1))
        flow.train()
        flow.transform.initialise(torch.tensor([[0.0], [1.0]]))  # z = 2 x - 1
        result = cf.training.fit(flow, (rows, context), steps=5, progress=False, device="cpu")
        assert np.isfinite(result.validation_loss)


@cf.register
class Hutchinson(Transform):
    """One Euler step x + h(x). In training mode a random vector estimates the log-determinant."""

    exact = one_pass = False
    updated = ("calls",)

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.matrix = nn.Parameter(torch.linspace(-0.2, 0.2, features**2).reshape(features, features))
        self.calls = nn.Buffer(torch.tensor(0.0))

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        slopes = 1 - torch.tanh(x) ** 2
        jacobian = self.matrix * slopes[:, None, :]
        if self.training:
            self.calls += 1
            probe = torch.empty_like(x).normal_(generator=current_generator(x.device))
            log_det = ((jacobian @ probe[..., None])[..., 0] * probe).sum(1)
        else:
            log_det = jacobian.diagonal(dim1=1, dim2=2).sum(1)
        return x + torch.tanh(x) @ self.matrix.T, log_det

    def config(self) -> dict[str, Any]:
        return {"features": self.features}


class TestEstimatedLogDeterminant:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))

    @staticmethod
    def flow() -> cf.Flow:
        layers = [LULinear(2, seed=0), Hutchinson(2)]
        return cf.Flow(cf.distributions.StandardNormal(2), Compose([Compose(layers), Elementwise(2)]))

    def test_the_flow_and_its_mixtures_say_that_densities_are_estimates(self) -> None:
        flow, plain = self.flow(), cf.flows.tabular(2, num_layers=1, hidden_features=8)
        assert plain.exact
        assert not flow.exact
        assert cf.Mixture([plain]).exact
        assert not cf.Mixture([plain, flow]).exact
        assert str(flow.check(self.x)).splitlines()[-1].split() == ["log-dets", "estimates"]
        assert "estimates" not in str(plain.check(self.x))

    def test_a_resumed_fit_draws_the_same_probes_and_keeps_what_training_updates(self, tmp_path) -> None:
        def train(name: str, stop=None) -> cf.Flow:
            flow = self.flow()
            settings = {"steps": 6, "batch_size": 16, "validation_fraction": 0.0, "progress": False, "device": "cpu"}
            cf.training.fit(flow, self.x, run=tmp_path / name, resume=True, stop=stop, **settings)
            return flow

        whole = train("whole")
        left = iter([False, False, True])
        with pytest.raises(cf.training.TrainingInterrupted):
            train("halves", stop=lambda: next(left))
        halves = train("halves")
        assert whole.transform[0][1].calls == 7  # six steps, and the batch that initialises layers
        for name, value in whole.state_dict().items():
            assert torch.equal(halves.state_dict()[name], value), name
        assert torch.equal(cf.load(tmp_path / "halves").log_prob(self.x), whole.log_prob(self.x))


def test_layers_that_are_called_by_name_are_initialised_too() -> None:
    seen: list[tuple[float, float]] = []

    class Watching(Cubed):
        context_features = 1

        def initialise(self, x: Tensor, context: Tensor | None = None) -> None:
            seen.append((float(x.mean()), float(context.mean())))

    class Container(Transform):
        context_features = 1

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Watching(), Elementwise(1)])

        def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
            x, log_det = self.layers[0](x, context=context)
            x, more = self.layers[1](x=x)
            return x, log_det + more

        def config(self) -> dict[str, Any]:
            return {}

    flow = cf.Flow(cf.distributions.StandardNormal(1), Container())
    rows = torch.full((8, 1), 0.5), torch.full((8, 1), 2.0)
    cf.training.fit(flow, rows, steps=2, validation_fraction=0.0, progress=False, device="cpu")
    assert seen == [(0.5, 2.0)]


def test_an_initialised_start_comes_from_the_inputs_of_each_layer() -> None:
    """A fit initialises layers in the order in which they run, also in containers that do not know about it."""
    seen: list[float] = []

    class Watching(Cubed):
        def initialise(self, x: Tensor, context: Tensor | None = None) -> None:
            seen.append(float(x.mean()))

    layers = [cf.transforms.Standardise([0.0], [0.5]), Compose([Watching(), LULinear(1)])]
    flow = cf.Flow(cf.distributions.StandardNormal(1), Compose(layers))
    cf.training.fit(flow, torch.full((8, 1), 3.0), steps=2, validation_fraction=0.0, progress=False, device="cpu")
    assert seen == [6.0]
