"""Flow: densities, samples, context, temperature, the torch distribution, and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.helpers.perturbed import perturbed

import cubicflow as cf


def small(features: int = 2, **settings) -> cf.Flow:
    torch.manual_seed(0)  # weights do not depend on the tests that ran before
    return perturbed(cf.flows.tabular(features, num_layers=2, hidden_features=16, num_bins=6, **settings)).double()


def test_log_prob_is_base_plus_log_det() -> None:
    flow, x = small(3), torch.randn(10, 3, dtype=torch.float64)
    z, log_det = flow.to_noise(x)
    expected = torch.distributions.Normal(0, 1).log_prob(z).sum(-1) + log_det
    assert torch.allclose(flow.log_prob(x), expected, rtol=1e-13)
    back, log_det_back = flow.from_noise(z)
    assert torch.allclose(back, x, rtol=1e-9, atol=1e-9)
    assert torch.allclose(log_det_back, -log_det, atol=1e-9)


def test_density_integrates_to_one() -> None:
    """The trapezium rule on a grid has an error far below 1e-3 for a smooth density that vanishes at the border."""
    flow = small(2)
    axis = torch.linspace(-25, 25, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        mass = flow.log_prob(grid, batch_size=100_000).exp().sum() * (axis[1] - axis[0]) ** 2
    assert abs(mass - 1) < 1e-3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_samples_come_with_the_density_of_the_sampler(temperature: float) -> None:
    flow = small(2)
    x, log_prob = flow.sample_and_log_prob(50, temperature=temperature, seed=1)
    z, log_det = flow.to_noise(x)
    tempered = torch.distributions.Normal(0, temperature).log_prob(z).sum(-1) + log_det
    assert torch.allclose(log_prob, tempered, atol=1e-8)
    if temperature == 1:
        assert torch.allclose(log_prob, flow.log_prob(x), atol=1e-8)
    assert torch.allclose(x, flow.sample(50, temperature=temperature, seed=1), rtol=1e-12, atol=1e-12)


def test_temperature_zero_is_the_image_of_the_mode() -> None:
    flow = small(2)
    x = flow.sample(3, temperature=0.0)
    assert torch.allclose(flow.to_noise(x)[0], torch.zeros(3, 2, dtype=torch.float64), atol=1e-9)


def test_context_broadcasts_like_a_loop() -> None:
    flow = small(2, context_features=3)
    x, context = torch.randn(4, 5, 2, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    together = flow.log_prob(x, context)
    assert together.shape == (4, 5)
    for i in range(4):
        for j in range(5):
            assert torch.allclose(together[i, j], flow.log_prob(x[i, j], context[j]), rtol=1e-12)
    samples = flow.sample(7, context, seed=0)
    assert samples.shape == (7, 5, 2)
    assert flow.sample(7, context[0], seed=0).shape == (7, 2)
    assert flow.log_prob(samples, context).shape == (7, 5)
    one_row = flow.log_prob(x[0], context[:1])
    assert one_row.shape == (5,)


def test_pieces_give_the_same_results() -> None:
    flow = small(2, context_features=1)
    x, context = torch.randn(23, 2, dtype=torch.float64), torch.randn(23, 1, dtype=torch.float64)
    assert torch.allclose(flow.log_prob(x, context, batch_size=5), flow.log_prob(x, context), rtol=1e-12)
    whole, pieces = (flow.sample(3, context, seed=4, batch_size=size) for size in (None, 7))
    assert torch.allclose(whole, pieces, rtol=1e-12)
    for outputs in (flow.to_noise(x[:0], context[:0], batch_size=5), flow.from_noise(x[:0], context[:0], batch_size=5)):
        assert [tuple(output.shape) for output in outputs] == [(0, 2), (0,)]


def test_pieces_bound_the_memory() -> None:
    """Tensors inside a piece have at most the rows of a piece. Only inputs and outputs have all rows."""
    from torch.utils._python_dispatch import TorchDispatchMode

    rows, batch_size, largest = 4096, 128, 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    flow = small(2)
    with torch.no_grad(), Largest():
        flow.log_prob(torch.randn(rows, 2, dtype=torch.float64), batch_size=batch_size)
    widest = 16 * 16  # weights of a network; params of a piece have batch_size x 14 elements
    assert largest <= max(rows * 2, batch_size * 16, widest)


def test_seeds_and_generators_repeat_samples() -> None:
    flow = small(2)
    assert torch.equal(flow.sample(5, seed=1), flow.sample(5, seed=1))
    assert not torch.equal(flow.sample(5, seed=1), flow.sample(5, seed=2))
    first, second = (flow.sample(5, generator=torch.Generator().manual_seed(9)) for _ in range(2))
    assert torch.equal(first, second)


def test_counts_may_be_numpy_integers() -> None:
    flow = small(2)
    assert flow.sample(np.int64(3)).shape == (3, 2)
    assert cf.Mixture([flow]).sample(np.uint8(3)).shape == (3, 2)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_hessians_of_torch_func(backend: str) -> None:
    """Forward-over-reverse agrees with a double backward pass."""
    flow = small(3, backend=backend)
    row = torch.randn(3, dtype=torch.float64)
    expected = torch.autograd.functional.hessian(flow.log_prob, row)
    assert torch.allclose(torch.func.hessian(flow.log_prob)(row), expected, rtol=1e-9, atol=1e-9)


def test_one_dimensional_data() -> None:
    flow = small(1)
    axis = torch.linspace(-40, 40, 20001, dtype=torch.float64)
    assert abs(flow.log_prob(axis[:, None]).exp().sum() * (axis[1] - axis[0]) - 1) < 1e-5
    conditional = small(1, context_features=2)
    context = torch.randn(2, dtype=torch.float64)
    assert abs(conditional.log_prob(axis[:, None], context).exp().sum() * (axis[1] - axis[0]) - 1) < 1e-5
    log_prob = conditional.log_prob(axis[:, None], context)
    assert not torch.allclose(log_prob, conditional.log_prob(axis[:, None], context + 1))


def test_both_directions_train() -> None:
    """A few steps of forward KL (maximum likelihood) and of reverse KL to a shifted, correlated normal both reduce
    their loss, and the trained reverse flow has the target's mean."""
    target = torch.distributions.MultivariateNormal(torch.tensor([2.0, -1.0]), torch.tensor([[1.0, 0.6], [0.6, 0.5]]))
    torch.manual_seed(0)
    data = target.sample((512,))
    for direction in ("forward", "reverse"):
        flow = cf.flows.tabular(2, num_layers=2, hidden_features=16, num_bins=4)
        optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
        losses = []
        for _ in range(100):
            if direction == "forward":
                loss = -flow.log_prob(data).mean()
            else:
                x, log_prob = flow.sample_and_log_prob(256)
                loss = (log_prob - target.log_prob(x)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        best = float(-target.log_prob(data).mean()) if direction == "forward" else 0.0
        assert losses[-1] - best < 0.1 * (losses[0] - best)
        assert torch.allclose(flow.sample(4000, seed=0).mean(0), target.loc, atol=0.15)


class TestDistribution:
    def test_is_a_torch_distribution(self) -> None:
        flow = small(2, context_features=3)
        context = torch.randn(4, 3, dtype=torch.float64)
        p = flow.distribution(context)
        assert isinstance(p, torch.distributions.Distribution)
        assert (p.batch_shape, p.event_shape, p.has_rsample) == ((4,), (2,), True)
        x = p.rsample((6, 5))
        assert x.shape == (6, 5, 4, 2)
        assert x.requires_grad
        assert not p.sample((2,)).requires_grad
        assert torch.allclose(p.log_prob(x), flow.log_prob(x, context))
        wide = p.expand((3, 4))
        assert wide.batch_shape == (3, 4)
        assert wide.sample().shape == (3, 4, 2)
        assert torch.allclose(wide.log_prob(x[0, 0]), p.log_prob(x[0, 0]).expand(3, 4))

    def test_without_context(self) -> None:
        flow = small(2)
        p = flow.distribution()
        assert p.batch_shape == ()
        assert p.sample((3,)).shape == (3, 2)
        assert p.expand((5,)).log_prob(torch.zeros(2, dtype=torch.float64)).shape == (5,)
        assert p.support.check(torch.tensor([2.0, 0.5]))
        assert not cf.flows.plane(num_bins=4).distribution().support.check(torch.tensor([2.0, 0.5]))

    def test_conditional_flows_need_context(self) -> None:
        with pytest.raises(ValueError, match="this flow is conditional"):
            small(2, context_features=3).distribution()


class TestMixture:
    def test_density_is_the_weighted_sum(self) -> None:
        flows = [small(2), perturbed(small(2), seed=5)]
        mixture = cf.Mixture(flows, weights=[3, 1]).double()
        x = torch.randn(9, 2, dtype=torch.float64)
        expected = (0.75 * flows[0].log_prob(x).exp() + 0.25 * flows[1].log_prob(x).exp()).log()
        assert torch.allclose(mixture.log_prob(x), expected, rtol=1e-6)

    def test_samples_follow_the_weights(self) -> None:
        """Of two flows far apart, each has the share of samples given by its weight, within five standard errors."""
        left, right = small(1), small(1)
        with torch.no_grad():
            left.transform.transforms[0].bias.add_(50)
            right.transform.transforms[0].bias.add_(-50)
        mixture = cf.Mixture([left, right], weights=[3, 1]).double()
        x = mixture.sample(10_000, seed=0)
        near_left = (left.log_prob(x) > right.log_prob(x)).double().mean()
        assert abs(near_left - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 10_000)

    @pytest.mark.parametrize("size", [1e-46, 1e39, 1e-300, 1e300])
    def test_only_the_ratio_of_weights_matters(self, size: float) -> None:
        flows = [small(2), perturbed(small(2), seed=5)]
        x = torch.randn(9, 2, dtype=torch.float64)
        scaled, plain = cf.Mixture(flows, weights=[3 * size, size]), cf.Mixture(flows, weights=[3, 1])
        assert torch.allclose(scaled.log_prob(x), plain.log_prob(x), rtol=1e-12)

    def test_has_the_dtype_of_its_members(self, tmp_path) -> None:
        mixture = cf.Mixture([small(2), small(2)], weights=[3, 1])
        assert mixture.log_weights.dtype == torch.float64
        mixture.save(tmp_path)
        assert torch.equal(cf.load(tmp_path).log_weights, mixture.log_weights)
        assert cf.Mixture([small(2).float()]).log_weights.dtype == torch.float32

    def test_context_shapes_and_seeds(self) -> None:
        mixture = cf.Mixture([small(2, context_features=1), small(2, context_features=1, seed=2)]).double()
        context = torch.randn(4, 1, dtype=torch.float64)
        x, log_prob = mixture.sample_and_log_prob(3, context, seed=0)
        assert x.shape == (3, 4, 2)
        assert torch.equal(log_prob, mixture.log_prob(x, context))
        assert torch.equal(x, mixture.sample(3, context, seed=0))
        assert mixture.sample(0, context).shape == (0, 4, 2)

    @pytest.mark.parametrize("temperature", [0.5, 1.5])
    def test_tempered_samples_come_with_the_density_of_the_sampler(self, temperature: float) -> None:
        """Each flow is x = z + shift, so the tempered mixture is a mixture of normals."""
        flows = [cf.Flow(cf.distributions.StandardNormal(1), cf.transforms.LULinear(1)) for _ in range(2)]
        for flow, shift in zip(flows, (-1.0, 2.0), strict=True):
            torch.nn.init.constant_(flow.transform.bias, -shift)
        x, log_prob = cf.Mixture(flows, [3, 1]).double().sample_and_log_prob(500, temperature=temperature, seed=0)
        parts = torch.distributions.Normal(torch.tensor([-1.0, 2.0]).double(), temperature)
        weights = torch.distributions.Categorical(torch.tensor([0.75, 0.25]).double())
        expected = torch.distributions.MixtureSameFamily(weights, parts).log_prob(x[:, 0])
        assert torch.allclose(log_prob, expected, rtol=1e-6)

    def test_weights_are_trained_if_asked(self, tmp_path) -> None:
        flows = [small(1), small(1)]
        with torch.no_grad():
            flows[0].transform.transforms[0].bias.add_(50)
        x = flows[1].sample(64, seed=0)
        fixed, trained = cf.Mixture(flows), cf.Mixture(flows, [1, 3], trainable_weights=True)
        assert "log_weights" not in dict(fixed.named_parameters())
        assert torch.allclose(trained.log_shares().exp(), torch.tensor([0.25, 0.75]).double())
        # d/dw of the mean of log(w_0 p_0 + w_1 p_1) is that of log w_1, because p_0 is nothing here.
        (gradient,) = torch.autograd.grad(trained.log_prob(x).mean(), trained.log_weights)
        assert torch.allclose(gradient, torch.tensor([-0.25, 0.25]).double())
        trained.save(tmp_path)
        again = cf.load(tmp_path)
        assert isinstance(again.log_weights, torch.nn.Parameter)
        assert torch.equal(again.log_prob(x), trained.log_prob(x))

    def test_it_is_a_distribution_of_torch(self) -> None:
        boxes = [perturbed(cf.flows.box([(0, 2)], num_bins=4), seed=seed) for seed in range(2)]
        p = cf.Mixture(boxes).distribution()
        assert not p.has_rsample
        assert p.sample((3, 2)).shape == (3, 2, 1)
        assert p.support.check(torch.tensor([[1.0], [2.5]])).tolist() == [True, False]
        grid = torch.linspace(0.001, 1.999, 1000)[:, None]
        assert float(p.log_prob(grid).detach().exp().mean()) * 2 == pytest.approx(1, abs=1e-3)
        with pytest.raises(NotImplementedError, match="cannot be sampled differentiably"):
            p.rsample()
        wider = cf.Mixture([*boxes, cf.flows.box([(0, 3)])]).distribution()
        assert wider.support.check(torch.tensor([[1.0], [2.5], [3.5]])).tolist() == [True, True, False]
        given = cf.Mixture([small(2, context_features=1)]).distribution(torch.zeros(4, 1).double())
        assert given.sample((3,)).shape == (3, 4, 2)

    def test_refusals(self) -> None:
        mixture = cf.Mixture([small(2)])
        with pytest.raises(NotImplementedError, match="no single map to noise"):
            mixture.to_noise(torch.zeros(1, 2))
        with pytest.raises(NotImplementedError, match="cannot be sampled differentiably"):
            mixture.rsample(1)
        with pytest.raises(ValueError, match="at least one flow"):
            cf.Mixture([])
        with pytest.raises(ValueError, match=r"flow 1 has shape \(3,\)"):
            cf.Mixture([small(2), small(3)])
        with pytest.raises(ValueError, match="weights must be 1 positive numbers"):
            cf.Mixture([small(2)], weights=[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda flow: flow.log_prob(torch.zeros(4, 3)), r"x must have shape \(..., 2\), got \(4, 3\)"),
        (lambda flow: flow.log_prob(torch.zeros(())), r"x must have shape \(..., 2\), got \(\)"),
        (lambda flow: flow.log_prob(torch.zeros(4, 2), torch.zeros(4, 1)), "this flow has no context"),
        (lambda flow: flow.sample(-1), "n must be a whole number, 0 or more, got -1"),
        (lambda flow: flow.sample(2.5), r"n must be a whole number, 0 or more, got 2\.5"),
        (lambda flow: flow.sample(True), "n must be a whole number, 0 or more, got True"),
        (lambda flow: flow.sample(np.int64(-1)), "n must be a whole number, 0 or more, got"),
        (lambda flow: flow.sample(1, temperature=-1.0), "temperature must be a finite number, at least 0"),
        (lambda flow: flow.sample(1, seed=1, generator=torch.Generator()), "not both"),
        (
            lambda flow: flow.log_prob(torch.zeros(4, 2), batch_size=0),
            "batch_size must be a whole number, 1 or more, got 0",
        ),
        (lambda flow: flow.log_prob(torch.zeros(4, 2), batch_size=1.5), "batch_size must be a whole number, 1 or more"),
        (lambda _: small(2, context_features=3).log_prob(torch.zeros(4, 2)), "this flow is conditional: pass context="),
        (
            lambda _: small(2, context_features=3).log_prob(torch.zeros(4, 2), torch.zeros(4, 2)),
            r"context must have shape \(..., 3\), got \(4, 2\)",
        ),
        (
            lambda _: small(2, context_features=3).log_prob(torch.zeros(4, 2), torch.zeros(5, 3)),
            "do not broadcast: give one row of context for each row of x",
        ),
        (
            lambda _: cf.flows.plane().sample(1, temperature=0.5),
            "a Uniform base supports only temperature 1",
        ),
    ],
)
def test_errors_name_the_remedy(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(small(2).float())


class TestCheck:
    def test_a_correct_flow_passes(self, capsys: pytest.CaptureFixture[str]) -> None:
        flow = small(3, context_features=1)
        report = flow.check(torch.randn(50, 3, dtype=torch.float64), torch.randn(50, 1, dtype=torch.float64))
        assert report.rows == 50
        assert report.non_finite == 0
        assert report.round_trip < 1e-9
        assert report.log_dets_cancel < 1e-9
        assert report.jacobian_error < 1e-9
        assert "log-det against autograd, largest error" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("batch", "context_shape", "rows"),
        [((3, 4), None, 12), ((), None, 1), ((5,), (), 5), ((5,), (1,), 5), ((2, 5), (5,), 10), ((), (4,), 4)],
    )
    def test_any_batch_shape(self, batch: tuple, context_shape: tuple | None, rows: int) -> None:
        flow = small(3, context_features=0 if context_shape is None else 2)
        x = torch.randn(*batch, 3, dtype=torch.float64)
        report = flow.check(x, None if context_shape is None else torch.randn(*context_shape, 2, dtype=torch.float64))
        assert (report.rows, report.non_finite) == (rows, 0)
        assert max(report.round_trip, report.log_dets_cancel, report.jacobian_error) < 1e-9

    def test_a_wrong_flow_is_detected(self) -> None:
        flow = small(2)
        layer = flow.transform.transforms[1]
        forward = layer.forward
        layer.forward = lambda x, context=None: (forward(x, context)[0], forward(x, context)[1] + 1)
        report = flow.check(torch.randn(10, 2, dtype=torch.float64))
        assert report.jacobian_error == pytest.approx(1)
        assert report.log_dets_cancel == pytest.approx(1)

    def test_far_tails_and_rows_outside(self) -> None:
        x = torch.randn(100, 2, dtype=torch.float64)
        x[:10] = 1e3
        assert cf.flows.tabular(2, num_layers=1).double().check(x).far_tails == 0.1  # an identity flow
        u = torch.rand(10, 2)
        u[:3] = 2.0
        report = cf.flows.plane(num_bins=8).check(u)
        assert (report.non_finite, report.far_tails) == (3, pytest.approx(0.3))

    def test_leaves_the_training_mode_unchanged(self) -> None:
        flow = small(2).train()
        flow.check(torch.randn(5, 2, dtype=torch.float64))
        assert flow.training
        assert flow.check(torch.zeros(0, 2, dtype=torch.float64)).rows == 0


def test_the_text_of_a_flow_is_short() -> None:
    flow = cf.flows.tabular(6, context_features=2)
    count = sum(parameter.numel() for parameter in flow.parameters())
    assert repr(flow) == (
        f"Flow(\n  6 features, 2 context features, {count:,} parameters\n  base: StandardNormal\n"
        "  layers: 11 LULinear, 10 Coupling(cubic, K=10, ResidualMLP)\n)"
    )
    assert "(first): Linear(in_features=5, out_features=256" in repr(flow.transform)
    image = repr(cf.flows.image((1, 8, 8), num_layers=1, hidden_features=4, family="affine"))
    assert "shape (1, 8, 8)" in image
    assert "layers: 1 Standardise, 1 Logit, 2 ActNorm, 2 Conv1x1, 2 Coupling(affine, ResidualConv)" in image
    noise = cf.flows.box([(0, 1), (0, 2)], direction="noise")
    assert "layers: 1 Standardise, 4 Coupling(cubic, K=16, ResidualMLP)" in repr(noise)
    assert repr(cf.Mixture([noise, noise])).count("Coupling") == 1
    assert "layers: none" in repr(cf.Flow(cf.distributions.Uniform(2), cf.transforms.Compose([])))
