"""Run folders with hostile content: one line of error, exit status 2, little time and little memory."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers.command_line import Command
from torch import Tensor

import cubicflow as cf
from cubicflow.files import NotPlainError
from cubicflow.flows.serialization import load_model
from cubicflow.tables.judging.judgement import read_judgement
from cubicflow.training.run_folder import read_metrics

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture(params=["flow", "columns"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a run, once of a flow and once of a model of columns."""
    run = request.getfixturevalue("run" if request.param == "flow" else "columns_run")
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def columns(columns_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(columns_run, tmp_path / "run"))


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
def test_weights_that_are_not_finite_are_refused(
    cubicflow: Command, either: Path, table: Path, bad: float, everywhere: bool
) -> None:
    def spoil(_: str, value: Tensor) -> Tensor:
        if value.is_floating_point() and value.numel():
            value.flatten()[slice(None) if everywhere else slice(-1, None)] = bad
        return value

    change_weights(either, spoil)
    for command in (("sample", either, "-n", 5, "-o", "-"), ("score", either, table, "-o", "-"), ("plot", either)):
        refused(cubicflow(*command), "holds numbers that are not finite")
    with pytest.raises(ValueError, match=r"model.safetensors: .* holds numbers that are not finite"):
        load_model(either)


def test_huge_finite_weights_give_finite_scores_or_an_error(cubicflow: Command, either: Path, table: Path) -> None:
    change_weights(either, lambda _, value: torch.full_like(value, 1e38) if value.is_floating_point() else value)
    refused(cubicflow("sample", either, "-n", 5, "-o", "-"), "not finite")
    scored = cubicflow("score", either, table, "-o", "-")
    if scored[0] == 0:  # a model of columns scores in float64, where these weights do not overflow
        assert all(math.isfinite(float(score)) for score in scored[1].splitlines()[1:])
    else:
        refused(scored, "is not a number")
    refused(cubicflow("plot", either), "not finite")


def test_a_row_of_probability_zero_has_a_score(cubicflow: Command, copy: Path, table: Path) -> None:
    """The score -inf is valid. Here the last layer maps all rows to points where the base density is 0 in float32."""
    last = max(
        name for name in load_file(copy / "model.safetensors") if name.endswith("bias") and "network" not in name
    )
    change_weights(copy, lambda name, value: torch.full_like(value, 1e25) if name == last else value)
    status, output, errors = cubicflow("score", copy, table, "-o", "-")
    assert status == 0, errors
    assert output.splitlines()[1:] == ["-inf"] * 200


@pytest.mark.parametrize("change", [lambda v: v * 0, lambda v: v + 100, lambda v: -v, lambda v: v.flip(0) + 2**40])
def test_indices_that_are_no_permutation_are_refused(
    cubicflow: Command, copy: Path, change: Callable[[Tensor], Tensor]
) -> None:
    """A permutation that repeats an index would silently give a wrong density."""
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


KINDS = ("pipe", "device", "folder", "deep", "large")


def put(path: Path, kind: str) -> None:
    """Replace a file by something else."""
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


@contextmanager
def little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KB


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", KINDS)
def test_pipes_devices_and_other_odd_files_are_refused(cubicflow: Command, either: Path, name: str, kind: str) -> None:
    put(either / name, kind)
    with little_memory():
        refused(cubicflow("sample", either, "-n", 5, "-o", "-"), name)


@pytest.mark.parametrize("kind", KINDS)
def test_odd_metrics_and_judgement_files_do_no_harm(copy: Path, kind: str) -> None:
    """Metrics are refused, or their valid lines are used. A judgement is left out of the page."""
    for name in ("metrics.jsonl", "judge.json"):
        put(copy / name, kind)
    with little_memory():
        if kind == "deep":
            assert read_metrics(copy) == []
        else:
            with pytest.raises(NotPlainError, match=r"metrics\.jsonl (is not a plain file|has .* bytes)"):
                read_metrics(copy)
        assert read_judgement(copy) is None


