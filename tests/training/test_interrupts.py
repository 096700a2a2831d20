"""A run that is interrupted by a signal or a stop function is saved, and resumes with the same bits."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cubicflow.training import TrainingInterrupted, fit
from cubicflow.training.checkpoint import NEWEST, read_checkpoint
from cubicflow.training.losses import negative_log_likelihood

from .small_fits import acting_at

# --- signals ---


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
    settings = {"steps": 18, "validate_every": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    loss = acting_at(13, lambda: os.kill(os.getpid(), number))
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 14 and saved. To resume, .* with resume=True"):
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
def test_a_signal_in_the_last_step_is_handled_after_saving(x, make_flow, tmp_path, assert_same, number, when):
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

    with pytest.raises(TrainingInterrupted, match=r"the run is finished and saved. To get its result, .*resume=True"):
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


# --- stop functions ---


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
    settings = {"steps": 18, "validate_every": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 14 and saved. To resume, .* with resume=True"):
        where(lambda: fit(make_flow(), x, run=tmp_path / "run", stop=StopAt(14), **settings))
    assert read_checkpoint(tmp_path / "run" / NEWEST).numbers.step == 14
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, stop=StopAt(19), **settings)
    assert_same(whole.flow, resumed.flow)
    assert resumed.history[-1]["loss"] == whole.history[-1]["loss"]


@pytest.mark.parametrize("where", [lambda function: function(), in_a_thread], ids=["main thread", "another thread"])
def test_a_deadline_ends_training_in_any_thread(x, make_flow, tmp_path, where):
    over = threading.Event()
    loss = acting_at(5, over.set)
    with pytest.raises(TrainingInterrupted, match="stopped at step 6 and saved"):
        where(lambda: fit(make_flow(), x, run=tmp_path / "run", loss=loss, stop=over.is_set, steps=9, progress=False))


def test_stop_is_called_once_after_each_step(x, make_flow):
    never = StopAt(0)
    assert fit(make_flow(), x, steps=8, stop=never, progress=False).steps == 8
    assert never.asked == 8


def test_a_deadline_that_ends_in_the_last_validation_ends_nothing_else(x, make_flow, tmp_path, assert_same):
    """The finished run returns its result, and no signal is sent."""
    over = threading.Event()

    def loss(flow, batch):
        if not flow.training:
            over.set()
        return negative_log_likelihood(flow, batch)

    settings = {"steps": 4, "validate_every": 4, "progress": False}
    before = signal.getsignal(signal.SIGTERM)
    result = fit(make_flow(), x, run=tmp_path / "run", loss=loss, stop=over.is_set, **settings)
    assert result.stopped == "steps"
    assert over.is_set()
    assert signal.getsignal(signal.SIGTERM) == before
    assert_same(result.flow, fit(make_flow(), x, **settings).flow)


def test_stop_after_the_last_step_is_the_end(x, make_flow, tmp_path):
    assert fit(make_flow(), x, run=tmp_path / "run", stop=StopAt(8), steps=8, progress=False).stopped == "steps"


def test_stop_without_a_run_folder_keeps_the_best_weights(x, make_flow, assert_same):
    settings = {"steps": 18, "validate_every": 4, "progress": False}
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


def test_an_error_of_stop_is_raised_and_the_run_can_be_resumed(x, make_flow, tmp_path, assert_same):
    settings = {"steps": 12, "validate_every": 4, "checkpoint_seconds": 0, "progress": False}

    def broken():
        raise LookupError("no such variable")

    with pytest.raises(LookupError, match="no such variable"):
        fit(make_flow(), x, run=tmp_path / "run", stop=broken, **settings)
    resumed = fit(make_flow(), x, run=tmp_path / "run", resume=True, **settings)
    assert_same(resumed.flow, fit(make_flow(), x, **settings).flow)


def test_stop_must_be_a_function(x, make_flow, tmp_path):
    with pytest.raises(TypeError, match="stop must be a function without arguments that returns True to stop, got 60"):
        fit(make_flow(), x, run=tmp_path / "run", stop=60, steps=4, progress=False)
    assert not (tmp_path / "run").exists()
