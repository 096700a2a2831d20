"""The best weights of a run, and the copies of a checkpoint."""

from __future__ import annotations

import pytest
import torch

import cubicflow as cf
from cubicflow.accel.captured_step import FastStepHook
from cubicflow.training import TrainingConfig
from cubicflow.training.checkpoint import copied_to_cpu
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.records import AVERAGED, RAW
from cubicflow.training.state import TrainingState
from cubicflow.training.step import Step
from cubicflow.training.step_hook import StepHook


@pytest.mark.parametrize("hook", [StepHook(), FastStepHook()], ids=["a tensor per parameter", "one flat vector"])
@pytest.mark.parametrize("kind", [RAW, AVERAGED])
def test_the_best_weights_are_those_of_the_flow(hook, kind, monkeypatch):
    """With batch norm, whose running means are no parameters, a weight that is not trained, and a weight that two
    modules share."""
    monkeypatch.setattr("cubicflow.training.step.step_hook", hook)
    flow = cf.flows.tabular(3, num_layers=2, hidden_features=8, norm="batch")
    flow.transform[0].bias.requires_grad_(False)
    flow.transform[2].bias = flow.transform[4].bias
    step = Step(flow, negative_log_likelihood, TrainingConfig(), Processes(torch.device("cpu")), mean_weight=1.0)
    state = TrainingState(step)
    buffers = [buffer for buffer in flow.buffers() if buffer.is_floating_point()]
    start = {name: value.clone() for name, value in flow.state_dict().items()}
    with torch.no_grad():
        for tensor in (*step.weights.tensors, *buffers, flow.transform[0].bias):
            tensor += 1
    raw = {name: value.clone() for name, value in flow.state_dict().items()}
    state.keep(kind)
    assert state.best.keys() == raw.keys()
    trained = {name for name, p in flow.named_parameters(remove_duplicate=False) if p.requires_grad}
    expected = {name: start[name] if kind == AVERAGED and name in trained else value for name, value in raw.items()}
    assert all(torch.equal(value, expected[name]) for name, value in state.best.items())
    for name, value in flow.state_dict().items():
        assert torch.equal(value, raw[name]), name
    with torch.no_grad():
        for tensor in step.weights.tensors:
            tensor += 1
    assert all(torch.equal(value, expected[name]) for name, value in state.best.items())


def test_copies_of_a_checkpoint_have_the_same_values_and_their_own_memory():
    tensors = {
        "weight": torch.randn(3, 4).T,
        "step": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "bias": torch.randn(5, dtype=torch.float64)[::2],
        "flag": torch.tensor([True, False]),
        "half": torch.ones(1, 2, dtype=torch.bfloat16),
        "counts": torch.arange(4),
    }
    copies = copied_to_cpu(tensors)
    assert list(copies) == list(tensors)
    for name, value in tensors.items():
        assert torch.equal(copies[name], value)
        assert copies[name].dtype == value.dtype
        assert copies[name].is_contiguous()
        value.zero_()
    assert copies["step"] == 3
    assert copies["weight"].abs().sum() > 0
