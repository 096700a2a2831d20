"""A run survives kill -9, Ctrl-C, a full disk, a damaged checkpoint, and a loss that is not finite."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cubicflow.data.rows import Batch
from cubicflow.reproduce.deadline import Deadline
from cubicflow.training import NonFiniteLossError, RunFolderError, TrainingInterrupted, fit
from cubicflow.training.checkpoint import NEWEST, NEXT, PREVIOUS, DamagedCheckpointError, read_checkpoint
from cubicflow.training.losses import negative_log_likelihood

WORKER = Path(__file__).with_name("kill_worker.py")


def metrics_without_times(run):
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "rows_per_second")} for line in lines]


def acting_at(step, action):
    """Return the negative log likelihood as a loss that also calls ``action`` at the start of a step."""
    steps = iter(range(-1, 10**9))  # call -1 initialises layers

    def loss(flow, batch):
        if flow.training and next(steps) == step:
            action()
        return negative_log_likelihood(flow, batch)

    return loss


# --- kill -9 ---


def start(run, steps):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(WORKER), str(run), str(steps)], env=environment)


def kill_until_finished(run, steps, kills, chance):
    """Kill the worker several times at random moments after its training begins. Then let it finish."""
    landed = 0
    for _ in range(kills):
        worker = start(run, steps)
        checkpoint = run / NEWEST
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        while worker.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.4))
        landed += worker.poll() is None
        worker.kill()
        worker.wait()
    last = start(run, steps)
    assert last.wait() == 0
    return landed


def check_kills(tmp_path, assert_same, steps, kills):
    whole = start(tmp_path / "whole", steps)
    landed = kill_until_finished(tmp_path / "killed", steps, kills, random.Random(0))
    assert whole.wait() == 0
    assert landed >= min(kills, 2), "the worker finished before it could be killed; give it more steps"
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert metrics_without_times(tmp_path / "whole") == metrics_without_times(tmp_path / "killed")
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
    ]


def test_killed_runs_end_bit_identical(tmp_path, assert_same):
    check_kills(tmp_path, assert_same, steps=250, kills=3)


@pytest.mark.soak
def test_many_kills_end_bit_identical(tmp_path, assert_same):
    check_kills(tmp_path, assert_same, steps=2500, kills=25)


@pytest.mark.soak
def test_kills_while_starting(tmp_path, assert_same):
    """The worker is killed at any moment from its first import on."""
    chance = random.Random(1)
    whole = start(tmp_path / "whole", 50)
    assert whole.wait() == 0
    for _ in range(30):
        worker = start(tmp_path / "killed", 50)
        time.sleep(chance.uniform(0, 4))
        worker.kill()
        worker.wait()
    assert start(tmp_path / "killed", 50).wait() == 0
    assert_same(tmp_path / "whole", tmp_path / "killed")


# --- Ctrl-C ---


@pytest.fixture
def ctrl_c():
    """Restore the default handler of SIGINT, as at a terminal: a shell makes background processes and their children
    ignore SIGINT.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_save_and_say_how_to_resume(x, make_flow, tmp_path, assert_same, number):
    settings = {"steps": 30, "validate_every": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    loss = acting_at(13, lambda: os.kill(os.getpid(), number))
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 14 and saved. To resume: .*resume"):
        fit(make_flow(), x, run=tmp_path / "run", loss=loss, **settings)
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    best_so_far = json.loads((tmp_path / "run" / "config.json").read_text())["result"]
    assert best_so_far["best_step"] <= 12
    assert not best_so_far["finished"]
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, **settings)
    assert_same(whole.flow, resumed.flow)
    assert resumed.history[-1]["loss"] == whole.history[-1]["loss"]


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_files_and_streams_resume_bit_identical(x, make_flow, tmp_path, assert_same, kind):
    path = tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(path, x.numpy())
    else:
        pq.write_table(pa.table({"a": x[:, 0].numpy(), "b": x[:, 1].numpy()}), path, row_group_size=100)
    settings = {"steps": 20, "validate_every": 4, "batch_size": 50, "progress": False}
    loss = acting_at(13, lambda: os.kill(os.getpid(), signal.SIGINT))  # in the second epoch
    with pytest.raises(TrainingInterrupted):
        fit(make_flow(), path, run=tmp_path / "run", loss=loss, **settings)
    resumed = fit(make_flow(), path, run=tmp_path / "run", resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), path, **settings).flow)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["last step", "last validation"])
