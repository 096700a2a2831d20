"""Flat weights and the fused optimiser give the same results and the same checkpoints as the plain ones."""

from __future__ import annotations

import pytest
import torch

import cubicflow as cf
from cubicflow.accel.captured_step import FastStepHook
from cubicflow.accel.flat_weights import FlatWeights, FusedAdam, can_be_flat
from cubicflow.training import fit
from cubicflow.training.optimiser import Adam, Weights
from cubicflow.training.step_hook import StepHook


@pytest.fixture
def use_hook(monkeypatch):
    def choose(hook: StepHook) -> None:
        monkeypatch.setattr("cubicflow.training.step.step_hook", hook)
        monkeypatch.setattr("cubicflow.training.loop.step_hook", hook)

    return choose


def train(use_hook, hook, **settings):
    use_hook(hook)
    torch.manual_seed(0)
    flow = cf.flows.tabular(3, num_layers=2, hidden_features=16, num_bins=5).double()
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(1)).double()
    fit(flow, x, batch_size=50, learning_rate=1e-2, weight_decay=0.1, device="cpu", progress=False, **settings)
    return flow


def test_plain_and_fast_steps_train_alike(use_hook):
    plain, fast = (train(use_hook, hook, steps=30, validation_fraction=0.0) for hook in (StepHook(), FastStepHook()))
    for mine, theirs in zip(plain.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("first", [StepHook(), FastStepHook()], ids=["plain first", "fast first"])
def test_a_run_resumes_with_the_other_hook(use_hook, first, tmp_path):
    second = FastStepHook() if type(first) is StepHook else StepHook()
    calls = iter(range(10**6))

    def loss(flow, batch):
        if next(calls) == 15:
            raise RuntimeError("as if the machine died")
        return -flow.log_prob(batch.x)

    settings = {"steps": 30, "validation_fraction": 0.0, "run": tmp_path / "run", "checkpoint_seconds": 0}
    with pytest.raises(RuntimeError, match="machine died"):
        train(use_hook, first, loss=loss, **settings)
    resumed = train(use_hook, second, resume=True, **settings)
    whole = train(use_hook, first, steps=30, validation_fraction=0.0)
    for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", [Adam, FusedAdam])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_adam_equals_torchs(kind, dtype):
    """Compare with torch's AdamW in its plain form, one parameter at a time, with a skipped step in between."""
    torch.manual_seed(0)
    shapes = [(50,)] if kind is FusedAdam else [(50,), (3, 4), ()]
    tensors = [torch.randn(shape, dtype=dtype) for shape in shapes]
    theirs = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
    mine = kind(tensors, beta2=0.98, weight_decay=0.1)
    optimiser = torch.optim.AdamW(theirs, lr=1e-2, betas=(0.9, 0.98), weight_decay=0.1, foreach=False, fused=False)
    for i in range(20):
        gradients = [torch.randn(shape, dtype=dtype) for shape in shapes]
        if i == 7:
            before = [tensor.clone() for group in (tensors, *mine.moments.values()) for tensor in group]
            mine.update(
                [torch.full_like(part, torch.nan) for part in gradients], torch.tensor(1e-2), torch.tensor(True)
            )
            after = [tensor for group in (tensors, *mine.moments.values()) for tensor in group]
            assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        mine.update([part.clone() for part in gradients], torch.tensor(1e-2), torch.tensor(False))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        optimiser.step()
    for tensor, parameter in zip(tensors, theirs, strict=True):
        torch.testing.assert_close(tensor, parameter.data, rtol=1e-6, atol=1e-6 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("kind", [Weights, FlatWeights])
def test_weights_are_the_parameters(kind):
    params = [torch.nn.Parameter(torch.arange(3.0)), torch.nn.Parameter(torch.ones(2, 2))]
    weights = kind(params)
    versions = [param._version for param in params]
    for tensor in weights.tensors:
        tensor.mul_(2)
    weights.bump_versions()
    assert params[0].tolist() == [0, 2, 4]
    assert all(param._version > version for param, version in zip(params, versions, strict=True))
    (params[0].sum() * 3).backward()
    assert torch.cat([part.flatten() for part in weights.gradients()]).tolist() == [3.0] * 3 + [0.0] * 4
    weights.zero_grad()
    weights.unflatten()
    assert all(param.grad is None and param._base is None for param in params)
    assert params[1].tolist() == [[2, 2], [2, 2]]


def test_parameters_of_two_kinds_stay_apart():
    one, two = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2).double())
    assert can_be_flat([one])
    assert not can_be_flat([one, two])
    assert type(FastStepHook().weights([one, two])) is Weights
