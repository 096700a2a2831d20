"""A stranger's run, whatever is in it: one line, exit status 2, in no time and little memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cubicflow as cf

from .conftest import Command

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def change_weights(folder: Path, change: Callable[[str, Tensor], Tensor]) -> None:
    path = folder / "model.safetensors"
    save_file({name: change(name, value).contiguous() for name, value in load_file(path).items()}, path)


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def refused(outcome: tuple[int, str, str], words: str) -> None:
    status, _, errors = outcome
    assert status == 2, errors
    assert len(errors.strip().splitlines()) == 1, errors
    assert words in errors


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("everywhere", [True, False])
def test_weights_that_are_not_finite(cubicflow: Command, copy: Path, table: Path, bad: float, everywhere: bool) -> None:
    def spoil(_: str, value: Tensor) -> Tensor:
        if value.is_floating_point() and value.numel():
            value.flatten()[slice(None) if everywhere else slice(-1, None)] = bad
        return value

    change_weights(copy, spoil)
    for command in (("sample", copy, "-n", 5, "-o", "-"), ("score", copy, table, "-o", "-"), ("plot", copy)):
        refused(cubicflow(*command), "holds numbers that are not finite")
    with pytest.raises(ValueError, match=r"model.safetensors: .* holds numbers that are not finite"):
        cf.load(copy)


def test_weights_that_are_finite_and_absurd(cubicflow: Command, copy: Path, table: Path) -> None:
    change_weights(copy, lambda _, value: torch.full_like(value, 1e38) if value.is_floating_point() else value)
    refused(cubicflow("sample", copy, "-n", 5, "-o", "-"), "not finite")
    refused(cubicflow("score", copy, table, "-o", "-"), "is not a number")
    refused(cubicflow("plot", copy), "not finite")


@pytest.mark.parametrize("change", [lambda v: v * 0, lambda v: v + 100, lambda v: -v, lambda v: v.flip(0) + 2**40])
def test_whole_numbers_that_name_no_column(cubicflow: Command, copy: Path, change: Callable[[Tensor], Tensor]) -> None:
    """A permutation with a number twice would be a density of something else, without a word."""
    names = [name for name, value in load_file(copy / "model.safetensors").items() if value.dtype == torch.int64]
    assert len(names) >= 3
    weights = (copy / "model.safetensors").read_bytes()
    for name in names:
        (copy / "model.safetensors").write_bytes(weights)
        value = load_file(copy / "model.safetensors")[name]
        if torch.equal(change(value), value):
            continue
        change_weights(copy, lambda key, value, name=name: change(value) if key == name else value)
        refused(cubicflow("sample", copy, "-n", 3, "-o", "-"), name)


@pytest.mark.parametrize("name", ["metrics.jsonl", "judge.json", "config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "deep", "large"])
def test_files_that_are_none(cubicflow: Command, copy: Path, name: str, kind: str) -> None:
    path = copy / name
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "deep":
            path.write_text(DEEP + "\n" + '{"step": 1, "loss": ' + DEEP + "}\n")
        case "large":
            with path.open("wb") as file:
                file.truncate(1 << 36)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status, _, errors = cubicflow("plot", copy, "--rows", 20)
    assert status in (0, 2)
    assert len(errors.strip().splitlines()) == (1 if status else 0), errors
    assert name in errors if status else name in ("metrics.jsonl", "judge.json")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KB


@pytest.mark.parametrize(
    "line",
    [
        {"step": 10**400, "loss": 1.0},
        {"step": 3, "loss": 10**400},
        {"step": True, "loss": 1.0},
        {"step": -1, "loss": [1]},
        {"step": 5, "loss": 1e308, "validation_loss": -1e308},
        {"step": 5, "loss": {"a": 1}},
    ],
)
def test_metrics_that_no_run_has_written(cubicflow: Command, copy: Path, line: dict[str, Any]) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line).replace("Infinity", "1e999") + "\n")
    status, _, errors = cubicflow("plot", copy, "--rows", 20)
    assert status == 0, errors


def base_of(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config["flow"]["base"]
    return found


HUGE: list[Callable[[dict[str, Any]], Any]] = [
    lambda config: base_of(config).update(type="NormalMixture", components=10**8),
    lambda config: base_of(config).update(type="NormalMixture", components=10**8, correlated=True),
    lambda config: base_of(config).update(features=10**12),
    lambda config: config["flow"]["transform"].update(transforms=[{"type": "Sigmoid"}] * 22_000),
    lambda config: config["flow"]["transform"]["transforms"].extend([{"type": "LULinear", "features": 3}] * 22_000),
    lambda config: config["flow"]["transform"]["transforms"][0].update(features=10**11),
    lambda config: config["flow"]["transform"].update(
        transforms=[{"type": "MaskedResidualMLP", "in_features": 2, "out_features": 10**11, "hidden_features": 10**11}]
    ),
]


@pytest.mark.parametrize("change", HUGE)
def test_sizes_are_compared_before_anything_is_built(copy: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    edit(copy, change)
    built = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cubicflow.flows.serialization.build_flow", lambda *_, **__: built.append(1))
        with pytest.raises(ValueError, match=r"config.json: it (asks for|describes more layers)"):
            cf.load(copy)
    assert built == []


def test_a_mixture_costs_no_memory_before_its_shapes_are_compared(copy: Path) -> None:
    edit(copy, lambda config: base_of(config).update(type="NormalMixture", components=1_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"does not fit its config\.json"):
        cf.load(copy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB; the means alone would be 28 MB
