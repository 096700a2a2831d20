"""Properties of the layers of other papers, beyond the common contract."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.flows import whiten
from cubicflow.nets import MaskedResidualMLP
from cubicflow.transforms import (
    Autoregressive,
    BatchNorm,
    BlockNAF,
    ElementMap,
    Elementwise,
    EmergingConv,
    Orthogonal,
    PeriodicConv,
    Permutation,
    Planar,
    QRLinear,
    Radial,
    Recurrent,
    Sylvester,
)
from cubicflow.transforms.implicit import triangular_inverse
from cubicflow.transforms.orthogonal import householder_product
from cubicflow.transforms.sigmoidal import num_sigmoidal_params, sigmoidal


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class TestPlanarAndRadial:
    @pytest.mark.parametrize("scale", [1.0, -1.0, -30.0])
    def test_parameters_that_would_fold_space_are_moved(self, scale: float) -> None:
        """For w'u < -1, x + u tanh(w'x + b) is not one to one. The layer uses another component of u along w."""
        layer = Planar(3).double()
        with torch.no_grad():
            layer.w.copy_(torch.tensor([1.0, -2.0, 0.5]))
            layer.u.copy_(scale * layer.w + torch.tensor([0.0, 1.0, 4.0]))
            layer.b.fill_(0.3)
        line = torch.linspace(-5, 5, 2001, dtype=torch.float64)[:, None] * layer.w.detach()
        z, log_det = layer(line)
        assert ((z @ layer.w).diff() > 0).all()
        assert log_det.isfinite().all()
        assert torch.allclose(layer.inverse(z)[0], line, atol=1e-10)
        across = layer(line)[0] - line  # moves along u, whose part across w is as given
        part = across - (across @ layer.w)[:, None] * layer.w / layer.w.square().sum()
        given = layer.u - (layer.u @ layer.w) * layer.w / layer.w.square().sum()
        assert torch.allclose(part, torch.tanh(line @ layer.w + layer.b)[:, None] * given)

    def test_planar_without_a_direction(self) -> None:
        layer = Planar(2)
        with torch.no_grad():
            layer.w.zero_()
            layer.u.fill_(1.0)
            layer.b.fill_(0.5)
        x = torch.randn(5, 2)
        assert torch.allclose(layer(x)[0], x + math.tanh(0.5))
        assert torch.allclose(layer.inverse(layer(x)[0])[0], x, atol=1e-6)

    @pytest.mark.parametrize("p", [-40.0, 0.0, 40.0])
    def test_radial_at_its_centre_and_far_away(self, p: float) -> None:
        layer = Radial(2).double()
        with torch.no_grad():
            layer.p.fill_(p)
        x = torch.cat([layer.centre.detach()[None], layer.centre.detach() + 1e-9 * normal(3, 2), 1e6 * normal(3, 2)])
        z, log_det = layer(x)
        assert log_det.isfinite().all()
        gain = torch.exp(-log_det.detach() / 2).amax()
        assert ((layer.inverse(z)[0] - x).abs() <= 1e-14 * (1 + x.abs()) * max(1.0, float(gain))).all()

    def test_radial_is_the_formula_of_the_paper(self) -> None:
        layer = Radial(3).double()
        with torch.no_grad():
            layer.p.fill_(-0.7)
            layer.log_alpha.fill_(0.4)
        x = normal(10, 3)
        alpha, distance = math.exp(0.4), (x - layer.centre).norm(dim=1, keepdim=True)
        beta = -alpha + alpha * math.log1p(math.exp(-0.7 + math.log(math.e - 1)))
        assert torch.allclose(layer(x)[0], x + beta / (alpha + distance) * (x - layer.centre))


class TestSylvester:
    def test_a_rank_one_layer_is_planar(self) -> None:
        layer = Sylvester(4, rank=1).double()
        with torch.no_grad():
            layer.r.fill_(0.6)
            layer.p.fill_(-0.9)
            layer.b.fill_(0.2)
        x = normal(20, 4)
        direction = householder_product(layer.vectors)[:, 0]
        expected = x + math.tanh(0.6) * torch.tanh(math.tanh(-0.9) * x @ direction + 0.2)[:, None] * direction
        assert torch.allclose(layer(x)[0], expected)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"form": "diagonal"}, "form must be one of 'orthogonal', 'householder', 'triangular', got 'diagonal'"),
            ({"rank": 4}, "rank must be 3, the number of features, or in the orthogonal form less; got 4"),
            ({"form": "triangular", "rank": 2}, "rank must be 3"),
            ({"rank": 2, "num_reflections": 3}, "the orthogonal form has rank=2 reflections"),
        ],
    )
    def test_refusals(self, settings: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Sylvester(3, **settings)  # type: ignore[arg-type]


class TestRotations:
    @pytest.mark.parametrize("count", [1, 3, 5, 8])
    def test_the_product_against_reflections_one_by_one(self, count: int) -> None:
        vectors = normal(2, count, 5)
        expected = torch.eye(5, dtype=torch.float64).repeat(2, 1, 1)
        for v in vectors.unbind(1):
            reflection = torch.eye(5) - 2 * v[:, :, None] * v[:, None, :] / v.square().sum(1)[:, None, None]
            expected = expected @ reflection
        found = householder_product(vectors)
        assert torch.allclose(found, expected, atol=1e-13)
        assert torch.allclose(found @ found.mT, torch.eye(5, dtype=torch.float64), atol=1e-13)

    def test_five_reflections_reach_a_given_rotation(self) -> None:
        target = torch.linalg.qr(normal(5, 5, seed=3)).Q
        target = target * torch.sign(-torch.linalg.det(target)).where(torch.arange(5) == 0, 1)  # determinant (-1)^5
        layer = Orthogonal(5, bias=False).double()
        optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=300, line_search_fn="strong_wolfe")

        def distance() -> Tensor:
            optimiser.zero_grad()
            loss = (layer.dense_layers([layer])[0].weight - target).square().sum()
            loss.backward()
            return loss

        optimiser.step(distance)
        assert float(distance().detach()) < 1e-8

    @pytest.mark.parametrize("bias", [True, False])
    def test_a_flow_that_begins_with_qr_is_whitened(self, bias: bool) -> None:
        x = normal(500, 3) @ normal(3, 3, seed=1) + 3
        layers = cf.transforms.Compose([QRLinear(3, bias=bias), cf.transforms.Elementwise(3)])
        z, _ = whiten(cf.Flow(cf.distributions.StandardNormal(3), layers).double(), x).to_noise(x)
        assert torch.allclose(torch.cov(z.T, correction=0), torch.eye(3, dtype=torch.float64), atol=1e-6)
        assert bool((z.mean(0).abs() < 1e-6).all()) == bias


class TestBatchNorm:
    def test_training_normalises_by_the_batch_and_evaluation_by_running_averages(self) -> None:
        layer, x = BatchNorm(2).double(), 3 + 2 * normal(100, 2)
        z, log_det = layer(x)
        assert torch.allclose(z, (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt())
        assert torch.allclose(log_det, -0.5 * (x.var(0, correction=0) + 1e-5).log().sum().expand(100))
        assert torch.allclose(layer.mean, 0.1 * x.mean(0))
        assert torch.allclose(layer.variance, 0.9 + 0.1 * x.var(0, correction=0))
        layer.eval()
        assert torch.allclose(layer(x[:1])[0], (x[:1] - layer.mean) / (layer.variance + 1e-5).sqrt())

    def test_a_step_that_fails_changes_no_averages_and_a_fit_starts_from_the_first_batch(self) -> None:
        flow = cf.Flow(cf.distributions.StandardNormal(2), BatchNorm(2))
        cf.training.fit(flow, 50 + torch.randn(200, 2), steps=1, validation_fraction=0.0, progress=False)
        assert ((flow.transform.mean - 50).abs() < 1).all()

    def test_a_single_row_in_training_mode(self) -> None:
        with pytest.raises(ValueError, match="needs a batch of two rows or more"):
            BatchNorm(2)(torch.zeros(1, 2))


def test_permutations_by_name() -> None:
    assert Permutation.reversing(3).order == [2, 1, 0]
    assert Permutation.random(50, seed=4).order == Permutation.random(50, seed=4).order
    assert Permutation.random(50, seed=4).order != Permutation.random(50, seed=5).order


def test_a_triangular_map_with_a_closed_inverse() -> None:
    """Against forward substitution with cubes."""
    mixing = normal(4, 4).tril(-1)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x**3 + x + torch.sin(x) @ mixing.T, torch.log(3 * x**2 + 1)

    x = 2 * normal(20, 4, seed=1)
    z, log_slope = function(x)
    found, minus_log_slope = triangular_inverse(function, z)
    assert torch.allclose(found, x, atol=1e-12)
    assert torch.allclose(minus_log_slope, -log_slope, atol=1e-10)


class TestSigmoidalMaps:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_a_deep_map_is_the_formula_of_the_paper(self, depth: int) -> None:
        params = normal(20, 12 * depth, seed=1)
        x = normal(20)
        y = x
        for a, b, w in params.view(20, depth, 3, 4).permute(1, 2, 0, 3):
            gains = 4.0 ** ((2 * torch.arange(4, dtype=torch.float64) + 1) / 4 - 1)
            units = torch.sigmoid(torch.nn.functional.softplus(a + math.log(math.e - 1)) * y[:, None] + gains * b)
            y = torch.logit((torch.softmax(w, -1) * units).sum(-1))
        found, _ = sigmoidal(x, params, num_bins=4, depth=depth, dense=False)
        assert torch.allclose(found, y, rtol=1e-9, atol=1e-9)

    def test_a_dense_map_is_the_formula_of_the_paper(self) -> None:
        """Two layers of four units. Logarithms of weights are those of the authors' program."""
        params, shared = normal(20, 12 + 16, seed=1), normal(2, 4, 4, seed=2)
        x = normal(20)
        (a, b, w), rest = params[:, :12].view(20, 3, 4).unbind(1), params[:, 12:].view(20, 4, 4).unbind(1)
        gains = 4.0 ** ((2 * torch.arange(4, dtype=torch.float64) + 1) / 4 - 1)
        inner = torch.nn.functional.softplus(a + math.log(math.e - 1)) * x[:, None] + gains * b
        h = torch.logit((torch.softmax(shared[0] + w[:, None, :], -1) * torch.sigmoid(inner)[:, None, :]).sum(-1))
        h = (torch.softmax(shared[1] + rest[3][:, None, :], -1) * h[:, None, :]).sum(-1)
        units = torch.sigmoid(torch.nn.functional.softplus(rest[0] + math.log(math.e - 1)) * h + gains * rest[1])
        y = torch.logit((torch.softmax(rest[2], -1) * units).sum(-1))
        found, _ = sigmoidal(x, params, shared.flatten(), num_bins=4, depth=2, dense=True)
        assert torch.allclose(found, y, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("spread", [1.0, 1e4])
    @pytest.mark.parametrize("dense", [True, False])
    def test_the_real_line_is_mapped_onto_itself(self, dense: bool, spread: float) -> None:
        """No value is lost where sigmoids or weights round to 0 or 1: both tails are nearly straight lines."""
        params = normal(num_sigmoidal_params(5, 2, dense=dense))
        shared = spread * normal(50) if dense else None
        x = torch.tensor([-1e6, -1e3, -50.0, 0.0, 50.0, 1e3, 1e6], dtype=torch.float64)
        y, log_slope = sigmoidal(x, params, shared, num_bins=5, depth=2, dense=dense)
        back, log_slope_back = sigmoidal(y, params, shared, num_bins=5, depth=2, dense=dense, inverse=True)
        assert torch.allclose(back, x, rtol=1e-13, atol=1e-12)
        assert torch.allclose(log_slope_back, -log_slope)
        assert (y.diff() / x.diff() > 0.01).all()

    @pytest.mark.parametrize("dense", [True, False])
    def test_infinite_rows_stay_infinite(self, dense: bool) -> None:
        params = torch.randn(num_sigmoidal_params(5, 2, dense=dense))
        shared = torch.randn(50) if dense else None
        x = torch.tensor([-math.inf, -3e38, 3e38, math.inf])
        y, _ = sigmoidal(x, params, shared, num_bins=5, depth=2, dense=dense)
        assert y[0] == -math.inf
        assert y[1] < -1e37
        assert y[2] > 1e37
        assert y[3] == math.inf

    def test_equal_units_part(self) -> None:
        """The start has equal units. Training makes them differ, so that the map finds two modes."""
        x = torch.cat([0.3 * normal(300, 1) - 2, 0.5 * normal(300, 1, seed=1) + 2])
        layer = Autoregressive(1, partial(MaskedResidualMLP, hidden_features=4), ElementMap("dense_sigmoidal", 6))
        flow = cf.Flow(cf.distributions.StandardNormal(1), layer).double()
        optimiser = torch.optim.Adam(flow.parameters(), lr=0.03)
        for _ in range(200):
            optimiser.zero_grad()
            loss = -flow.log_prob(x).mean()
            loss.backward()
            optimiser.step()
        modes = torch.distributions.Normal(torch.tensor([-2.0, 2.0]), torch.tensor([0.3, 0.5]))
        best = torch.logsumexp(modes.log_prob(x) - math.log(2), dim=1).mean()
        assert -float(loss.detach()) > float(best) - 0.1

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="depth must be a positive integer, got 0"):
            ElementMap("deep_sigmoidal", depth=0)
        with pytest.raises(ValueError, match="the last axis of params has size 7, but a sigmoidal map needs 12"):
            sigmoidal(torch.zeros(3), torch.zeros(7), num_bins=4, depth=1, dense=True)
        with pytest.raises(ValueError, match=re.escape("share 32 weights; pass shared= of shape (32,)")):
            sigmoidal(torch.zeros(3), torch.zeros(28), num_bins=4, depth=2, dense=True)
        with pytest.raises(ValueError, match="share weights, which autoregressive layers have; use Autoregressive, or"):
            Elementwise(3, ElementMap("dense_sigmoidal"))


