"""The training step of a model of columns as a CUDA graph."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.device_copies import copies

from cubicflow.accel.captured_step import CapturedStep, captured_validation
from cubicflow.data.rows import Batch
from cubicflow.tables.model.network import CORES, ColumnsModel
from cubicflow.training import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step


@pytest.mark.parametrize("core", CORES)
def test_models_of_columns(core):
    # Words, steps, a real column with atoms and an angle; two columns whose words never meet; a context column.
    columns = {"context_outcomes": [2], "context_shapes": [0], "circles": [3], "strangers": [[0, 1, 1, 1]]}
    settings = {"core": core, "hidden_features": 16, "cell_dropout": 0.1, "dropout": 0.1}
    model = ColumnsModel([3, 2, 1, 4], [0, 1, 2, 1], **columns, **settings).to("meta")
    x, context = torch.zeros(8, 16, device="meta"), torch.zeros(8, 4, device="meta")
    assert copies(lambda: model.log_prob(x, context).sum().backward()) == set()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_step_of_a_model_of_columns_is_captured():
    model = ColumnsModel([3, 2, 1], [0, 1, 2], circles=[2], strangers=[[0, 1, 1, 1]], hidden_features=16).cuda()
    config = TrainingConfig(steps=1000, batch_size=64, precision="float32").resolve(10_000)
    step = Step(model, negative_log_likelihood, config, Processes(torch.device("cuda", 0)), 1.0, None)
    take = CapturedStep(step, pytest.fail)
    cells = torch.tensor([[0, 0, 1, 0], [0, 0.3, 0.6, math.log(0.1)], [0, 0.3, 0.7, 0]]).flatten()
    # Detached: a clone with a graph keeps autograd nodes of the default stream alive, and these break a capture.
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(5):
        step.set_rates(1e-3, 0.1)
        take(Batch(cells.expand(64, -1).cuda()))
    assert take.replay is not None
    assert any(not torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("core", CORES)
def test_the_validation_of_a_model_of_columns_is_captured(core):
    model = ColumnsModel([3, 2, 1], [0, 1, 2], circles=[2], core=core, hidden_features=16).cuda().eval()
    step = Step(model, negative_log_likelihood, TrainingConfig(), Processes(torch.device("cuda", 0)), 1.0, None)
    captured = captured_validation(step, pytest.fail)
    cells = torch.tensor([[0, 0, 1, 0], [0, 0.3, 0.6, math.log(0.1)], [0, 0.3, 0.7, 0]]).flatten().expand(64, -1).cuda()
    found = [captured(Batch(cells)).clone() for _ in range(3)]
    assert [replay is not None for replay in captured.replays.values()] == [True]
    assert all(torch.equal(sums, step.validation_sums(Batch(cells))) for sums in found)
