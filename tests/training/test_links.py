"""Links in a run folder: the run never writes through them."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from cubicflow.training import RunFolderError, fit
from cubicflow.training.losses import negative_log_likelihood

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}
LEFT = ["config.json", "metrics.jsonl", "model.safetensors"]


@pytest.fixture
def victim(tmp_path):
    """Return a user's file outside the run."""
    path = tmp_path / "thesis.tex"
    path.write_text("years of work")
    yield path
    assert path.read_text() == "years of work"


NAMES = (
    "lock", "config.json", "metrics.jsonl", "model.safetensors", "checkpoint.safetensors",
    "checkpoint-next.safetensors", "checkpoint-previous.safetensors", "checkpoint-damaged.safetensors",
    ".config.json.0123456789abcdef",
)  # fmt: skip


REFUSED = {"resume": ("lock", "config.json"), "overwrite": ("lock",)}


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_nothing_is_written_through_links(x, make_flow, unfinished, victim, link, flag):
    """Each link is replaced by a file of the run, or an error names the link."""
    for name in NAMES:
        before = shutil.copytree(unfinished, unfinished.with_name(f"{flag}-{name}"))
        (before / name).unlink(missing_ok=True)
        link(before / name, victim)
        refused = pytest.raises(RunFolderError, match=name) if name in REFUSED[flag] else nullcontext()
        with refused:
            fit(make_flow(), x, run=before, **{flag: True}, **SETTINGS)
        assert victim.read_text() == "years of work", name


def test_a_lock_that_is_a_link_is_refused(x, make_flow, run, victim):
    run.mkdir()
    (run / "lock").symlink_to(victim)
    with pytest.raises(RunFolderError, match=r"lock is a link to .*thesis.tex.*remove the link"):
        fit(make_flow(), x, run=run, **SETTINGS)
    (run / "lock").unlink()
    (run / "lock").hardlink_to(victim)
    with pytest.raises(RunFolderError, match="lock has another name as well"):
        fit(make_flow(), x, run=run, **SETTINGS)


def test_metrics_that_become_a_link_during_training(x, make_flow, run, victim):
    def loss(flow, batch):
        (run / "metrics.jsonl").unlink(missing_ok=True)
        (run / "metrics.jsonl").symlink_to(victim)
        return negative_log_likelihood(flow, batch)

    with pytest.raises(RunFolderError, match=r"metrics.jsonl is a link to .*thesis.tex"):
        fit(make_flow(), x, run=run, loss=loss, **SETTINGS)


def test_a_pipe_as_lock_is_not_waited_for(x, make_flow, run):
    run.mkdir()
    os.mkfifo(run / "lock")
    with pytest.raises(RunFolderError, match="lock is not a plain file; remove this file"):
        fit(make_flow(), x, run=run, **SETTINGS)


def test_a_run_folder_behind_a_link_is_a_run_folder(x, make_flow, run, tmp_path):
    run.mkdir()
    (tmp_path / "elsewhere").symlink_to(run)
    assert fit(make_flow(), x, run=tmp_path / "elsewhere", **SETTINGS).steps == 12
    assert sorted(path.name for path in run.iterdir()) == LEFT
