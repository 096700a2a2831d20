"""Figure 3 with --quick, on the real images."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from paper.data.images import ImageSet, load_fashion_mnist
from paper.figures import image_grids
from tests.helpers.command_line import Command

import cubicflow as cf
from paper import figure_3


def test_quick_form_on_real_pictures(paper: Command, real_data: Path, tmp_path: Path) -> None:
    done = paper("figure-3", "--quick", "-o", tmp_path, "--data", real_data, "--device", "cpu")
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


def test_the_left_panel_is_the_training_data(paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    labels = np.zeros(40, np.uint8)
    images = ImageSet(pixels[:32], pixels[32:36], pixels[36:], labels[:32], labels[32:36], labels[36:])
    monkeypatch.setattr(figure_3, "load_fashion_mnist", lambda folder, validation: images)
    drawn: dict[str, np.ndarray] = {}
    monkeypatch.setattr(figure_3, "image_grids", lambda grids: drawn.update(grids) or image_grids(grids))
    command = ("figure-3", "--quick", "--device", "cpu", "-o")
    for as_written, options in ((False, ()), (True, ("--paper",))):
        done = paper(*command, tmp_path / str(as_written), *options)
        assert done.status == 0, done.errors
        settings = json.loads((tmp_path / str(as_written) / "figure-3.json").read_text())["settings"]
        assert settings["flow"].get("paper", False) is as_written
    assert list(drawn) == ["training data", "temperature 0.5", "temperature 0.75", "temperature 1"]
    np.testing.assert_array_equal(drawn["training data"], pixels[:4])


def test_missing_pictures_are_named(paper: Command, tmp_path: Path) -> None:
    done = paper("figure-3", "-o", tmp_path / "out", "--data", tmp_path)
    assert done.status == 2
    assert "Fashion-MNIST was not found" in done.errors
    assert "github.com/zalandoresearch/fashion-mnist" in done.errors