class TestBlockNAF:
    def test_output_i_depends_on_inputs_up_to_i_and_increases_in_input_i(self) -> None:
        layer = BlockNAF(4, 3, depth=2).double()
        jacobian = torch.stack([torch.autograd.functional.jacobian(lambda x: layer(x)[0], x[None])[0, :, 0]
                                for x in normal(5, 4)])  # fmt: skip
        assert (jacobian.triu(1) == 0).all()
        assert (jacobian.tril() != 0).sum() == 5 * 10
        assert (jacobian.diagonal(dim1=1, dim2=2) > 0.5).all()  # the gate starts at 1/2

    def test_far_out_the_map_is_half_the_identity(self) -> None:
        """There tanh is 1, and its slope underflows. Its logarithm does not."""
        layer = BlockNAF(2, 3).double()
        x = torch.tensor([[1e4, -1e4], [-1e6, 1e6]], dtype=torch.float64)
        z, log_det = layer(x)
        assert torch.allclose(z, x / 2, rtol=1e-3)
        assert torch.allclose(log_det, torch.full_like(log_det, 2 * math.log(0.5)))
        assert torch.allclose(layer.inverse(z)[0], x, rtol=1e-14)

    def test_rows_of_weights_have_the_norms_that_were_set(self) -> None:
        layer = BlockNAF(3, 2)
        with torch.no_grad():
            layer.log_scales[0].fill_(0.7)
        weight, log_blocks = layer._weight(0)
        assert torch.allclose(weight.norm(dim=1), torch.full((6,), math.exp(0.7)))
        assert torch.allclose(log_blocks[1, :, 0].exp(), weight[2:4, 1])