def test_a_signal_that_comes_last_is_answered_once_all_is_saved(x, make_flow, tmp_path, assert_same, number, when):
    settings = {"steps": 8, "validate_every": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    calls = {True: 0, False: 0}

    def loss(flow, batch):
        calls[flow.training] += 1
        # Each of the two validations computes the loss of the raw and of the averaged weights.
        at_the_end = calls[True] == 9 if when == "last step" else calls[False] == 4
        if at_the_end and flow.training == (when == "last step"):
            os.kill(os.getpid(), number)
        return negative_log_likelihood(flow, batch)

    with pytest.raises(TrainingInterrupted, match=r"the run is finished and saved. To get its result: .*resume"):
        fit(make_flow(), x, run=tmp_path / "run", loss=loss, **settings)
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["finished"]
    assert_same(fit(make_flow(), x, run=tmp_path / "run", resume=True, **settings).flow, whole.flow)


@pytest.mark.usefixtures("ctrl_c")
def test_without_a_run_folder_ctrl_c_is_the_usual_one(x, make_flow):
    loss = acting_at(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(make_flow(), x, steps=30, loss=loss, progress=False)
    assert not isinstance(caught.value, TrainingInterrupted)


# --- a function that asks to stop ---


class StopAt:
    """A stop function that returns True at call number ``step``, and counts its calls."""

    def __init__(self, step):
        self.step, self.asked = step, 0

    def __call__(self):
        self.asked += 1
        return self.asked == self.step


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("where", [lambda function: function(), in_a_thread], ids=["main thread", "another thread"])
def test_stop_saves_and_says_how_to_resume(x, make_flow, tmp_path, assert_same, where):
    settings = {"steps": 30, "validate_every": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 14 and saved. To resume: .*resume"):
        where(lambda: fit(make_flow(), x, run=tmp_path / "run", stop=StopAt(14), **settings))
    assert read_checkpoint(tmp_path / "run" / NEWEST).numbers["step"] == 14
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, stop=StopAt(31), **settings)
    assert_same(whole.flow, resumed.flow)
    assert resumed.history[-1]["loss"] == whole.history[-1]["loss"]


@pytest.mark.parametrize("where", [lambda function: function(), in_a_thread], ids=["main thread", "another thread"])
def test_a_deadline_ends_training_in_any_thread(x, make_flow, tmp_path, where):
    deadline = Deadline(3600)
    loss = acting_at(5, lambda: setattr(deadline, "end", 0.0))
    with pytest.raises(TrainingInterrupted, match="stopped at step 6 and saved"):
        where(lambda: fit(make_flow(), x, run=tmp_path / "run", loss=loss, stop=deadline.over, steps=9, progress=False))


def test_stop_is_asked_once_after_each_step(x, make_flow):
    never = StopAt(0)
    assert fit(make_flow(), x, steps=8, stop=never, progress=False).steps == 8
    assert never.asked == 8


def test_a_deadline_that_ends_in_the_last_validation_ends_nothing_else(x, make_flow, tmp_path, assert_same):
    """The finished run returns its result, and no signal is sent."""
    deadline = Deadline(3600)

    def loss(flow, batch):
        if not flow.training:
            deadline.end = 0.0
        return negative_log_likelihood(flow, batch)

    settings = {"steps": 4, "validate_every": 4, "progress": False}
    before = signal.getsignal(signal.SIGTERM)
    result = fit(make_flow(), x, run=tmp_path / "run", loss=loss, stop=deadline.over, **settings)
    assert result.stopped == "steps"
    assert deadline.over()
    assert signal.getsignal(signal.SIGTERM) == before
    assert_same(result.flow, fit(make_flow(), x, **settings).flow)


def test_stop_after_the_last_step_is_the_end(x, make_flow, tmp_path):
    assert fit(make_flow(), x, run=tmp_path / "run", stop=StopAt(8), steps=8, progress=False).stopped == "steps"


def test_stop_without_a_run_folder_keeps_the_best_weights(x, make_flow, assert_same):
    settings = {"steps": 30, "validate_every": 4, "progress": False}
    flow = make_flow()
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 14 with the best.*Nothing was saved: give .* run="):
        fit(flow, x, stop=StopAt(14), **settings)
    assert not flow.training
    kept = {}

    def recording(flow, batch):
        if not flow.training:
            kept[len(kept)] = {name: value.detach().clone() for name, value in flow.state_dict().items()}
        return negative_log_likelihood(flow, batch)

    with pytest.raises(TrainingInterrupted):
        fit(make_flow(), x, loss=recording, stop=StopAt(14), **settings)
    found = flow.state_dict()
    assert any(all(torch.equal(found[name], state[name]) for name in found) for state in kept.values())


def test_what_stop_raises_goes_through_and_the_run_goes_on_later(x, make_flow, tmp_path, assert_same):
    settings = {"steps": 12, "validate_every": 4, "checkpoint_seconds": 0, "progress": False}

    def broken():
        raise LookupError("no such variable")

    with pytest.raises(LookupError, match="no such variable"):
        fit(make_flow(), x, run=tmp_path / "run", stop=broken, **settings)
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_stop_that_is_no_function(x, make_flow, tmp_path):
    with pytest.raises(TypeError, match="stop must be a function without arguments that returns True to stop, got 60"):
        fit(make_flow(), x, run=tmp_path / "run", stop=60, steps=4, progress=False)
    assert not (tmp_path / "run").exists()


# --- damaged checkpoints ---


def interrupted_run(x, make_flow, run, **settings):
    """Make a run that stopped at step 20, with checkpoints of steps 19 and 20."""
    loss = acting_at(19, lambda: os.kill(os.getpid(), signal.SIGINT))
    settings = {"steps": 40, "validate_every": 4, "checkpoint_seconds": 0, "progress": False, **settings}
    with pytest.raises(TrainingInterrupted):
        fit(make_flow(), x, run=run, loss=loss, **settings)
    return settings


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
def test_damaged_newest_checkpoint_falls_back(x, make_flow, tmp_path, assert_same, capsys, damage):
    settings = interrupted_run(x, make_flow, tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / NEWEST).numbers["step"] == 20
    damage(tmp_path / "run" / NEWEST)
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, **{**settings, "progress": True})
    said = capsys.readouterr().err
    assert "resuming at step 19" in said or "resuming at step 20" in said  # step 20 may be in both checkpoint files
    if damage is not Path.unlink:
        assert "damaged" in said
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_all_checkpoints_damaged_is_a_clear_error(x, make_flow, tmp_path):
    run = tmp_path / "run"
    settings = interrupted_run(x, make_flow, run)
    truncate(run / NEWEST)
    truncate(run / PREVIOUS)
    with pytest.raises(RunFolderError, match=r"no checkpoint in .* can be read.*--overwrite"):
        fit(make_flow(), x, run=run, resume=True, **settings)
    assert (run / NEWEST).exists()  # nothing was removed


def test_killed_between_the_two_renames(x, make_flow, tmp_path, assert_same):
    run = tmp_path / "run"
    settings = interrupted_run(x, make_flow, run)
    (run / PREVIOUS).unlink()
    (run / NEWEST).rename(run / NEXT)
    resumed = fit(make_flow(), x, run=run, resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_checkpoints_hold_no_pickle_and_refuse_other_files(tmp_path, x, make_flow):
    interrupted_run(x, make_flow, tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
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
    assert read_checkpoint(run / NEWEST).numbers["step"] == 12
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
    assert read_checkpoint(run / NEWEST).numbers["step"] == 12
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


# --- losses that are not finite ---


def test_non_finite_loss_stops_and_keeps_the_last_good_state(x, make_flow, tmp_path):
    run = tmp_path / "run"
    poison = [False]

    def loss(flow, batch):
        losses = negative_log_likelihood(flow, batch)
        return losses * float("nan") if poison[0] and flow.training else losses

    at_ten = acting_at(10, lambda: poison.__setitem__(0, True))

    def poisoned(flow, batch):
        at_ten(flow, batch)
        return loss(flow, batch)

    settings = {"validation_fraction": 0.0, "average_decay": None, "progress": False}
    flow = make_flow(dropout=0.0)
    with pytest.raises(NonFiniteLossError, match=r"the loss of step 10 is not finite. Likely cause: .*keeps the last"):
        fit(flow, x, steps=30, run=run, loss=poisoned, **settings)
    before = []  # the weights before each step of an undisturbed run

    def recording(flow, batch):
        before.append([param.detach().clone() for param in flow.parameters()])
        return negative_log_likelihood(flow, batch)

    fit(make_flow(dropout=0.0), x, steps=30, loss=recording, **settings)
    saved = read_checkpoint(run / NEWEST)
    assert saved.numbers["step"] == 11
    for (name, param), expected in zip(flow.named_parameters(), before[11], strict=True):
        assert torch.equal(param, expected)
        assert torch.equal(saved.tensors[f"flow.{name}"], expected)
    assert fit(make_flow(dropout=0.0), x, steps=30, run=run, resume=True, **settings).steps == 30


@pytest.mark.parametrize("at", [0, 10])
def test_a_step_that_is_not_finite_leaves_the_statistics_of_batch_norm(x, make_flow, tmp_path, at):
    """Rows that are not finite change the running means before the loss is computed."""
    before = []

    def poisoned(flow, batch):
        before.append({name: value.clone() for name, value in flow.named_buffers()})
        rows = batch.x * torch.nan if len(before) > at + 1 or at == 0 else batch.x  # the first call initialises layers
        return negative_log_likelihood(flow, Batch(rows))

    flow = make_flow(norm="batch", dropout=0.0)
    assert any("running_mean" in name for name, _ in flow.named_buffers())
    with pytest.raises(NonFiniteLossError, match=f"the loss of step {at} is not finite"):
        fit(flow, x, steps=30, run=tmp_path / "run", loss=poisoned, validation_fraction=0.0, progress=False)
    saved = read_checkpoint(tmp_path / "run" / NEWEST).tensors
    for name, value in flow.named_buffers():
        assert value.isfinite().all(), name
        assert torch.equal(value, before[at + 1][name]), name
        assert torch.equal(saved[f"flow.{name}"], value), name


def test_the_cause_names_rows_outside_the_unit_square(tmp_path):
    import cubicflow as cf

    x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)) * 1.01
    with pytest.raises(
        NonFiniteLossError, match=r"rows have a NaN or infinite loss.*unit cube, so scale the data to \[0, 1\]"
    ):
        fit(cf.flows.plane(num_bins=4, hidden_features=4), x, steps=30, progress=False)
