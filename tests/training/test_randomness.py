"""The state of torch's generators around a fit."""

from __future__ import annotations

import torch

from cubicflow.distributions import StandardNormal
from cubicflow.training.randomness import Randomness, random_state_kept


def test_the_state_of_a_gpu_is_kept_before_anything_ran_there(monkeypatch):
    """torch.cuda.default_generators is empty until the first call to the GPU."""
    states = {0: torch.tensor([3], dtype=torch.uint8), 1: torch.tensor([4], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "default_generators", ())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device, state))
    with random_state_kept(torch.device("cuda", 1)):
        states[0] += 1
        states[1] += 1
    assert [int(state) for state in states.values()] == [3, 4]


def test_the_state_of_the_cpu_is_kept():
    before = torch.get_rng_state()
    with random_state_kept(torch.device("cpu")):
        torch.manual_seed(5)
        torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_replaced_method_may_draw_from_the_generator_of_torch(make_flow, monkeypatch):
    def owns_its_generator(flow):
        return Randomness(flow, torch.device("cpu"), known_loss=True).own is not None

    flow = make_flow()
    assert owns_its_generator(flow)
    flow.log_prob = lambda x, context=None: torch.rand(len(x))
    assert not owns_its_generator(flow)
    monkeypatch.setattr(StandardNormal, "log_prob", lambda self, z: torch.rand(len(z)))
    assert not owns_its_generator(make_flow())
