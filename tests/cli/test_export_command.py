"""Errors of ``cubicflow export``: one line, exit status 2, and no file written. (tests/export runs exported files.)"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from tests.helpers.command_line import Command

import cubicflow as cf
from cubicflow.export import ExportError, export_model, exporting
from cubicflow.transforms import Compose, Transform


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    cf.flows.tabular(2, num_layers=1, hidden_features=8).save(tmp_path / "run")
    return tmp_path / "run"


def refused(cubicflow: Command, *arguments: object) -> str:
    """Return the one-line error of a command that fails."""
    status, output, errors = cubicflow("export", *arguments)
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    return errors


def test_unknown_endings_are_refused(cubicflow: Command, saved: Path, tmp_path: Path) -> None:
    for name in ("model", "model.onx", "model.pt", "model.json"):
        assert "the file name must end in .onnx or .pt2" in refused(cubicflow, saved, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_existing_outputs_are_not_overwritten(cubicflow: Command, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    said = refused(cubicflow, saved, tmp_path / "model.onnx")
    assert "exists already; choose another name, or replace it with --overwrite" in said
    assert (tmp_path / "model.onnx").read_text() == "mine"
    (tmp_path / "folder.pt2").mkdir()
    assert "is a folder" in refused(cubicflow, saved, tmp_path / "folder.pt2", "--overwrite")


def test_an_existing_encoding_is_not_overwritten(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("mine")
    assert "model.json exists" in refused(cubicflow, run, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_outputs_that_cannot_be_written_are_refused(
    cubicflow: Command, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no folder" in refused(cubicflow, saved, tmp_path / "none" / "model.onnx")

    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    assert "cannot be written: its folder is not writable" in refused(cubicflow, saved, tmp_path / "model.onnx")


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubicflow import files

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ExportError, match="cannot be written: No space left on device"):
        exporting.write_together({tmp_path / "model.json": b"{}", tmp_path / "model.onnx": b"graph"})
    assert not list(tmp_path.iterdir())


def test_missing_unfinished_and_damaged_runs_are_refused(cubicflow: Command, saved: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in refused(cubicflow, tmp_path / "nothing", tmp_path / "model.onnx")
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "result": {"finished": False}}))
    assert "is still training, or its training was interrupted" in refused(cubicflow, saved, tmp_path / "model.onnx")
    (saved / "config.json").write_text(json.dumps(config))
    (saved / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes()[:100])
    assert "not a complete safetensors file" in refused(cubicflow, saved, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_missing_extra_is_named(
    cubicflow: Command, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install 'cubicflow[onnx]'" in refused(cubicflow, saved, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Sorted(Transform):
    """A transform with a branch on values, which a graph cannot contain."""

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return (x, x.sum(1)) if bool((x > 0).all()) else (-x, x.sum(1))

    def inverse(self, z: torch.Tensor, context: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return z, z.sum(1)

    def config(self) -> dict[str, object]:
        return {}


class Bessel(Sorted):
    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return x + torch.special.bessel_j1(x), x.sum(1)


def test_an_operator_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    """torch replaces the operator by another before the conversion."""
    flow = cf.Flow(cf.distributions.StandardNormal(2), Compose([Bessel()]))
    said = r"^transform.transforms.0 \(Bessel\) cannot be written as ONNX, which has no operator for aten.special_"
    with pytest.raises(ExportError, match=said):
        export_model(flow, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_part_that_cannot_be_exported_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flow = cf.Flow(cf.distributions.StandardNormal(2), Compose([Sorted()]))
    with pytest.raises(ExportError, match=r"^transform.transforms.0 \(Sorted\) cannot be exported: .*") as refusal:
        export_model(flow, tmp_path / "model.pt2")
    assert "\n" not in str(refusal.value)
    assert capfd.readouterr() == ("", "")  # torch prints the traced part of the graph
    with pytest.raises(ExportError, match="a Mixture has no map from noise to samples"):
        export_model(cf.Mixture([flow]), tmp_path / "model.pt2", sampler=True)
    with pytest.raises(ExportError, match="a Linear cannot be exported; give a Flow"):
        export_model(torch.nn.Linear(2, 2), tmp_path / "model.pt2")  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="a list cannot be exported; give a Flow"):
        export_model([], tmp_path / "model.pt2")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
