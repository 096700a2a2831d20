"""The training loop: it learns, it is repeatable, and it keeps the best weights."""

from __future__ import annotations

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cubicflow as cf
from cubicflow.data.rows import Batch, TensorRows
from cubicflow.training import NonFiniteLossError, TrainingConfig, TrainingError, fit
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.state import TrainingState
from cubicflow.training.step import Step
from cubicflow.training.validation import Validation


def mean_loss(flow, x, weights=None):
    """Return the validation loss, computed independently of the loop."""
    with torch.no_grad():
        losses = -flow.log_prob(x).double()
    weights = torch.ones(len(x)) if weights is None else weights
    return float((weights * losses).sum() / weights.sum())


def test_learns_a_density_near_its_entropy():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 2, generator=generator) * torch.tensor([2.0, 0.5]) + torch.tensor([1.0, -3.0])
    entropy = math.log(2 * math.pi * math.e)  # a normal with standard deviations 2 and 1/2
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, num_blocks=1, num_bins=4)
    result = fit(flow, x[:3000], x[3000:], steps=150, validate_every=15, learning_rate=5e-2, progress=False)
    # The loss of a row has variance D / 2 = 1, so the mean over 1000 validation rows has standard error 1 / sqrt(1000).
    assert abs(result.validation_loss - entropy) < 4 / math.sqrt(1000) + 0.02
    assert result.validation_loss == pytest.approx(mean_loss(result.flow, x[3000:]), abs=1e-5)
    assert not result.flow.training


def test_the_first_step_is_reported_apart(x, make_flow, monkeypatch):
    """It compiles kernels and captures graphs, so it does not count in the speed of the other steps."""
    clock = [0.0]
    durations = itertools.chain([50.0, 100.0], itertools.repeat(2.0))  # initialisation, the first step, other steps

    def loss(flow, batch):
        clock[0] += next(durations) if flow.training else 0.0
        return -flow.log_prob(batch.x)

    monkeypatch.setattr("cubicflow.training.loop.time", SimpleNamespace(monotonic=lambda: clock[0]))
    settings = {"steps": 8, "log_every": 2, "batch_size": 64, "validate_every": 8}
    history = fit(make_flow(), x, loss=loss, progress=False, **settings).history
    assert [line.get("first_step_seconds") for line in history] == [100.0, None, None, None]
    assert [line["rows_per_second"] for line in history] == [32.0] * 4


