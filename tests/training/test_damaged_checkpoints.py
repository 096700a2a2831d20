"""A run survives a damaged checkpoint and a disk that refuses to write."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from cubicflow.training import RunFolderError, TrainingInterrupted, fit
from cubicflow.training.checkpoint import NEWEST, NEXT, PREVIOUS, DamagedCheckpointError, read_checkpoint

from .small_fits import acting_at, curved_rows, small_flow

# --- damaged checkpoints ---


SETTINGS = {"steps": 40, "validate_every": 4, "checkpoint_seconds": 0, "progress": False}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the folder of a run that stopped at step 20, with checkpoints of steps 19 and 20. Tests copy it."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    loss = acting_at(19, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingInterrupted):
        fit(small_flow(), curved_rows(), run=run, loss=loss, **SETTINGS)
    return run


@pytest.fixture(scope="module")
def whole():
    """Return the flow of an undisturbed run."""
    return fit(small_flow(), curved_rows(), **SETTINGS).flow


@pytest.fixture
def run(stopped, tmp_path):
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(bytes(content))


def change_a_number(path):
    content = path.read_bytes()
    assert b'\\"waited\\": ' in content
    path.write_bytes(
        content.replace(b'\\"waited\\": 0', b'\\"waited\\": 9').replace(b'\\"step\\": 20', b'\\"step\\": 19')
    )


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, change_a_number, empty, Path.unlink])
def test_damaged_newest_checkpoint_falls_back(x, make_flow, run, whole, assert_same, capsys, damage):
    assert read_checkpoint(run / NEWEST).numbers.step == 20
    damage(run / NEWEST)
    resumed = fit(make_flow(), x, run=run, resume=True, **{**SETTINGS, "progress": True})
    said = capsys.readouterr().err
    assert "resuming at step 19" in said or "resuming at step 20" in said  # step 20 may be in both checkpoint files
    if damage is not Path.unlink:
        assert "damaged" in said
    assert_same(resumed.flow, whole)


def test_the_first_save_after_a_damaged_checkpoint_keeps_the_intact_one(x, make_flow, run):
    truncate(run / NEWEST)
    intact = read_checkpoint(run / PREVIOUS).numbers.step
    loss = acting_at(-1, lambda: os.kill(os.getpid(), signal.SIGINT))  # at the first step
    with pytest.raises(TrainingInterrupted):
        fit(make_flow(), x, run=run, resume=True, loss=loss, **SETTINGS)
    assert read_checkpoint(run / NEWEST).numbers.step == intact + 1
    assert read_checkpoint(run / PREVIOUS).numbers.step == intact


def test_all_checkpoints_damaged_is_a_clear_error(x, make_flow, run):
    truncate(run / NEWEST)
    truncate(run / PREVIOUS)
    with pytest.raises(RunFolderError, match=r"no checkpoint in .* can be read.*overwrite=True"):
        fit(make_flow(), x, run=run, resume=True, **SETTINGS)
    assert (run / NEWEST).exists()  # nothing was removed


def test_killed_between_the_two_renames(x, make_flow, run, whole, assert_same):
    (run / PREVIOUS).unlink()
    (run / NEWEST).rename(run / NEXT)
    assert_same(fit(make_flow(), x, run=run, resume=True, **SETTINGS).flow, whole)


def test_checkpoints_hold_no_pickle_and_refuse_other_files(tmp_path, run, make_flow):
    for path in run.iterdir():
        assert path.suffix in (".safetensors", ".json", ".jsonl")
    (tmp_path / "model").mkdir()
    make_flow().save(tmp_path / "model")
    with pytest.raises(DamagedCheckpointError):
        read_checkpoint(tmp_path / "model" / "model.safetensors")


# --- disks that refuse ---


@pytest.fixture
def mounted(tmp_path):
    """Mount a small tmpfs, if this user may."""
    folders = []

    def mount(options):
        folder = tmp_path / f"mount-{len(folders)}"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    try:
        yield mount
    finally:
        for folder in folders:
            subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_a_clear_error_and_loses_nothing(x, make_flow, mounted, assert_same):
    disk = mounted("size=1m")
    run = disk / "run"

    def fill():
        with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    settings = {"steps": 30, "validate_every": 4, "checkpoint_seconds": 0, "progress": False}
    with pytest.raises(RunFolderError, match=r"No space left on device. The checkpoint of step 12 is kept: make room"):
        fit(make_flow(), x, run=run, loss=acting_at(12, fill), **settings)
    assert read_checkpoint(run / NEWEST).numbers.step == 12
    assert not [p.name for p in run.iterdir() if p.name.startswith(".")]  # no temporary file is left
    (disk / "filler").unlink()
    resumed = fit(make_flow(), x, run=run, resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_file_size_limit_is_a_clear_error_and_loses_nothing(x, make_flow, tmp_path, assert_same):
    """This is the same test without a mount: from some step on, no file may grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    settings = {"steps": 30, "validate_every": 4, "checkpoint_seconds": 0, "progress": False}
    run = tmp_path / "run"
    limit = acting_at(12, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1])))
    try:
        with pytest.raises(RunFolderError, match=os.strerror(errno.EFBIG)):
            fit(make_flow(), x, run=run, loss=limit, **settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_checkpoint(run / NEWEST).numbers.step == 12
    resumed = fit(make_flow(), x, run=run, resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_no_room_at_all_is_a_clear_error(x, make_flow, tmp_path):
    """There is no space even for the process id in the lock file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(RunFolderError, match=r"cannot write the run folder .*run: File too large"):
            fit(make_flow(), x, run=tmp_path / "run", steps=5, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_read_only_folder_is_a_clear_error(x, make_flow, mounted):
    folder = mounted("size=1m,ro")
    with pytest.raises(RunFolderError, match=r"cannot write the run folder .*[Rr]ead-only"):
        fit(make_flow(), x, run=folder / "run", steps=5, progress=False)
