"""Fits with symmetries: training batches, validation batches, resumed runs and refused arguments."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch

import cubicflow as cf
from cubicflow.data.rows import Batch
from cubicflow.data.symmetries import Symmetries
from cubicflow.training import NonFiniteLossError, RunFolderError, TrainingConfig, TrainingInterrupted, fit, reverse_kl
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step

SETTINGS = {"steps": 12, "validate_every": 4, "batch_size": 100, "progress": False}
SIGNS = Symmetries([[[a, 0.0], [0.0, b]] for a in (1.0, -1.0) for b in (1.0, -1.0)])
SWAP = Symmetries.of_permutations([[0, 1], [1, 0]])


def test_steps_see_images_and_validation_sees_rows(x, make_flow):
    """Every row of a training batch is an image of a training row. Each epoch draws new images."""
    train, validation = x[:200], x[200:300]
    seen, validated = [], []

    def loss(flow, batch):
        (seen if flow.training else validated).append(batch.x.clone())
        assert torch.equal(batch.weights, batch.x[:, 0].abs() + 1)  # an image has the weight of its row
        return negative_log_likelihood(flow, batch)

    weighted = [(part, None, part[:, 0].abs() + 1) for part in (train, validation)]
    fit(make_flow(), *weighted, loss=loss, symmetries=SIGNS, **SETTINGS)
    for rows in validated:
        assert torch.equal(rows, validation)
    epochs = [torch.cat(pair) for pair in zip(seen[1::2], seen[2::2], strict=True)]  # seen[0] initialised layers
    assert len(epochs) == 6
    order = train.abs()[:, 0].argsort()
    signs = []
    for rows in epochs:
        in_order = rows[rows.abs()[:, 0].argsort()]
        assert torch.equal(in_order.abs(), train.abs()[order])
        signs.append(in_order.sign())
    drawn = torch.stack(signs)  # (6, 200, 2)
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(drawn))
    # 2400 fair signs: the standard deviation of their mean is 1 / sqrt(2400).
    relative = drawn * train[order].sign()
    assert abs(float(relative.mean())) < 4 / math.sqrt(relative.numel())


def test_the_identity_alone_changes_nothing(x, make_flow, assert_same):
    flows = [make_flow(dropout=0.0) for _ in range(2)]
    fit(flows[0], x, symmetries=Symmetries(torch.eye(2)[None]), **SETTINGS)
    fit(flows[1], x, **SETTINGS)
    assert_same(*flows)


def test_half_of_a_density_is_enough():
    """The training rows are made positive. A fit with random signs still finds the density over both signs."""
    z = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0))
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, num_blocks=1, num_bins=4)
    settings = {"steps": 100, "validate_every": 25, "learning_rate": 2e-2, "progress": False}
    result = fit(flow, z[:2000].abs(), z[2000:], symmetries=SIGNS, **settings)
    entropy = -torch.distributions.Normal(0.0, 1.0).log_prob(z[2000:]).sum(-1).mean()  # of the validation rows
    assert result.validation_loss == pytest.approx(float(entropy), abs=0.03)


def test_a_resumed_fit_is_the_unbroken_one(x, make_flow, tmp_path, assert_same):
    whole = fit(make_flow(), x, symmetries=SIGNS, **SETTINGS)
    calls = iter(range(10**6))
    with pytest.raises(TrainingInterrupted, match="stopped at step 6"):
        fit(make_flow(), x, run=tmp_path, symmetries=SIGNS, stop=lambda: next(calls) == 5, **SETTINGS)
    resumed = fit(make_flow(), x, run=tmp_path, resume=True, symmetries=SIGNS, **SETTINGS)
    assert_same(resumed.flow, whole.flow)
    assert resumed.validation_loss == whole.validation_loss
    plain = fit(make_flow(), x, **SETTINGS)
    assert plain.validation_loss != whole.validation_loss


def test_a_run_remembers_its_symmetries(x, make_flow, tmp_path):
    fit(make_flow(), x, run=tmp_path / "drawn", symmetries=SWAP, **SETTINGS)
    assert json.loads((tmp_path / "drawn/config.json").read_text())["data"]["symmetries"] == SWAP.described()
    other = Symmetries.of_permutations([[1, 0], [0, 1]])
    for given, now in ((None, "None"), (SIGNS, "'4 maps of 2 columns, "), (other, "'2 maps of 2 columns, ")):
        with pytest.raises(RunFolderError, match=f"symmetries was '2 maps of 2 columns, .*', is now {now}"):
            fit(make_flow(), x, run=tmp_path / "drawn", resume=True, symmetries=given, **SETTINGS)
    assert fit(make_flow(), x, run=tmp_path / "drawn", resume=True, symmetries=SWAP, **SETTINGS).steps == 12


def test_a_run_without_symmetries_says_nothing_of_them(x, make_flow, tmp_path):
    """Runs of versions without symmetries can therefore be resumed."""
    fit(make_flow(), x, run=tmp_path / "plain", **SETTINGS)
    assert "symmetries" not in json.loads((tmp_path / "plain/config.json").read_text())["data"]
    with pytest.raises(RunFolderError, match="symmetries was None, is now '2 maps of 2 columns, "):
        fit(make_flow(), x, run=tmp_path / "plain", resume=True, symmetries=SWAP, **SETTINGS)


def test_layers_that_take_their_scale_from_a_batch_see_images(x):
    """ActNorm gives the first batch mean 0 and std 1. The batch must hold images, with random signs, not the rows."""
    flow = cf.Flow(cf.distributions.StandardNormal(2), cf.transforms.ActNorm(2))
    config = TrainingConfig(steps=10, batch_size=500).resolve(500)
    step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cpu")), 1.0, SIGNS)
    rows = x[:500].abs() + 3.0
    torch.manual_seed(0)
    flow.train()
    step.initialise(Batch(rows))
    torch.manual_seed(0)
    z, _ = flow.to_noise(SIGNS.draw(rows))
    torch.testing.assert_close(z.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones(2), atol=2e-3, rtol=0)  # std() divides by N - 1, ActNorm by N


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(300, 3), "has maps of 2 columns, but train has 3"),
        (torch.zeros(300, 1, 2, 1), r"needs rows of floats in columns, but train has rows of shape \(1, 2, 1\)"),
        (torch.zeros(300, 2, dtype=torch.uint8), r"rows of shape \(2,\) and dtype torch.uint8; give x.flatten\(1\)"),
        (torch.zeros(300, 2, dtype=torch.int64), "dtype torch.int64"),
        (None, "train=None has no rows"),
    ],
)
def test_other_rows_are_refused_before_training(rows, message, tmp_path):
    flow = torch.nn.Linear(1, 1)  # any module: the rows are checked first
    with pytest.raises(ValueError, match=f"^symmetries= .*{message}"):
        fit(flow, rows, loss=reverse_kl(torch.sum), symmetries=SWAP, run=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_invalid_symmetries_are_refused(x, make_flow):
    with pytest.raises(TypeError, match=r"symmetries= must be cubicflow\.data\.symmetries\.Symmetries, got str"):
        fit(make_flow(), x, symmetries="mirror", **SETTINGS)


def test_maps_that_lead_out_of_the_data_are_named():
    """A flow on the unit square has no density at negative values."""
    flow = cf.flows.plane(num_layers=1, hidden_features=8)
    rows = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    fit(flow, rows, symmetries=SWAP, **SETTINGS)
    with pytest.raises(
        NonFiniteLossError, match=r"step 0 .* images of these rows under symmetries= have a NaN or infinite loss"
    ):
        fit(flow, rows, symmetries=SIGNS, **SETTINGS)
