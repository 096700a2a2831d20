"""A loss that is not finite ends a fit. The run keeps the last good state, and the error names a likely cause."""

from __future__ import annotations

import pytest
import torch

import cubicflow as cf
from cubicflow.data.rows import Batch
from cubicflow.training import NonFiniteLossError, fit
from cubicflow.training.checkpoint import NEWEST, read_checkpoint
from cubicflow.training.losses import negative_log_likelihood

from .own_modules import OwnFlow
from .small_fits import acting_at


def test_non_finite_loss_stops_and_keeps_the_last_good_state(x, make_flow, tmp_path):
    run = tmp_path / "run"
    poison = [False]

    def loss(flow, batch):
        losses = negative_log_likelihood(flow, batch)
        return losses * float("nan") if poison[0] and flow.training else losses

    at_ten = acting_at(10, lambda: poison.__setitem__(0, True))

    def poisoned(flow, batch):
        at_ten(flow, batch)
        return loss(flow, batch)

    settings = {"validation_fraction": 0.0, "average_decay": None, "progress": False}
    flow = make_flow(dropout=0.0)
    with pytest.raises(NonFiniteLossError, match=r"the loss of step 10 is not finite. Likely cause: .*keeps the last"):
        fit(flow, x, steps=30, run=run, loss=poisoned, **settings)
    before = []  # the weights before each step of an undisturbed run

    def recording(flow, batch):
        before.append([param.detach().clone() for param in flow.parameters()])
        return negative_log_likelihood(flow, batch)

    fit(make_flow(dropout=0.0), x, steps=30, loss=recording, **settings)
    saved = read_checkpoint(run / NEWEST)
    assert saved.numbers.step == 11
    for (name, param), expected in zip(flow.named_parameters(), before[11], strict=True):
        assert torch.equal(param, expected)
        assert torch.equal(saved.tensors[f"flow.{name}"], expected.cpu())
    assert fit(make_flow(dropout=0.0), x, steps=30, run=run, resume=True, **settings).steps == 30


@pytest.mark.parametrize("at", [0, 10])
def test_a_step_that_is_not_finite_leaves_the_statistics_of_batch_norm(x, make_flow, tmp_path, at):
    """Rows that are not finite change the running means before the loss is computed."""
    before = []

    def poisoned(flow, batch):
        before.append({name: value.clone() for name, value in flow.named_buffers()})
        rows = batch.x * torch.nan if len(before) > at + 1 or at == 0 else batch.x  # the first call initialises layers
        return negative_log_likelihood(flow, Batch(rows))

    flow = make_flow(norm="batch", dropout=0.0)
    assert any("running_mean" in name for name, _ in flow.named_buffers())
    with pytest.raises(NonFiniteLossError, match=f"the loss of step {at} is not finite"):
        fit(flow, x, steps=30, run=tmp_path / "run", loss=poisoned, validation_fraction=0.0, progress=False)
    saved = read_checkpoint(tmp_path / "run" / NEWEST).tensors
    for name, value in flow.named_buffers():
        assert value.isfinite().all(), name
        assert torch.equal(value, before[at + 1][name]), name
        assert torch.equal(saved[f"flow.{name}"], value.cpu()), name


def test_a_step_that_is_not_finite_leaves_the_buffers_of_a_users_own_module(x):
    """Its names are its own, and it may replace a buffer or use an expanded one."""
    flow = OwnFlow()
    flow.register_buffer("row", torch.ones(1).expand(2))
    flow.register_buffer("total", torch.zeros(2), persistent=False)
    before = []  # the buffers before each call

    def loss(flow, batch):
        before.append({name: buffer.clone() for name, buffer in flow.named_buffers()})
        losses = -flow.log_prob(batch.x)
        flow.total = flow.total + batch.x.sum(0)
        return losses * torch.nan if len(before) >= 6 else losses  # the first call initialises layers

    with pytest.raises(NonFiniteLossError, match="the loss of step 4 is not finite"):
        fit(flow, x, steps=30, loss=loss, validation_fraction=0.0, progress=False)
    assert all(torch.equal(buffer, before[5][name]) for name, buffer in flow.named_buffers())


def test_the_cause_names_rows_outside_the_unit_square(tmp_path):
    x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)) * 1.01
    with pytest.raises(
        NonFiniteLossError,
        match=r"rows have a NaN.*a density for values from 0 to 1 of feature \d; scale the data into the box",
    ):
        fit(cf.flows.plane(num_bins=4, hidden_features=4), x, steps=30, progress=False)
