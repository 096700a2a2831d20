"""The training loop on a GPU: it learns, resumes, and keeps rows on its device."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch

import cubicflow as cf
from cubicflow.accel.captured_step import CapturedStep, written_by
from cubicflow.accel.side_stream import SideStream
from cubicflow.data.rows import Batch, TensorRows
from cubicflow.data.symmetries import Symmetries
from cubicflow.nets.precision import exact_linear, float32_products
from cubicflow.training import NonFiniteLossError, TrainingConfig, fit
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step
from cubicflow.training.step_hook import step_hook

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def compiled_kernels(request):
    """Skip if Triton is interpreted: a flow on a GPU then uses the reference, whose gradients are summed in no fixed
    order.
    """
    if request.config.getoption("--device") == "cpu":
        pytest.skip("needs --device cuda")


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_agrees_with_the_cpu(x, make_flow, precision):
    settings = {"steps": 60, "learning_rate": 1e-2, "precision": precision, "progress": False}
    on_gpu = fit(make_flow(dropout=0.0), x, device="cuda", **settings)
    on_cpu = fit(make_flow(dropout=0.0), x, device="cpu", **{**settings, "precision": "float32"})
    assert next(on_gpu.flow.parameters()).is_cuda
    # TF32 keeps 10 bits of the significand and bf16 keeps 8. The losses are of order 2.
    tolerance = {"float32": 1e-2, "tf32": 2e-2, "bf16": 0.1}[precision]
    assert on_gpu.validation_loss == pytest.approx(on_cpu.validation_loss, abs=tolerance)


def test_settings_of_torch_are_left_as_they_were(x, make_flow):
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    fit(make_flow(), x, steps=5, device="cuda", progress=False)
    assert (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision) == before


def test_resumes(x, make_flow, tmp_path):
    settings = {"steps": 40, "device": "cuda", "progress": False, "checkpoint_seconds": 0}
    calls = iter(range(10**6))

    def breaking(flow, batch):
        if next(calls) == 20:
            raise RuntimeError("as if the machine died")
        return -flow.log_prob(batch.x)

    with pytest.raises(RuntimeError, match="as if the machine died"):
        fit(make_flow(), x, run=tmp_path / "run", loss=breaking, validation_fraction=0.0, **settings)
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, validation_fraction=0.0, **settings)
    whole = fit(make_flow(), x, validation_fraction=0.0, **settings)
    for mine, theirs in zip(resumed.flow.parameters(), whole.flow.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_rows_move_to_the_device(x):
    rows = TensorRows(x, None, torch.ones(len(x))).on(torch.device("cuda", 0))
    assert all(part is None or part.is_cuda for part in next(rows.in_order(10)))


def test_images(make_flow):
    pixels = torch.randint(0, 4, (60, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    flow = cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, hidden_features=4, num_bins=4)
    result = fit(flow, pixels, steps=12, learning_rate=1e-2, batch_size=16, device="cuda", progress=False)
    validations = [m["validation_loss"] for m in result.history if "validation_loss" in m]
    assert validations[-1] < validations[0]


def taken(captured: bool, batches, *, side_stream: bool = True, symmetries=None, **settings):
    """Return the step object after one step on each batch.

    With ``side_stream``, plain steps use the kernels of captured steps.
    """
    torch.manual_seed(0)
    flow = cf.flows.tabular(6, num_layers=3, hidden_features=32, **settings).cuda()
    config = TrainingConfig(steps=1000, batch_size=len(batches[0]), precision="float32").resolve(10_000)
    step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cuda", 0)), 1.0, symmetries)
    if side_stream:
        step.passes = SideStream(step.processes.device).weight_gradients
    take = CapturedStep(step, pytest.fail) if captured else step
    for i, x in enumerate(batches):
        torch.cuda.manual_seed(i)
        step.set_rates(1e-3 * (i + 1), 0.1)
        take(Batch(x))
    return step


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dropout": 0.2},
        {"base_components": 3},
        {"symmetries": Symmetries.of_image((2, 3), "mirror")},
        {"symmetries": Symmetries.of_image((1, 7), "mirror", mean_removed=True), "dropout": 0.2},
    ],
    ids=str,
)
def test_a_captured_step_is_the_step_itself_bit_for_bit(settings):
    batches = torch.randn(20, 64, 6, device="cuda").unbind(0)
    captured, plain = taken(True, batches, **settings), taken(False, batches, **settings)
    for mine, theirs in zip(written_by(captured), written_by(plain), strict=True):
        assert torch.equal(mine, theirs)


def test_drawn_images_do_not_heed_the_settings_of_the_matrix_units():
    symmetries = Symmetries.of_image((8, 8), "square")
    x = torch.randn(1024, 64, device="cuda")
    with float32_products(tf32=True, device=x.device), torch.autocast("cuda", torch.bfloat16):
        drawn = symmetries.draw(x)
    assert torch.equal(drawn.sort(1).values, x.sort(1).values)
    assert not torch.equal(drawn, x)


def test_gradients_of_weights_on_a_second_stream_are_the_same():
    batches = torch.randn(5, 64, 6, device="cuda").unbind(0)
    beside, plain = taken(False, batches), taken(False, batches, side_stream=False)
    for mine, theirs in zip(beside.weights.params, plain.weights.params, strict=True):
        # Adam divides gradients by their size, so rounding errors of tiny gradients become large.
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


class Waiting(cf.transforms.Transform):
    """A module that reads a number back from the GPU in the middle of a step."""

    def forward(self, x, context=None):
        assert float(x.detach().abs().sum()) > 0
        return x, x.new_zeros(len(x))

    inverse = forward

    def config(self):
        return {}


def test_a_step_that_cannot_be_captured_is_reported_and_still_trains(x):
    said = []

    def loss_after(captures: bool) -> float:
        torch.manual_seed(0)
        inner = cf.flows.tabular(2, num_layers=1, hidden_features=8, dropout=0.1)
        flow = cf.flows.Flow(inner.base, cf.transforms.Compose([Waiting(), inner.transform])).cuda()
        config = TrainingConfig(steps=1000, batch_size=64, precision="float32").resolve(10_000)
        step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cuda", 0)), 1.0)
        take = step_hook.prepared_step(step, said.append) if captures else step
        for i in range(5):
            torch.cuda.manual_seed(i)
            step.set_rates(1e-3, 0.1)
            take(Batch(x[:64].cuda().float()))
        return float(step.loss_sum)

    assert loss_after(True) == pytest.approx(loss_after(False), rel=1e-5)
    assert len(said) == 1
    assert "not captured" in said[0]


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("norm", [None, "batch"])
def test_a_captured_step_that_is_not_finite_changes_nothing(norm):
    batches = list(torch.randn(6, 64, 6, device="cuda").unbind(0))
    broken = taken(True, [*batches[:-1], torch.full_like(batches[-1], torch.nan)], norm=norm)
    good = taken(True, batches[:-1], norm=norm)
    mine, theirs = (
        [*step.flow.state_dict().values(), *itertools.chain(*step.adam.moments.values()), *step.averages.tensors]
        for step in (broken, good)
    )
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one, other)
    assert int(broken.failed_at) == 5


def test_a_failed_step_is_diagnosed_with_its_own_batch(make_flow):
    """The loop reads ``failed_at`` every 50 steps. All steps until then leave the weights as they are."""
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    x[100] = 1e25
    settings = {"steps": 100, "batch_size": 50, "log_every": 50, "validation_fraction": 0.0, "progress": False}
    with pytest.raises(NonFiniteLossError) as on_gpu:
        fit(make_flow(dropout=0.0), x, device="cuda", **settings)
    with pytest.raises(NonFiniteLossError) as on_cpu:
        fit(make_flow(dropout=0.0), x, device="cpu", **settings)
    assert "1 of 50 rows have a NaN or infinite loss; the first of them starts with [1e+25, 1e+25]" in str(on_gpu.value)
    assert str(on_gpu.value) == str(on_cpu.value)


def shared_network_flow() -> cf.Flow:
    """Return a flow in which two couplings share a network: autograd adds two gradients for each weight."""
    torch.manual_seed(0)
    network = cf.nets.ResidualMLP(3, 3 * 22, hidden_features=256, identity_start=False)
    masks = ([True, False] * 3, [False, True] * 3)
    couplings = [cf.transforms.Coupling(mask, lambda *_, **__: network, cf.transforms.ElementMap()) for mask in masks]
    return cf.Flow(cf.distributions.StandardNormal(6), cf.transforms.Compose(couplings)).cuda()


def test_a_network_in_two_couplings_gets_both_gradients():
    """On a second stream, the two gradients would be added before they are computed."""
    x = torch.randn(4096, 6, device="cuda")
    flow, said = shared_network_flow(), []
    config = TrainingConfig(steps=1000, batch_size=len(x), precision="float32", clip_norm=None).resolve(10_000)
    step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cuda", 0)), 1.0)
    take = step_hook.prepared_step(step, said.append)
    assert "used in more than one place" in said[0]
    for _ in range(5):
        expected = torch.autograd.grad(-flow.log_prob(x).mean(), step.weights.params)
        step.set_rates(1e-3, 0.1)
        take(Batch(x))
        for parameter, gradient in zip(step.weights.params, expected, strict=True):
            assert (parameter.grad - gradient).norm() <= 1e-4 * gradient.norm()


def test_hooks_run_at_every_step(x, make_flow):
    flow, calls = make_flow(), []
    flow.transform.register_forward_hook(lambda *_: calls.append(1))
    fit(flow, x, steps=12, device="cuda", validation_fraction=0.0, progress=False)
    assert len(calls) >= 12


def test_losses_of_the_users_own_are_not_captured(x, make_flow):
    calls = []

    def counting(flow, batch):
        calls.append(1)
        return -flow.log_prob(batch.x)

    fit(make_flow(), x, steps=12, device="cuda", loss=counting, validation_fraction=0.0, progress=False)
    assert len(calls) >= 12


def test_exact_products_do_not_heed_the_settings_of_the_matrix_units():
    torch.manual_seed(0)
    x = torch.randn(4096, 63, device="cuda", requires_grad=True)
    weight = torch.randn(63, 63, device="cuda", requires_grad=True)
    with float32_products(tf32=True, device=x.device):
        y = exact_linear(x, weight)
        loss = y.square().sum()
        grads = torch.autograd.grad(loss, (x, weight))
    wide = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    y_wide = wide[0] @ wide[1].T
    grads_wide = torch.autograd.grad(y_wide.square().sum(), wide)
    for mine, exact in zip((y, *grads), (y_wide, *grads_wide), strict=True):
        error = (mine.double() - exact).norm() / exact.norm()
        assert error < 1e-6  # TF32 has 10 bits; its error would be 3e-4


@pytest.mark.parametrize("context_features", [0, 2])
def test_replayed_pieces_equal_pieces_that_are_not_replayed(context_features):
    torch.manual_seed(0)
    flow = cf.flows.tabular(5, num_layers=3, hidden_features=32, context_features=context_features).cuda().eval()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        x = torch.randn(10_050, 5, device="cuda")
        context = torch.randn(len(x), context_features, device="cuda") if context_features else None
        for call in (flow.log_prob, lambda *a, **k: flow.from_noise(*a, **k)[0]):
            whole = torch.cat(
                [call(*(part for part in parts if part is not None)) for parts in zip_parts(x, context, 1_000)]
            )
            assert torch.equal(call(x, context, batch_size=1_000), whole)
        flow.transform.transforms[-1].bias.add_(1.0)  # the next call must use the changed bias
        again = flow.log_prob(x, context, batch_size=1_000)
        assert torch.allclose(again, flow.log_prob(x, context, batch_size=20_000), atol=1e-4)


def zip_parts(x, context, size):
    parts = x.split(size)
    return zip(parts, [None] * len(parts) if context is None else context.split(size), strict=True)


def test_a_fit_may_be_the_first_to_use_the_gpu():
    program = """
import torch, cubicflow as cf
flow = cf.flows.plane(2, num_layers=1)
before = torch.get_rng_state()
cf.training.fit(flow, torch.rand(64, 2, generator=torch.Generator()), steps=2, device="cuda")
assert torch.equal(before, torch.get_rng_state())
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)
