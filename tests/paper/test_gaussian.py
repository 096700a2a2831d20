"""The Gaussian of table 1, compared with SciPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from paper.cells import load_scores
from scipy import stats
from tests.helpers.command_line import Command

STEP = 1 / 64  # saved scores are multiples of this


def test_the_gaussian_has_the_weighted_mean_and_covariance(paper: Command, table_data: Path, tmp_path: Path) -> None:
    """Its weights are not raised to the power of the recipe: with them, a partial training set is a fair sample."""
    out, folder = tmp_path / "out", table_data / "miniboone"
    command = ("table-1", "-o", out, "--data", table_data, "--dataset", "miniboone", "--device", "cpu")
    done = paper(*command, "--model", "gaussian")
    assert done.status == 0, done.errors
    cell = out / "cells" / "miniboone" / "gaussian" / "seed-0"
    train, weights = np.load(folder / "train.npy").astype(float), np.load(folder / "train_weights.npy").astype(float)
    mean, covariance = np.average(train, axis=0, weights=weights), np.cov(train.T, aweights=weights, ddof=0)
    reference = stats.multivariate_normal(mean, covariance)
    # The layer is in float32: its rounding is far below the step of the saved scores, but can cross half a step.
    found = load_scores(cell / "test_scores.npz").astype(float)
    np.testing.assert_allclose(found, reference.logpdf(np.load(folder / "test.npy")), atol=0.6 * STEP, rtol=0)
    record = json.loads((cell / "record.json").read_text())
    np.testing.assert_allclose(record["validation"], reference.logpdf(np.load(folder / "val.npy")).mean(), rtol=1e-5)
    assert (record["steps"], record["stopped"]) == (0, "closed form")
    assert record["note"].endswith("training rows carry weights.")
    assert not (cell / "run").exists()
