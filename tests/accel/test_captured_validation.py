"""Validation by captured graphs: the same numbers as plain validation, bit for bit.

On the CPU, a function that runs again at every replay stands for a graph. The real graphs are compared on a GPU.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch

import cubicflow as cf
from cubicflow.accel.capture import Captured
from cubicflow.accel.captured_step import FastStepHook, captured_validation
from cubicflow.data.rows import TensorRows
from cubicflow.nets.rng import current_generator
from cubicflow.training import TrainingConfig, fit, one_pass
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import dequantised_likelihood, negative_log_likelihood
from cubicflow.training.state import TrainingState
from cubicflow.training.step import Step
from cubicflow.training.validation import Validation

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


class Rerun:
    """In place of a graph: it runs the function again and overwrites the outputs."""

    def __init__(self, run, outputs):
        self.run, self.outputs = run, outputs

    def replay(self):
        self.outputs.copy_(self.run())


@pytest.fixture
def captures(monkeypatch, request):
    """Return a list that grows with every capture on the CPU."""
    made = []

    def capture(run, _device):
        outputs = run()
        made.append(outputs)
        return Rerun(run, outputs), outputs

    if request.node.callspec.params.get("device", "cpu") == "cpu":
        monkeypatch.setattr("cubicflow.accel.capture.capture", capture)
        monkeypatch.setattr("cubicflow.accel.capture.random_numbers_kept", own_generator_kept)
    return made


@contextmanager
def own_generator_kept(device):
    """A capture on a GPU draws nothing, but the function that stands for it does."""
    generator = current_generator(device) or torch.default_generator
    state = generator.get_state()
    yield
    generator.set_state(state)


def pixels() -> torch.Tensor:
    return torch.randint(0, 256, (100, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def table(*sizes: int) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(100, size, generator=generator) if size else None for size in sizes]


CASES = {
    "rows": (lambda: cf.flows.tabular(3, num_layers=2, hidden_features=8), table(3), negative_log_likelihood),
    "context and weights": (
        lambda: cf.flows.tabular(3, num_layers=2, hidden_features=8, context_features=2, norm="batch", dropout=0.5),
        [*table(3, 2), torch.arange(100) / 50],
        negative_log_likelihood,
    ),
    "images with drawn noise": (
        lambda: cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, hidden_features=4),
        [pixels()],
        dequantised_likelihood,
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_captured_sums_are_the_plain_ones_for_all_weights_of_a_run(case, device, captures):
    make, parts, loss = CASES[case]
    torch.manual_seed(0)
    step = Step(make().to(device), loss, TrainingConfig(), Processes(torch.device(device)), mean_weight=1.0)
    state = TrainingState(step)
    validation = Validation(state, TensorRows(*parts).on(torch.device(device)), pytest.fail)
    validation.batch_rows = 30  # batches of 30, 30, 30 and 10 rows
    step.initialise(validation.first_batch())
    plain, captured = step.validation_sums, captured_validation(step, pytest.fail)
    for _ in range(3):
        found = []
        for validation.sums in (plain, captured):
            state.best_loss = torch.inf
            found.append((validation(), {name: value.clone() for name, value in state.best.items()}))
        assert found[0][0] == found[1][0]
        assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())
        with torch.no_grad():
            for tensor in step.weights.tensors:
                tensor.add_(0.1 * torch.randn_like(tensor))
        step.averages.update(torch.tensor(0.5, device=device))
    assert all(replay is not None for replay in captured.replays.values())
    assert len(captured.replays) == 2
    assert len(captures) == (2 if device == "cpu" else 0)


@pytest.mark.parametrize("device", ["cpu"])
def test_only_two_shapes_are_captured(device, captures):
    step = Step(
        cf.flows.tabular(2), negative_log_likelihood, TrainingConfig(), Processes(torch.device(device)), mean_weight=1.0
    )
    captured = captured_validation(step, pytest.fail)
    for rows in (5, 6, 7, 5, 6, 7, 7):
        batch = next(TensorRows(torch.ones(rows, 2)).in_order(rows))
        assert torch.equal(captured(batch), step.validation_sums(batch))
    assert len(captures) == 2


def test_a_capture_that_fails_is_told_once_and_validation_goes_on(monkeypatch):
    def no_capture(*_):
        raise RuntimeError("out of memory\nwith details")

    monkeypatch.setattr("cubicflow.accel.capture.capture", no_capture)
    monkeypatch.setattr("cubicflow.accel.capture.random_numbers_kept", lambda _: nullcontext())
    step = Step(
        cf.flows.tabular(2), negative_log_likelihood, TrainingConfig(), Processes(torch.device("cpu")), mean_weight=1.0
    )
    said = []
    captured = captured_validation(step, said.append)
    batch = next(TensorRows(torch.ones(5, 2)).in_order(5))
    assert [captured(batch).tolist() for _ in range(4)] == [step.validation_sums(batch).tolist()] * 4
    assert said == ["validation is slower, because it is not captured: out of memory"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_fit_validates_by_graphs_with_the_same_losses(monkeypatch):
    x = torch.randn(3_000, 3, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr("cubicflow.training.validation.GPU_BATCH_ROWS", 400)
    made = []

    def fitted(*, captured: bool):
        torch.manual_seed(0)
        flow = cf.flows.tabular(3, num_layers=2, hidden_features=16, dropout=0.1)
        with monkeypatch.context() as patch:
            if captured:
                init = Captured.__init__
                patch.setattr(Captured, "__init__", lambda self, *a: (init(self, *a), made.append(self))[0])
            else:
                patch.setattr(FastStepHook, "prepared_validation", lambda _, step, __: step.validation_sums)
            settings = {"steps": 20, "validate_every": 5, "batch_size": 64, "device": "cuda", "progress": False}
            return fit(flow, x[1_000:], x[:1_000], **settings)

    by_graphs, plain = fitted(captured=True), fitted(captured=False)
    assert [replay is not None for replay in made[0].replays.values()] == [True, True]
    losses = [
        [
            (line["validation_loss"], line["validation_loss_averaged"])
            for line in result.history
            if "validation_loss" in line
        ]
        for result in (by_graphs, plain)
    ]
    assert len(losses[0]) == 4
    assert losses[0] == losses[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_loss_that_waits_for_the_gpu_is_validated_plainly():
    @one_pass
    def waiting(flow, batch):
        assert float(batch.x.sum()) == float(batch.x.sum())
        return -flow.log_prob(batch.x)

    said = []
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(1))
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    result = fit(flow, x, loss=waiting, steps=4, validate_every=1, device="cuda", progress=said.append)
    assert sum("validation is slower" in line for line in said) == 1
    again = fit(flow, x, loss=lambda flow, batch: waiting(flow, batch), steps=1, device="cuda", progress=False)
    assert torch.isfinite(torch.tensor([result.validation_loss, again.validation_loss])).all()
