"""Estimators in several threads have the results of estimators one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

import cubicflow as cf

SMALL = {"n_members": 2, "max_components": 2, "num_layers": 1, "max_steps": 4, "hidden_features": 8}


def test_estimators_in_threads():
    rows = np.random.default_rng(0).normal(size=(60, 2))

    def estimate(seed):
        return cf.CubicFlowDensity(random_state=seed, dropout=0.3, **SMALL).fit(rows).flow_

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(estimate, range(2)))
    serial = [estimate(seed) for seed in range(2)]
    for one, other in zip(serial, together, strict=True):
        assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
