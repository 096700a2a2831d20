"""Several threads: loading does not change global state, and concurrent fits give the results of sequential fits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import cubicflow as cf
from cubicflow.training import fit
from cubicflow.training.losses import negative_log_likelihood

THREADS = 4
SETTINGS = {"steps": 10, "validate_every": 5, "progress": False}
SMALL = {"n_members": 2, "max_components": 2, "num_layers": 1, "max_steps": 4, "hidden_features": 8}


def in_threads(work, arguments):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, arguments))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loads_in_threads(make_flow, tmp_path, dtype):
    flow = make_flow().to(dtype)
    flow.save(tmp_path)
    seen = []

    def load(_):
        loaded = cf.load(tmp_path)
        seen.append((torch.get_default_dtype(), torch.empty(0).device.type, torch.get_default_device().type))
        return loaded

    before = torch.get_rng_state()
    for loaded in in_threads(load, range(5 * THREADS)):
        state = loaded.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in flow.state_dict().items())
        assert {value.device.type for value in state.values()} == {"cpu"}
    assert set(seen) == {(torch.float32, "cpu", "cpu")}
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_keeps_the_default_dtype_of_the_process(make_flow, tmp_path):
    make_flow().save(tmp_path)
    torch.set_default_dtype(torch.float64)
    try:
        assert {value.dtype for value in cf.load(tmp_path).parameters()} == {torch.float32}
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


class Dropping(nn.Module):
    """A user's density that draws from torch's generator."""

    def __init__(self, flow):
        super().__init__()
        self.flow = flow
        self.dropout = nn.Dropout(0.2)

    def log_prob(self, x):
        return self.flow.log_prob(x + self.dropout(torch.ones_like(x)))


def noisy_loss(flow, batch):
    return negative_log_likelihood(flow, batch._replace(x=batch.x + 0.1 * torch.randn_like(batch.x)))


@pytest.mark.parametrize("case", ["own dropout", "transformer", "dropout of the user's", "loss of the user's", "mixed"])
def test_fits_in_threads_end_where_serial_ones_do(x, make_flow, assert_same, case):
    attention = {"layer": "autoregressive", "network": "transformer", "hidden_features": 16}
    how = {"loss": noisy_loss} if case.startswith("loss") else {}

    def make(number):
        flow = make_flow(dropout=0.3, **(attention if case == "transformer" else {}))
        return Dropping(flow) if case.startswith("dropout") or (case == "mixed" and number % 2) else flow

    flows = [make(number) for number in range(THREADS)]
    serial = [fit(make(number), x, seed=number, **how, **SETTINGS).flow for number in range(THREADS)]
    before = torch.get_rng_state()
    in_threads(lambda number: fit(flows[number], x, seed=number, **how, **SETTINGS), range(THREADS))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(serial, flows, strict=True):
        assert_same(one, other)


def test_random_numbers_of_other_threads_do_not_change_a_fit(x, make_flow, assert_same):
    whole = fit(make_flow(dropout=0.3), x, **SETTINGS).flow
    flow, over = make_flow(dropout=0.3), []

    def draw():
        while not over:
            torch.rand(3)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(draw)
        fit(flow, x, **SETTINGS)
        over.append(True)
    assert_same(whole, flow)


def test_fits_in_a_fit_leave_its_random_numbers_alone(x, make_flow, assert_same):
    inner = make_flow()

    def nesting(flow, batch):
        fit(inner, x[:50], steps=1, progress=False)
        return noisy_loss(flow, batch)

    plain, nested = (
        fit(make_flow(), x, loss=loss, steps=6, validation_fraction=0, progress=False).flow
        for loss in (noisy_loss, nesting)
    )
    assert_same(plain, nested)
