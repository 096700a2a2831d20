"""Tests of the sbi and nessai benchmarks: simulators, scores and records."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad

from benchmarks import nessai_evidence, sbi_posteriors


def test_simulators_have_the_moments_of_their_definitions() -> None:
    torch.manual_seed(0)
    n = 40_000
    t = torch.tensor([0.3, -0.8]).expand(n, 2)
    x = sbi_posteriors.two_moons(t)
    shift = torch.tensor([-abs(0.3 - 0.8), -0.3 - 0.8]) / math.sqrt(2)
    crescent = x - shift - torch.tensor([0.25, 0.0])
    radius = crescent.norm(dim=1)
    assert math.isclose(float(radius.mean()), 0.1, abs_tol=3e-4)
    assert math.isclose(float(radius.std()), 0.01, rel_tol=0.02)
    assert (crescent[:, 0] >= 0).all()
    x = sbi_posteriors.gaussian_mixture(t)
    torch.testing.assert_close(x.mean(0), t[0], atol=0.02, rtol=0)
    torch.testing.assert_close(x.var(0), torch.full((2,), 0.505), atol=0.02, rtol=0)
    t = torch.tensor([0.7, -2.9, -1.0, -0.9, 0.6])
    x = sbi_posteriors.slcp(t.expand(n, 5)).reshape(-1, 2)  # each row is four points
    first, second, correlation = 1.0, 0.81, math.tanh(0.6)
    wanted = torch.tensor([[first**2, correlation * first * second], [correlation * first * second, second**2]])
    torch.testing.assert_close(torch.cov(x.T), wanted, atol=0.02, rtol=0)
    torch.testing.assert_close(x.mean(0), t[:2], atol=0.02, rtol=0)


def test_c2st_is_half_for_equal_samples_and_the_best_accuracy_for_others() -> None:
    rng = np.random.default_rng(0)
    reference, same = (rng.normal(size=(200, 2)).astype(np.float32) for _ in range(2))
    assert abs(sbi_posteriors.c2st(reference, same) - 0.5) < 0.1
    shifted = same + np.array([3.0, 0.0], dtype=np.float32)
    best = 0.9332  # accuracy of the best threshold between two normals 3 apart
    assert abs(sbi_posteriors.c2st(reference, shifted) - best) < 0.06


def test_the_exact_evidence_agrees_with_adaptive_quadrature() -> None:
    def likelihood(y: float, x: float) -> float:
        return math.exp(-100 * (y - x * x) ** 2 - (1 - x) ** 2)

    # The likelihood is negligible beyond one unit from the parabola.
    found, _ = dblquad(likelihood, -2.4, 2.4, lambda x: x * x - 1, lambda x: min(5, x * x + 1), epsabs=1e-9)
    assert math.isclose(nessai_evidence.exact_log_evidence(2), math.log(found / 100), abs_tol=1e-6)


def test_cells_with_a_record_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str, int]] = []

    def cell(task: str, method: str, seed: int, reference: Any) -> dict[str, Any]:
        made.append((task, method, seed))
        scores = {"c2st": [0.5, 0.6], "leakage": [0.0, 0.1], "held_out_log_density": 1.0, "train_seconds": 2.0}
        return {"task": task, "method": method, "seed": seed, **scores}

    monkeypatch.setattr(sbi_posteriors, "run_cell", cell)
    np.savez(tmp_path / "slcp.npz", observation_1=np.zeros(8))
    arguments = argparse.Namespace(
        records=tmp_path, reference=tmp_path, seeds="0:2", tasks=["slcp"], methods=["nsf"], page=tmp_path / "page.md"
    )
    sbi_posteriors.run(arguments)
    sbi_posteriors.run(arguments)
    assert made == [("slcp", "nsf", 0), ("slcp", "nsf", 1)]
    arguments.page.write_text("# Title\n\n<!-- table -->\nold\n<!-- end -->\nafter\n")
    sbi_posteriors.page(arguments)
    text = arguments.page.read_text()
    assert "| slcp | nsf | 2 | 0.550 | 0.500, 0.600 | 5.00% | 1.000 | 2 |" in text
    assert "old" not in text
    assert text.endswith("<!-- end -->\nafter\n")
