"""Integrals leave torch's random generators alone, and threads draw the same numbers as one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import cubicflow as cf
from cubicflow.integration import adaptation
from cubicflow.integration.flow_sampler import new_flow_sampler


def test_torchs_generators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    made: list[int] = []
    for name in ("manual_seed", "manual_seed_all", "_lazy_call"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name, **__: calls.append(name))
    monkeypatch.setattr(adaptation, "new_flow_sampler", lambda *given: made.append(1) or new_flow_sampler(*given))
    torch.default_generator.manual_seed(5)
    state = torch.get_rng_state()
    cf.integrate(lambda x: (x[:, 0] + x[:, 1]) ** 2, [(0, 1)] * 2, evaluations=6_000, flow=True, flow_steps=3)
    assert made
    assert torch.equal(torch.get_rng_state(), state)
    assert calls == []


def test_flows_made_in_threads_have_the_weights_of_flows_made_one_by_one() -> None:
    u = torch.rand(64, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def weights(seed: int) -> torch.Tensor:
        flow = new_flow_sampler(u, torch.ones(64, dtype=torch.float64), [False, False], seed).flow
        return torch.cat([parameter.detach().flatten() for parameter in flow.parameters()])

    alone = [weights(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(weights, range(8)))
    assert all(torch.equal(*pair) for pair in zip(together, alone, strict=True))
    assert not torch.equal(alone[0], alone[1])
