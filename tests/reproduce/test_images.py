"""Figure 3 with --quick, on the real images."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import cubicflow as cf
from cubicflow.data.images import load_fashion_mnist

from .conftest import Command


def test_quick_form_on_real_pictures(cubicflow: Command, real_data: Path, tmp_path: Path) -> None:
    done = cubicflow("reproduce", "figure-3", "--quick", "-o", tmp_path, "--data", real_data, "--device", "cpu")
    assert done.status == 0, done.errors
    found = json.loads((tmp_path / "figure-3.json").read_text())["results"]
    assert (tmp_path / "figure-3.png").exists()
    assert (tmp_path / "figure-3-training.png").exists()
    assert found["all_test_images"] is False
    # Bits by definition: minus log2 of the density, divided by 784 pixels. The dequantisation noise differs.
    flow = cf.load(tmp_path / "run")
    pixels = load_fashion_mnist(real_data).test[: found["test_images"], None].astype(np.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        log_prob = flow.log_prob(torch.from_numpy(pixels) + torch.rand(pixels.shape)).double()
    again = -float(log_prob.mean()) / math.log(2) / 784
    assert found["bits_per_dim"] == pytest.approx(again, abs=0.02)  # the noise changes the mean by less


def test_missing_pictures_are_named(cubicflow: Command, tmp_path: Path) -> None:
    done = cubicflow("reproduce", "figure-3", "-o", tmp_path / "out", "--data", tmp_path)
    assert done.status == 2
    assert "Fashion-MNIST was not found" in done.errors
    assert "github.com/zalandoresearch/fashion-mnist" in done.errors
