"""Properties of single transforms beyond the common contract."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.nets import ResidualMLP
from cubicflow.transforms import (
    ActNorm,
    Autoregressive,
    Compose,
    Conv1x1,
    Coupling,
    ElementMap,
    Elementwise,
    Logit,
    LULinear,
    MultiScale,
    Permutation,
    Sigmoid,
    Squeeze,
    Standardise,
    Transform,
)
from cubicflow.transforms.coupling import alternating_mask, contiguous_mask
from cubicflow.transforms.halves import Halves, join, slices_of, split

mlp = partial(ResidualMLP, hidden_features=8, num_blocks=1)


SETS = {
    "alternating": ([1, 3, 5], [0, 2, 4]),
    "alternating, evens first": ([0, 2, 4], [1, 3, 5]),
    "alternating, unequal": ([1, 3], [0, 2, 4]),
    "contiguous": ([0, 1], [2, 3, 4]),
    "contiguous, upper first": ([3, 4], [0, 1, 2]),
    "no pattern": ([1, 4], [0, 2, 3]),
    "all in one": ([], [0, 1, 2]),
}


@pytest.mark.parametrize(("first", "second"), SETS.values(), ids=list(SETS))
class TestHalves:
    @staticmethod
    def halves(first: list[int], second: list[int]) -> Halves:
        restore = torch.tensor(first + second).argsort()
        numbers = torch.tensor(first, dtype=torch.int64), torch.tensor(second)
        return Halves(*numbers, restore, slices_of(first, second))

    @pytest.mark.parametrize("pixels", [(), (2, 3)], ids=["table", "image"])
    def test_split_and_join_against_indexing(self, first, second, pixels) -> None:
        halves = self.halves(first, second)
        x = torch.randn(3, len(first + second), *pixels)
        parts = split(x, halves)
        assert torch.equal(parts[0], x[:, first])
        assert torch.equal(parts[1], x[:, second])
        assert torch.equal(join(*parts, halves), x)

    def test_derivatives_of_both_modes(self, first, second) -> None:
        """Compare with finite differences of a nonlinear function, so that second derivatives are not zero."""
        halves = self.halves(first, second)

        def function(x: torch.Tensor) -> torch.Tensor:
            left, right = split(x, halves)
            return join(left.sin(), right * (1 + left.sum(1, keepdim=True)).square(), halves)

        x = torch.randn(3, len(first + second), dtype=torch.float64, requires_grad=True)
        options = {"check_batched_grad": True, "check_batched_forward_grad": True}
        assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True, **options)
        assert torch.autograd.gradgradcheck(function, (x,))

    def test_forward_over_reverse_under_vmap(self, first, second) -> None:
        """Hessians of ``torch.func`` agree with a double backward pass."""
        halves = self.halves(first, second)

        def function(row: torch.Tensor) -> torch.Tensor:
            left, right = split(row[None], halves)
            return (join(left.sin(), right * (1 + left.sum()).square(), halves) ** 3).sum()

        row = torch.randn(len(first + second), dtype=torch.float64)
        expected = torch.autograd.functional.hessian(function, row)
        assert torch.allclose(torch.func.hessian(function)(row), expected, rtol=1e-12, atol=1e-12)


def test_halves_in_compiled_code() -> None:
    """All sets are in one graph, which compiles in a seventh of the time of seven graphs."""
    halves = {name: TestHalves.halves(*sets) for name, sets in SETS.items()}
    x = torch.randn(3, 6, requires_grad=True)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def split_and_joined(x: torch.Tensor) -> list[torch.Tensor]:
        return [join(*split(x[:, : len(each.restore)], each), each) for each in halves.values()]

    for name, found, each in zip(halves, split_and_joined(x), halves.values(), strict=True):
        assert torch.equal(found, x[:, : len(each.restore)]), name


class TestCoupling:
    def test_the_network_sees_the_other_half_before_the_identity_maps(self) -> None:
        layer = perturbed(Coupling([True, False, False], mlp))
        seen = []
        layer.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        x = torch.randn(5, 3)
        z, _ = layer(x)
        assert torch.equal(seen[0], x[:, 1:])
        assert not torch.allclose(z[:, 1:], x[:, 1:]), "the other half is transformed too"
        layer.inverse(z)
        assert torch.allclose(seen[1], x[:, 1:], atol=1e-5), "the inverse undoes the identity maps first"

    def test_without_identity_maps_the_other_half_is_unchanged(self) -> None:
        x = torch.randn(5, 3)
        z, _ = perturbed(Coupling([True, False, False], mlp, transform_identity=False))(x)
        assert torch.equal(z[:, 1:], x[:, 1:])

    def test_image_params_are_a_view(self) -> None:
        """The spline gets a strided view of the network's output, which is the largest tensor."""
        from cubicflow.nets import ResidualConv

        layer = Coupling([True, False, True], partial(ResidualConv, hidden_features=4))
        made = []
        layer.network.register_forward_hook(lambda _, __, output: made.append(output))
        params = layer.params_of(torch.randn(2, 1, 4, 4), None)
        assert params.shape == (2, 2, 4, 4, 22)
        assert params.data_ptr() == made[0].data_ptr()

    def test_masks(self) -> None:
        assert alternating_mask(3, even=False) == [False, True, False]
        assert contiguous_mask(2) == [False, True]
        assert contiguous_mask(1, second=False) == [True]

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Coupling([False, False], mlp), "leaves nothing to transform"),
            (lambda: Coupling([], mlp), "leaves nothing to transform"),
            (lambda: Coupling([True, True], mlp), "leaves no input for the network"),
            (lambda: Coupling([True, False], ResidualMLP(2, 22)), "needs a network with in_features=1, got one with 2"),
            (lambda: Coupling([True, False], ResidualMLP(1, 20)), "needs a network with out_features=22"),
            (lambda: Coupling([True, False], mlp)(torch.zeros(2, 3)), "expects 2 features, got 3"),
            (lambda: Coupling([True, False], mlp)(torch.zeros(2)), r"expects a batch of shape \(N, 2, ...\)"),
            (lambda: Coupling([True, False], mlp)(torch.zeros(2, 2), torch.zeros(2, 1)), "built without context"),
            (
                lambda: Coupling([True, False], mlp, context_features=3)(torch.zeros(2, 2)),
                "context_features=3; pass context=",
            ),
            (
                lambda: Coupling([True, False], mlp, context_features=3)(torch.zeros(2, 2), torch.zeros(2, 1)),
                r"context of shape \(N, 3\), got \(2, 1\)",
            ),
            (
                lambda: Coupling([True, False], mlp, context_features=3)(torch.zeros(2, 2), torch.zeros(5, 3)),
                "2 rows of x and 5 rows of context",
            ),
        ],
    )
    def test_refusals(self, make, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()


class TestActNorm:
    def test_first_batch_sets_mean_and_scale_of_every_channel(self) -> None:
        layer = ActNorm(3)
        x = torch.tensor([5.0, -2.0, 100.0])[:, None, None] + torch.randn(50, 3, 4, 4) * 3
        z, _ = layer(x)
        assert torch.allclose(z.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
        assert torch.allclose(z.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-4)
        shift = layer.shift.clone()
        layer(x + 10)
        assert torch.equal(layer.shift, shift), "the second batch does not change the layer"

    def test_a_loaded_layer_is_not_initialised_again(self) -> None:
        trained = ActNorm(2)
        trained(torch.randn(50, 2) * 4)
        loaded = ActNorm(2)
        loaded.load_state_dict(trained.state_dict())
        loaded(torch.randn(50, 2) + 100)
        assert torch.equal(loaded.shift, trained.shift)
        assert copy.deepcopy(trained).eval()(torch.zeros(1, 2))[0].isfinite().all()

    def test_loading_an_unfitted_state_makes_it_unfitted(self) -> None:
        layer = ActNorm(2)
        layer(torch.randn(50, 2))
        layer.load_state_dict(ActNorm(2).state_dict())
        with pytest.raises(RuntimeError, match="seen no data yet"):
            layer.eval()(torch.zeros(1, 2))

    def test_constant_features_keep_their_scale(self) -> None:
        z, log_det = ActNorm(2)(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
        assert z.tolist() == [[-1, 0], [1, 0]]
        assert log_det.isfinite().all()

    def test_constant_features_are_found_despite_a_rounded_mean(self) -> None:
        layer = ActNorm(2).double()
        x = torch.full((1000, 2), 0.1, dtype=torch.float64)
        x[0, 1] = 0.2
        assert (x - x.mean(0))[:, 0].any(), "the mean of equal numbers is rounded here"
        layer(x)
        assert layer.log_scale[0] == 0
        assert torch.allclose(layer.log_scale[1], x[:, 1].std(correction=0).log())

    def test_unfitted_layers_raise_with_a_remedy(self) -> None:
        for call in (lambda: ActNorm(2).eval()(torch.zeros(3, 2)), lambda: ActNorm(2).inverse(torch.zeros(3, 2))):
            with pytest.raises(RuntimeError, match=r"call flow.train\(\) and then log_prob of a batch"):
                call()
        with pytest.raises(ValueError, match="empty batch"):
            ActNorm(2)(torch.zeros(0, 2))

    def test_inside_an_inverse_a_layer_is_initialised_by_samples(self) -> None:
        """Rows of data pass through its inverse, which cannot choose a scale. The message names the remedy."""
        flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, normalise="act", direction="noise")
        with pytest.raises(RuntimeError, match=r"or sample\(1000\) if the layer is inside an Inverse"):
            cf.training.fit(flow, torch.randn(50, 2), steps=2, progress=False)
        flow.train().sample(1000, seed=0)
        cf.training.fit(flow, torch.randn(50, 2), steps=2, progress=False)
        assert flow.log_prob(torch.randn(5, 2)).isfinite().all()


class TestSigmoid:
    def test_the_logit_clips_and_returns_the_log_det_of_the_clipped_value(self) -> None:
        p = torch.tensor([[0.0, 1e-9, 0.5, 1 - 1e-9, 1.0]], dtype=torch.float64)
        x, log_det = Logit(1e-6)(p)
        clipped = p.clamp(1e-6, 1 - 1e-6)
        assert torch.allclose(x, torch.logit(clipped))
        assert torch.allclose(log_det, -(clipped.log() + (1 - clipped).log()).sum(1))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_without_clip_the_density_is_zero_at_and_beyond_the_ends(self, dtype: torch.dtype) -> None:
        p = torch.tensor([[0.0], [-0.1], [-math.inf], [1.0], [1.1], [math.inf]], dtype=dtype)
        x, log_det = Logit()(p)
        assert x.isfinite().all(), "later layers would turn infinite values into NaN"
        first, last = (torch.nextafter(torch.tensor(end, dtype=dtype), torch.tensor(0.5)) for end in (0.0, 1.0))
        ends = torch.stack([first.log() - torch.log1p(-first), last.log() - torch.log1p(-last)])
        assert torch.equal(x.flatten(), ends.repeat_interleave(3))
        assert log_det.tolist() == [-math.inf] * 6
        inside = Logit()(torch.stack([first, last])[:, None])
        assert torch.equal(inside[0].flatten(), ends)
        assert inside[1].isfinite().all()

    def test_nan_stays_nan(self) -> None:
        for clip in (None, 1e-6):
            x, log_det = Logit(clip)(torch.tensor([[math.nan, 0.5], [0.5, 0.5]]))
            assert x.isnan().tolist() == [[True, False], [False, False]]
            assert log_det.isnan().tolist() == [True, False]

    def test_the_papers_sigmoid_and_logit_agree_with_the_real_line_inside_the_clip(self) -> None:
        params = torch.randn(4, 22, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        real, unit = Elementwise(4).double(), Elementwise(4, ElementMap(domain="unit")).double()
        with torch.no_grad():
            real.params.copy_(params)
            unit.params.copy_(params)
        sandwich = Compose([Sigmoid(1e-6), unit, Logit(1e-6)])
        x = torch.linspace(-9, 9, 101, dtype=torch.float64)[:, None].expand(-1, 4)
        for expected, found in zip(real(x), sandwich(x), strict=True):
            assert torch.allclose(expected, found, rtol=1e-9, atol=1e-9)
        far = torch.full((1, 4), 40.0, dtype=torch.float64)
        assert (sandwich(far)[0] < 14).all(), "the clipped sigmoid and logit saturate, the real line does not"
        assert (real(far)[0] > 30).all()

    def test_a_clip_that_is_rounded_away_still_clips(self) -> None:
        x, log_det = Logit(1e-8)(torch.tensor([[1.0], [0.0], [2.0]]))  # 1 - 1e-8 is 1 in float32
        assert x.isfinite().all()
        assert log_det.isfinite().all()

    @pytest.mark.parametrize("clip", [0.0, 0.5, -1.0])
    def test_impossible_clips(self, clip: float) -> None:
        with pytest.raises(ValueError, match=r"clip must be a finite number, above 0 and below 0\.5"):
            Sigmoid(clip)


def test_standardise_of_data() -> None:
    x = torch.randn(1000, 3) * torch.tensor([1.0, 5.0, 0.0]) + 2
    z, log_det = Standardise.of(x)(x)
    assert torch.allclose(z[:, :2].mean(0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(z[:, :2].std(0, correction=0), torch.ones(2), atol=1e-5)
    assert log_det.isfinite().all()
    tenths = torch.full((1000, 1), 0.1, dtype=torch.float64)
    assert tenths.std(correction=0) != 0, "only rounding makes it differ from 0"
    assert Standardise.of(tenths).std == 1
    with pytest.raises(ValueError, match="at least one row"):
        Standardise.of(torch.zeros(0, 2))
    with pytest.raises(ValueError, match="every std must be positive"):
        Standardise([0.0], [0.0])
    with pytest.raises(ValueError, match="one number for each feature"):
        Standardise([0.0, 1.0], [1.0])


def test_squeeze_gathers_blocks() -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    z, _ = Squeeze()(x)
    assert z[0, :, 0, 0].tolist() == [0, 1, 4, 5]
    assert torch.equal(z, torch.nn.functional.pixel_unshuffle(x, 2))


def test_levels_may_share_a_layer() -> None:
    layer = MultiScale([Compose([])] * 2, (1, 8, 8))
    x = torch.randn(3, 1, 8, 8)
    z, _ = layer(x)
    assert torch.equal(layer.inverse(z)[0], x)
    apart = MultiScale([Compose([]), Compose([])], (1, 8, 8))
    assert torch.equal(z, apart(x)[0])


def test_autoregressive_jacobian_is_triangular() -> None:
    layer = perturbed(Autoregressive(4)).double()
    row = torch.randn(4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda r: layer(r[None])[0][0], row)
    assert (jacobian.triu(1) == 0).all()
    assert (jacobian.tril(-1).abs().sum() > 0).all()


@pytest.mark.parametrize("family", ["cubic", "quadratic", "linear", "rational_quadratic"])
def test_affine_first_equals_the_composition_and_is_exact_in_the_tails(family: str) -> None:
    """The map equals the two maps one after the other. In the tails a spline on the real line has slope 1, so the
    composition is (x - m) exp(-s) plus a constant, at any distance."""
    bend, both = ElementMap(family, 5), ElementMap(family, 5, affine_first=True)
    assert both.num_params == bend.num_params + 2
    params = torch.randn(7, both.num_params, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(-4, 4, 7, dtype=torch.float64)
    location, scale = params[:, 0], (10 * torch.tanh(params[:, 1] / 10)).exp()
    y, log_slope = both(x, params)
    expected, log_bend = bend((x - location) / scale, params[:, 2:])
    assert torch.allclose(y, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(log_slope, log_bend - scale.log(), rtol=1e-12, atol=1e-12)
    assert torch.allclose(both(x, torch.zeros(both.num_params, dtype=torch.float64))[0], x, rtol=0, atol=1e-14)
    for side in (-1, 1):
        near, far = (side * 1e4 * torch.ones(7, dtype=torch.float64), side * 1e9 * torch.ones(7, dtype=torch.float64))
        rise = (both(far, params)[0] - both(near, params)[0]) * scale / (far - near)
        assert torch.allclose(rise, torch.ones(7, dtype=torch.float64), rtol=1e-12)
        back, _ = both(both(far, params)[0], params, inverse=True)
        assert torch.allclose(back, far, rtol=1e-12)


def test_the_default_config_omits_affine_first_as_in_older_files() -> None:
    assert "affine_first" not in ElementMap().config()
    assert ElementMap(**ElementMap(affine_first=True).config()).affine_first


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Permutation([0, 2]), "every number from 0 to 1 once"),
        (lambda: Permutation([0.5, 1.0]), r"every number from 0 to 1 once, got \[0.5, 1.0\]"),
        (lambda: Squeeze()(torch.zeros(1, 1, 3, 4)), "even height and width"),
        (lambda: Squeeze().inverse(torch.zeros(1, 3, 2, 2)), "a multiple of 4 channels"),
        (lambda: MultiScale([], (1, 4, 4)), "at least one level"),
        (lambda: MultiScale([ActNorm(4), ActNorm(8)], (1, 6, 6)), "cannot be squeezed 2 times"),
        (lambda: MultiScale([ActNorm(4)], (1, 4)), r"shape must be \(channels, height, width\)"),
        (lambda: MultiScale([ActNorm(4)], (1, 4, 4))(torch.zeros(1, 1, 2, 2)), r"images of shape \(1, 4, 4\)"),
        (lambda: Conv1x1(2)(torch.zeros(3, 2)), r"images of shape \(N, C, H, W\)"),
        (lambda: LULinear(0), "features must be a positive integer, got 0"),
        (lambda: ElementMap("cubist"), "family must be one of 'cubic'"),
        (lambda: ElementMap("affine", domain="unit"), "does not preserve the unit interval"),
        (lambda: ElementMap(num_bins=0), "num_bins must be a positive integer, got 0"),
        (lambda: ElementMap(slopes="steep"), "slopes of a cubic spline must be 'steffen' or 'free'"),
        (lambda: ElementMap(backend="abacus"), "backend must be one of 'auto'"),
        (lambda: ElementMap("affine", backend="abacus"), "backend must be one of 'auto'"),
        (lambda: ElementMap(domain="unit", affine_first=True), "affine_first needs a spline on the real line"),
        (lambda: ElementMap("affine", affine_first=True), "affine_first needs a spline on the real line"),
        (lambda: Autoregressive(2, order=[0.5, 1]), r"order must hold every number from 0 to 1 once, got \[0.5, 1\]"),
        (lambda: Autoregressive(3, order=[0, 2, 2]), r"order must hold every number from 0 to 2 once, got \[0, 2, 2\]"),
        (lambda: ElementMap(min_bin_width=0.0), "min_bin_width must be above 0"),
        (lambda: ElementMap("linear", min_bin_height=0.1), "min_bin_height x K must be below 1"),
        (lambda: ElementMap("linear", min_bin_width=0.01), "a linear spline has no min_bin_width; it has min_bin_h"),
        (lambda: ElementMap("affine", min_bin_width=0.01), "'affine' has no bins; leave out min_bin_width"),
        (lambda: Elementwise(3, ElementMap(domain=["real", "unit"])), "domain names 2 columns, and the layer has 3"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_layer_of_ones_own_returns_its_arguments_or_names_the_one_it_lacks() -> None:
    class Moved(Transform):
        def __init__(self, by: float, *, keep: bool) -> None:
            super().__init__()
            self.by = by
            if keep:
                self.keep = keep

        def forward(self, x, context=None):
            return x + self.by, x.new_zeros(len(x))

    assert Moved(2.0, keep=True).config() == {"by": 2.0, "keep": True}
    with pytest.raises(
        TypeError, match="Moved has no attribute 'keep', as its constructor has; keep the argument under"
    ):
        Moved(2.0, keep=False).config()
