"""The kernels after the backward pass change weights, moments, averages and records as the plain step does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from cubicflow.accel import captured_step, flat_weights
from cubicflow.training import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step

pytest.importorskip("triton")


def made_step(size: int, device: str, dtype: torch.dtype, **settings: object) -> Step:
    module = nn.Module()
    module.weight = nn.Parameter(torch.linspace(-2, 2, size, dtype=dtype, device=device))
    config = TrainingConfig(steps=10, batch_size=8, **settings).resolve(100)  # type: ignore[arg-type]
    step = Step(module, negative_log_likelihood, config, Processes(torch.device(device)), 1.0)
    step.weights = flat_weights.FlatWeights(list(module.parameters()))
    step.adam = flat_weights.FusedAdam(step.weights.tensors, config.beta2, config.weight_decay)
    if step.averages is not None:
        step.averages.weights, step.averages.tensors = step.weights, [step.weights.tensors[0].clone()]
    return step


def take(step: Step, finish, gradients: list[Tensor], losses: list[float]) -> list[Tensor]:
    """Return the flags of the steps, and everything that the steps changed."""
    flags = []
    for i, (gradient, loss) in enumerate(zip(gradients, losses, strict=True)):
        step.set_rates(0.1 / (i + 1), (1.0, 0.6, 0.2)[i % 3])
        like = step.weights.tensors[0]
        flags.append(finish(step, [gradient.to(like)], torch.tensor(loss, dtype=like.dtype, device=like.device)))
    return [torch.stack(flags), *(tensor.double() for tensor in captured_step.written_by(step))]


@pytest.mark.parametrize("size", [1, 9001])
@pytest.mark.parametrize("clip_norm", [None, 3.0])
@pytest.mark.parametrize("average_decay", [None, 0.9])
@pytest.mark.parametrize("bad", ["none", "loss", "gradient"])
def test_steps(request, size, clip_norm, average_decay, bad) -> None:
    """Compare with the plain code in float64, through steps that are clipped, and from a step that is not finite on."""
    from cubicflow.accel.fused_update import update

    device = str(request.config.getoption("--device"))
    generator = torch.Generator().manual_seed(size)
    gradients = [scale * torch.randn(size, generator=generator) / math.sqrt(size) for scale in (1, 50, 3, 1e-3, 1)]
    losses = [1.5, -2.0, 3.0, 0.25, 7.0]
    if bad == "loss":
        losses[3] = math.nan
    if bad == "gradient":
        gradients[3][-1] = -math.inf
    settings = {"clip_norm": clip_norm, "average_decay": average_decay, "weight_decay": 0.1}
    ours = take(
        made_step(size, device, torch.float32, **settings),
        lambda step, gradients, loss: update(step, gradients[0], loss),
        gradients,
        losses,
    )
    exact = take(made_step(size, "cpu", torch.float64, **settings), Step.finish, gradients, losses)
    assert exact[0].tolist() == [False] * 3 + [bad != "none"] * 2
    for mine, theirs in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=2e-6, atol=2e-6 if theirs.ndim else 1e-7)