def test_is_repeatable_and_leaves_the_global_generator_alone(x, make_flow, assert_same):
    first = fit(make_flow(), x, steps=10, progress=False)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    flow = make_flow()
    torch.set_rng_state(before)
    second = fit(flow, x, steps=10, progress=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(first.flow, second.flow)
    other = fit(make_flow(), x, steps=10, seed=1, progress=False)
    assert not torch.equal(next(first.flow.parameters()), next(other.flow.parameters()))


@pytest.mark.parametrize(("beta2", "decay"), [(0.999, 0.0), (0.9, 0.1)])
def test_adam_clipping_and_cosine_agree_with_a_plain_loop(x, make_flow, beta2, decay):
    """Compare with a short loop of torch's own AdamW, clip_grad_norm_ and CosineAnnealingLR."""
    steps, lr = 20, 3e-3
    flow = make_flow(dropout=0.0).double()
    plain = make_flow(dropout=0.0).double()
    x = x.double()[:256]
    seen = []

    def loss(flow, batch):
        if flow.training:
            seen.append(batch.x.clone())
        return negative_log_likelihood(flow, batch)

    settings = {"warmup_steps": 0, "clip_norm": 0.5, "validation_fraction": 0.0, "average_decay": None}
    settings |= {"beta2": beta2, "weight_decay": decay}
    fit(flow, x, steps=steps, learning_rate=lr, loss=loss, progress=False, **settings)
    adam = {"betas": (0.9, beta2), "weight_decay": decay, "foreach": False, "fused": False}
    optimiser = torch.optim.AdamW(plain.parameters(), lr=lr, **adam)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for rows in seen[1:]:  # seen[0] initialised layers
        optimiser.zero_grad()
        (-plain.log_prob(rows).mean()).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimiser.step()
        schedule.step()
    assert len(seen) == steps + 1
    for mine, theirs in zip(flow.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)  # the learning rate is a float32 tensor


def test_averages_are_the_weighted_history(x, make_flow):
    """The average after n steps is a sum over the history. The test computes its weights from the schedule."""
    flow = make_flow()
    history = []

    def loss(flow, batch):
        history.append([param.detach().clone() for param in flow.parameters()])
        return negative_log_likelihood(flow, batch)

    n = 15
    settings = {"validation_fraction": 0.0, "average_decay": 0.6, "batch_size": 64}
    result = fit(flow, x, steps=n, loss=loss, progress=False, **settings)
    raw = fit(make_flow(), x, steps=n, progress=False, **{**settings, "average_decay": None})
    assert (result.weights, raw.weights) == ("averaged", "raw")
    history.append([param.detach() for param in raw.flow.parameters()])
    history = history[1:]  # the first call initialised layers
    expected = history[0]
    for i in range(n):
        w = max(1 - 0.6, 9 / (10 + i))
        expected = [(1 - w) * average + w * new for average, new in zip(expected, history[i + 1], strict=True)]
    for mine, theirs in zip(result.flow.parameters(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_early_stopping_keeps_the_best(x, make_flow):
    """Three hundred parameters overfit 30 rows quickly."""
    flow = make_flow(hidden_features=64, num_bins=16, dropout=0.0)
    settings = {"steps": 2000, "learning_rate": 2e-2, "validate_every": 5, "patience": 6, "batch_size": 30}
    result = fit(flow, x[:30], x[300:], progress=False, **settings)
    assert result.stopped == "patience"
    validations = [m for m in result.history if "validation_loss" in m]
    best = min(validations, key=lambda m: min(m["validation_loss"], m["validation_loss_averaged"]))
    assert result.best_step == best["step"] == result.steps - 6 * 5
    assert result.validation_loss == min(best["validation_loss"], best["validation_loss_averaged"])
    winner = "averaged" if best["validation_loss_averaged"] < best["validation_loss"] else "raw"
    assert result.weights == winner
    assert result.validation_loss == pytest.approx(mean_loss(result.flow, x[300:]), abs=1e-5)


def test_time_budget_ends_the_run_and_the_schedule(x, make_flow):
    result = fit(make_flow(), x, time_budget=0.5, validate_every=1000, progress=False)
    assert result.stopped == "time_budget"
    assert result.seconds >= 0.5
    assert result.history[-1]["validation_loss"] is not None
    steps = result.config.steps
    assert steps is None


@pytest.mark.parametrize("validation_rows", [60, 600])
@pytest.mark.parametrize("limit", [{}, {"steps": 50_000}], ids=["no steps", "many steps"])
def test_a_time_budget_alone_decides_when_to_validate(x, make_flow, monkeypatch, validation_rows, limit):
    """The clock advances by what a pass costs: a step costs three passes over its rows, a validation one for each set
    of weights. The budget is that of 200 steps."""
    now, spent = [0.0], {True: 0, False: 0}

    def loss(flow, batch):
        cost = len(batch.x) * (3 if flow.training else 1)
        now[0] += cost
        spent[flow.training] += cost
        return negative_log_likelihood(flow, batch)

    monkeypatch.setattr("cubicflow.training.loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    budget = 200 * 3 * 64
    result = fit(make_flow(), x, x[:validation_rows], loss=loss, time_budget=budget, progress=False, **limit)
    assert result.stopped == "time_budget"
    assert 160 <= result.steps <= 200
    validated = [line["step"] for line in result.history if "validation_loss" in line]
    assert spent[False] <= spent[True] / 5 + 2 * validation_rows
    fewest = 5 * 2 * validation_rows / (3 * 64)  # steps between validations, by their cost
    assert len(validated) >= min(100, result.steps / fewest) / 2
    assert max(line["learning_rate"] for line in result.history) > 0.95 * result.config.learning_rate
    assert len(result.history) >= 100


def test_row_weights_act_like_repeated_rows(x, make_flow):
    """On a full batch, a row with weight 3 gives the same loss and gradient as three equal rows."""
    counts = torch.randint(1, 4, (100,), generator=torch.Generator().manual_seed(1))
    repeated = x[:100].repeat_interleave(counts, dim=0).double()
    settings = {"steps": 10, "validation_fraction": 0.0, "progress": False, "clip_norm": None}
    flows = [make_flow(dropout=0.0).double() for _ in range(2)]
    fit(flows[0], (x[:100].double(), None, 7 * counts.double()), batch_size=100, **settings)
    fit(flows[1], repeated, batch_size=len(repeated), **settings)
    for mine, theirs in zip(flows[0].parameters(), flows[1].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_validation_is_weighted(x, make_flow):
    flow = make_flow()
    weights = torch.rand(len(x), generator=torch.Generator().manual_seed(2))
    processes = Processes(torch.device("cpu"))
    step = Step(flow, negative_log_likelihood, TrainingConfig(), processes, mean_weight=1.0)
    flow.train()
    found = Validation(TrainingState(step), TensorRows(x, None, weights), pytest.fail).mean_loss()
    flow.eval()
    assert found == pytest.approx(mean_loss(flow, x, weights), rel=1e-6)


def test_a_loss_may_differentiate_on_its_way():
    """The loss of score matching (Hyvarinen), s^2 / 2 + s', is at least -1/8 for a normal with standard deviation 2."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(400, 1, generator=generator)

    def score_matching(flow, batch):
        rows = batch.x.requires_grad_()
        (score,) = torch.autograd.grad(flow.log_prob(rows).sum(), rows, create_graph=True)
        (slope,) = torch.autograd.grad(score.sum(), rows, create_graph=True)
        return (score.square() / 2 + slope).squeeze(1)

    torch.manual_seed(0)
    flow = cf.flows.tabular(1, num_layers=1, hidden_features=8, num_bins=4)
    result = fit(flow, x, loss=score_matching, steps=20, validate_every=5, learning_rate=3e-2, progress=False)
    validations = [line["validation_loss"] for line in result.history if "validation_loss" in line]
    assert validations[-1] < validations[0]


def test_the_cause_of_a_loss_that_differentiates_is_found(x, make_flow):
    def broken(flow, batch):
        rows = batch.x.requires_grad_()
        (score,) = torch.autograd.grad(flow.log_prob(rows).sum(), rows, create_graph=True)
        return score.sum(1) * torch.nan

    with pytest.raises(NonFiniteLossError, match="rows have a NaN or infinite loss"):
        fit(make_flow(), x, loss=broken, steps=3, progress=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_default_dtype_changes_nothing(x, make_flow, assert_same, dtype):
    settings = {"steps": 10, "validate_every": 5, "progress": False}
    plain = fit(make_flow().to(dtype), x, **settings)
    flow = make_flow().to(dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        result = fit(flow, x, **settings)
    finally:
        torch.set_default_dtype(before)
    assert_same(result.flow, plain.flow)


def test_context_reaches_the_flow(make_flow):
    generator = torch.Generator().manual_seed(0)
    context = torch.randn(600, 1, generator=generator)
    x = 3 * context + 0.1 * torch.randn(600, 1, generator=generator)
    flow = make_flow(1, context_features=1, num_layers=2)
    result = fit(flow, (x, context), steps=120, validate_every=20, learning_rate=3e-2, progress=False)
    alone = math.log(3 * math.sqrt(2 * math.pi * math.e))  # the entropy of x without the context
    assert result.validation_loss < alone - 0.5


def test_images_in_whole_numbers_are_dequantised():
    pixels = torch.randint(0, 4, (60, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    flow = cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, hidden_features=4, num_bins=4)
    result = fit(flow, pixels, steps=12, learning_rate=1e-2, batch_size=16, progress=False)
    validations = [m["validation_loss"] for m in result.history if "validation_loss" in m]
    assert validations[-1] < validations[0]
    assert all(bool(layer.initialised) for layer in flow.modules() if isinstance(layer, cf.transforms.ActNorm))


def test_plane_recipe_trains():
    x = torch.rand(400, 2, generator=torch.Generator().manual_seed(0)) ** 2
    flow = cf.flows.plane(num_bins=8, hidden_features=16)
    result = fit(flow, x, steps=60, validate_every=20, learning_rate=1e-2, progress=False)
    assert result.validation_loss < -0.3  # 0 for a uniform density, 2 (log 2 - 1) = -0.61 for the true one


def test_caches_of_inverses_notice_a_step(x, make_flow):
    """Linear layers cache a dense inverse until their weights change, also if a fused optimiser changes the weights."""
    flow = make_flow(num_layers=2)
    flow.sample(10)  # fills the caches
    config = TrainingConfig(batch_size=64)
    step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cpu")), mean_weight=1.0)
    step.set_rates(learning_rate=0.1, averaging_weight=0.5)
    step(Batch(x[:64]))
    flow.eval()
    with torch.no_grad():
        z, log_det = flow.to_noise(x[:50])
        back, log_det_back = flow.from_noise(z)
    torch.testing.assert_close(back, x[:50], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(log_det, -log_det_back, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_precisions_agree_roughly(x, make_flow, precision):
    settings = {"steps": 10, "validate_every": 10, "learning_rate": 1e-2, "progress": False}
    result = fit(make_flow(dropout=0.0), x, precision=precision, **settings)
    plain = fit(make_flow(dropout=0.0), x, precision="float32", **settings)
    # bf16 keeps 8 bits, so the networks' outputs, and losses of order 2, have errors of about a percent.
    assert result.validation_loss == pytest.approx(plain.validation_loss, abs=0.05 if precision == "bf16" else 0)


def test_numpy_rows_and_batch_norm(make_flow, x):
    result = fit(make_flow(norm="batch"), x.numpy().astype(np.float64), steps=20, progress=False)
    assert result.steps == 20


def test_metrics_are_written_as_they_are_returned(x, make_flow, tmp_path):
    result = fit(make_flow(), x, steps=20, validate_every=5, run=tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == result.history
    assert [line["step"] for line in lines if "validation_loss" in line] == [5, 10, 15, 20]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["result"]["weights"] == result.weights
    assert config["training"]["batch_size"] == result.config.batch_size
    loaded = cf.load(tmp_path / "run")
    assert torch.equal(loaded.log_prob(x[:10]), result.flow.log_prob(x[:10]))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["config.json", "metrics.jsonl", "model.safetensors"]


def test_validation_rows_outside_the_flows_domain_are_a_clear_error():
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(TrainingError, match=r"no validation loss was finite: .*scale the data into the box"):
        fit(cf.flows.plane(num_bins=4, hidden_features=4), x, x + 1, steps=5, progress=False)
