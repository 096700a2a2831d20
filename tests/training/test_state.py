"""The best weights of a run, and the copies of a checkpoint."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import cubicflow as cf
from cubicflow.accel.captured_step import FastStepHook
from cubicflow.training import TrainingConfig
from cubicflow.training.checkpoint import AVERAGED, RAW, on_cpu
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
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


def test_the_tensors_of_a_checkpoint_share_no_memory():
    shared = torch.randn(6)
    tensors = {
        "weight": torch.randn(3, 4).T,
        "step": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "bias": torch.randn(5, dtype=torch.float64)[::2],
        "flag": torch.tensor([True, False]),
        "half": torch.ones(1, 2, dtype=torch.bfloat16),
        "counts": torch.arange(4),
        "expanded": torch.ones(1).expand(3),
        "first": shared[:3],
        "same": shared[:3],
        "overlapping": shared[2:5],
        "rest": shared[5:],
        "whole": shared,
    }
    content = on_cpu(tensors)
    assert list(content) == list(tensors)
    places = sorted((value.data_ptr(), value.data_ptr() + value.nbytes) for value in content.values() if value.nbytes)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    for name, value in tensors.items():
        assert torch.equal(content[name], value)
        assert content[name].dtype == value.dtype
        assert content[name].is_contiguous()
    assert content["counts"].data_ptr() == tensors["counts"].data_ptr()
