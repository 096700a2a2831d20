"""The content of a checkpoint is checked before use. A damaged checkpoint is skipped or refused in one line."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from cubicflow.training import RunFolderError, fit
from cubicflow.training.checkpoint import FORMAT, NEWEST, NEXT, PREVIOUS, VERSION, RunNumbers, digest

from .small_fits import curved_rows, small_flow

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}


def rewrite(path, numbers=None, tensors=None):
    """Write a checkpoint with other content and the right digest."""
    with safe_open(path, "pt") as file:
        text = file.metadata()["numbers"]
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    text = numbers if isinstance(numbers, str) else json.dumps({**json.loads(text), **(numbers or {})})
    found = (tensors or (lambda value: value))(found)
    about = {"format": FORMAT, "version": VERSION, "numbers": text, "sha256": digest(found, text)}
    save_file(found, path, about)


NUMBERS = [
    *(
        {name: value}
        for name in RunNumbers.__annotations__
        for value in ([], {}, "x", -1.5, True, 10**400, float("nan"))
    ),
    {"best_step": 99},
    {"last_read": 99},
    {"step": -1},
    "[1]",
    "{}",
    "nonsense",
    "[" * 100_000 + "]" * 100_000,
]
ALLOWED = ({"best_loss": -1.5},)


@pytest.mark.parametrize(
    "numbers", [numbers for numbers in NUMBERS if numbers not in ALLOWED], ids=lambda n: str(n)[:30]
)
def test_invalid_numbers_in_a_checkpoint_are_refused(x, make_flow, unfinished, numbers):
    for name in (NEWEST, PREVIOUS):
        rewrite(unfinished / name, numbers)
    with pytest.raises(RunFolderError, match=r"cannot resume: no checkpoint in .* can be read.*overwrite=True"):
        fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS)


def test_a_checkpoint_sets_no_other_attribute(x, make_flow, unfinished, assert_same):
    rewrite(unfinished / NEWEST, {"parts": None, "keep": 1, "__class__": "x"})
    resumed = fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS)
    assert_same(resumed.flow, fit(make_flow(), x, **SETTINGS).flow)


@pytest.mark.parametrize(
    "tensors",
    [
        lambda found: {name: value.double() for name, value in found.items()},
        lambda found: {name: value for name, value in found.items() if name != "average"},
        lambda found: {**found, "more": torch.zeros(3)},
        lambda found: {**found, "step.count": torch.zeros(2, dtype=torch.int64)},
    ],
)
def test_tensors_that_do_not_fit_the_flow_are_refused(x, make_flow, unfinished, tensors):
    rewrite(unfinished / NEWEST, tensors=tensors)
    with pytest.raises(RunFolderError, match=r"tensors do not fit this flow.*overwrite=True"):
        fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("start", ["flow.", "best.", "average", "optimiser.exp_avg", "optimiser.exp_avg_sq"])
def test_tensors_that_are_not_finite_are_refused(x, make_flow, unfinished, start, bad):
    def spoil(found):
        name = max(name for name, value in found.items() if name.startswith(start) and value.is_floating_point())
        found[name].view(-1)[-1] = bad
        return found

    rewrite(unfinished / NEWEST, tensors=spoil)
    with pytest.raises(RunFolderError, match=rf"{start}.* holds invalid numbers.*overwrite=True"):
        fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS)


def test_indices_that_are_not_a_permutation_are_refused(x, make_flow, unfinished):
    def twice(found):
        name = next(name for name, value in found.items() if value.dtype == torch.int64 and value.numel() > 1)
        return {**found, name: torch.zeros_like(found[name])}

    rewrite(unfinished / NEWEST, tensors=twice)
    with pytest.raises(RunFolderError, match=r"holds invalid numbers.*overwrite=True"):
        fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS)


REFUSED = {(kind, "config.json") for kind in ("pipe", "device", "folder", "large")}
REFUSED |= {("folder", name) for name in (NEWEST, NEXT, PREVIOUS)}
REFUSED |= {(kind, "metrics.jsonl") for kind in ("pipe", "device", "folder", "large")}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
@pytest.mark.parametrize("name", [NEWEST, NEXT, PREVIOUS, "metrics.jsonl", "config.json"])
def test_files_that_are_not_plain_are_refused_or_skipped(x, make_flow, unfinished, kind, name):
    """No read blocks or goes on forever: the run resumes, or an error names the file."""
    path = unfinished / name
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "large":
            with path.open("wb") as file:
                file.truncate(1 << 36)
    expected = pytest.raises(RunFolderError, match=name) if (kind, name) in REFUSED else nullcontext()
    with expected:
        assert fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS).steps == 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a finished run, which tests must not change."""
    run = tmp_path_factory.mktemp("finished") / "run"
    fit(small_flow(), curved_rows(), run=run, **{**SETTINGS, "steps": 4})
    return run


@pytest.mark.parametrize("entry", ["steps", "stopped", "validation_loss", "best_step", "weights", "seconds"])
@pytest.mark.parametrize("value", [[], {}, "x", -1.5, 10**400])
def test_an_invalid_result_is_refused(x, make_flow, finished, run, entry, value):
    if (entry, value) == ("validation_loss", -1.5):
        value = True
    shutil.copytree(finished, run)
    path = run / "config.json"
    config = json.loads(path.read_text())
    config["result"][entry] = value
    path.write_text(json.dumps(config))
    with pytest.raises(RunFolderError, match=rf"(has the invalid value .* for {entry}|not valid JSON).*"):
        fit(make_flow(), x, run=run, resume=True, **{**SETTINGS, "steps": 4})