@pytest.mark.usefixtures("few_panels")
def test_invalid_lines_of_metrics_are_skipped(cubicflow: Command, copy: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"step": 10**400, "loss": 1.0},
        {"step": 3, "loss": 10**400},
        {"step": True, "loss": 1.0},
        {"step": -1, "loss": [1]},
        {"step": 5, "loss": 1e308, "validation_loss": -1e308},
        {"step": 5, "loss": {"a": 1}},
    ]
    honest = read_metrics(copy)
    with (copy / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    assert read_metrics(copy) == [*honest, lines[4]]
    put(copy / "judge.json", "pipe")
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
        with pytest.raises(ValueError, match=r"config.json: the (flow|model) has (more layers|[a-z_]+=\d+, but)"):
            cf.load(copy)
    assert built == []


def test_a_mixture_costs_no_memory_before_its_shapes_are_compared(copy: Path) -> None:
    edit(copy, lambda config: base_of(config).update(type="NormalMixture", components=1_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"the weights do not match config\.json"):
        cf.load(copy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB; the means alone would be 28 MB


COLUMNS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda config: config["flow"].update(outcomes=[1] * 10**6, shapes=[0] * 10**6), "has 1,000,000 columns"),
    (lambda config: config["flow"].update(hidden_features=10**9), "has hidden_features=1000000000"),
    (lambda config: config["flow"].update(num_bins=10**40), r"has num_bins=10\^30 or more, but the weights hold only"),
    (lambda config: config["flow"].update(num_blocks=10**7), "has more layers than the weights hold"),
    (
        lambda config: config["flow"].update(context_outcomes=[2**40], context_shapes=[0]),
        "has context_outcomes=",
    ),
    (lambda config: config["flow"].update(core="attention", num_blocks=1000), "has more layers"),
]


@pytest.mark.parametrize(("change", "words"), COLUMNS)
def test_huge_sizes_of_a_model_of_columns_are_refused(
    columns: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    edit(columns, change)
    built = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cubicflow.flows.serialization.build_flow", lambda *_, **__: built.append(1))
        with pytest.raises(ValueError, match=words):
            load_model(columns)
    assert built == []


def cells_of(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = config["table"]["columns"]["cells"][name]
    return found


CRAFTED: list[Callable[[dict[str, Any]], Any]] = [
    lambda config: config["flow"].update(dropout="much"),
    lambda config: config["flow"].update(cell_dropout=float("nan")),
    lambda config: config["flow"].update(strangers=[[0, 10**9, 1, 0]]),
    lambda config: config["flow"].update(strangers=[["a", "b"]]),
    lambda config: config["flow"].update(core={"type": "ResidualMLP"}),
    lambda config: config["flow"].update(type=[[[]]]),
    lambda config: config["table"]["columns"].update(order=["kind"]),
    lambda config: config["table"]["columns"]["order"].reverse(),
    lambda config: config["table"]["columns"].update(rules=[{"determinant": [], "dependent": {}}]),
    lambda config: config["table"]["columns"].update(
        rules=[{"determinant": "kind", "dependent": "size", "slack": 10**400, "pairs": [[0, 1]]}]
    ),
    lambda config: config["table"]["columns"]["shares"].update(kind=[1.0]),
    lambda config: config["table"]["columns"]["shares"].update(kind=[10**400, 1, 1]),
    lambda config: config["table"]["columns"]["shares"].update(kind="0.5"),
    lambda config: cells_of(config, "kind").update(form=["words"]),
    lambda config: cells_of(config, "kind").update(kinds=[0, 0, 10**30]),
    lambda config: cells_of(config, "kind").update(kinds=[0, 0, 0.5]),
    lambda config: cells_of(config, "kind").update(kinds=[2, 2, 2]),
    lambda config: cells_of(config, "kind").update(unseen=1.5),
    lambda config: cells_of(config, "size").update(atoms=[float("inf")]),
    lambda config: cells_of(config, "size").update(scale=None),
    lambda config: cells_of(config, "size")["scale"].update(edges=[0, 10**400]),
    lambda config: cells_of(config, "size")["scale"].update(reach_above=10**400),
    lambda config: cells_of(config, "size")["scale"].update(masses=[1.0]),
    lambda config: cells_of(config, "size").update(listed=1),
]


@pytest.mark.parametrize("change", CRAFTED)
def test_invalid_descriptions_of_columns_are_refused(
    cubicflow: Command, columns: Path, change: Callable[..., Any]
) -> None:
    edit(columns, change)
    refused(cubicflow("sample", columns, "-n", 5, "-o", "-"), "config.json")


def test_a_deep_network_of_columns_can_be_loaded(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    """All blocks share one tensor, so a valid model has more blocks than tensors."""
    options = ("--steps", 1, "--model", "columns", "--num-blocks", 60, "--hidden-features", 2)
    assert cubicflow("fit", table, "-o", tmp_path / "deep", *options).status == 0
    assert cubicflow("sample", tmp_path / "deep", "-n", 3, "-o", "-").status == 0