class TestRecurrent:
    def test_it_is_the_formula_of_the_paper(self) -> None:
        layer = Recurrent(5, 3).double()
        with torch.no_grad():
            for seed, parameter in enumerate(layer.parameters()):
                parameter.copy_(0.5 * normal(1, *parameter.shape, seed=seed)[0])
        x = normal(4, 5, seed=9)
        for row, found, log_det in zip(x, *layer(x), strict=True):
            s, before, expected, slopes = torch.zeros(3).double(), torch.tensor(0.0), [], []
            for value in row:
                s = torch.relu(before * layer.u + layer.v @ s + layer.a)
                t = layer.log_y.exp() * value + layer.w @ s + layer.b
                alpha = 1.0 if t >= 0 else math.exp(layer.log_alpha.detach())
                expected.append(alpha * t)
                slopes.append(alpha * math.exp(layer.log_y.detach()))
                before = value
            assert torch.allclose(found, torch.stack(expected))
            assert math.isclose(log_det.detach(), sum(map(math.log, slopes)))


class TestConvolutions:
    @pytest.mark.parametrize("size", [1, 3, 5])
    def test_an_emerging_convolution_is_two_masked_convolutions(self, size: int) -> None:
        layer, p = EmergingConv(3, size).double(), size // 2
        with torch.no_grad():
            layer.weight.copy_(0.3 * normal(*layer.weight.shape))
            layer.log_diagonal.copy_(0.3 * normal(2, 3, seed=1))
        x = normal(2, 3, 6, 5)
        expected = x
        for i in range(2):
            kernel = torch.zeros(3, 3, size, size, dtype=torch.float64)
            kernel[:, :, : p + 1] = layer.weight[i].detach()
            order = torch.arange(size * size).view(size, size)
            kernel[:, :, order > order[p, p]] = 0
            kernel[:, :, p, p] = kernel[:, :, p, p].tril(-1) + layer.log_diagonal[i].detach().exp().diag()
            expected = torch.nn.functional.conv2d(expected, kernel, padding=p).flip(1, 2, 3)
        assert torch.allclose(layer(x)[0], expected)

    def test_together_two_convolutions_see_all_pixels_around(self) -> None:
        layer = EmergingConv(1).double()
        with torch.no_grad():
            layer.weight.fill_(0.5)
        x = normal(1, 1, 7, 7)
        seen = torch.autograd.functional.jacobian(lambda x: layer(x)[0][0, 0, 3, 3], x)[0, 0] != 0
        assert seen[2:5, 2:5].all()

    @pytest.mark.parametrize("size", [1, 3, 5])
    def test_a_periodic_convolution_pads_with_the_opposite_edge(self, size: int) -> None:
        layer, p = PeriodicConv(3, size).double(), size // 2
        with torch.no_grad():
            layer.weight.copy_(0.2 * normal(*layer.weight.shape))
        x = normal(2, 3, 6, 5)
        kernel = layer.weight.detach().clone()
        kernel[:, :, p, p] += torch.eye(3)
        padded = torch.nn.functional.pad(x, (p,) * 4, mode="circular")
        assert torch.allclose(layer(x)[0], torch.nn.functional.conv2d(padded, kernel))

    def test_substitution_of_a_larger_image(self) -> None:
        layer = EmergingConv(2).double()
        with torch.no_grad():
            layer.weight.copy_(0.1 * normal(*layer.weight.shape))
        x = normal(3, 2, 16, 12)
        assert torch.allclose(layer.inverse(layer(x)[0])[0], x, atol=1e-10)

    @pytest.mark.parametrize(
        ("run", "message"),
        [
            (lambda: EmergingConv(2)(torch.zeros(3, 2)), r"expects images of shape \(N, C, H, W\), got shape \(3, 2\)"),
            (lambda: PeriodicConv(2)(torch.zeros(1, 3, 4, 4)), r"PeriodicConv expects 2 features, got 3 in an input"),
            (
                lambda: PeriodicConv(2, 5)(torch.zeros(1, 2, 4, 8)),
                r"images of at least this height and width, got shap",
            ),
            (lambda: EmergingConv(2, 4), "kernel_size must be odd, so that a kernel has a pixel in its middle; got 4"),
        ],
    )
    def test_refusals(self, run: Callable[[], object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            run()
