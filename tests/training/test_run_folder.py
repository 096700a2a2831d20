"""Run folders: no run is overwritten by accident, and every refusal gives a reason."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import cubicflow as cf
from cubicflow.progress import LiveLine, PlainLines, Progress, make_progress
from cubicflow.training import RunFolderError, TrainingInterrupted, fit
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.run_folder import RunFolder

SETTINGS = {"steps": 12, "validate_every": 4, "progress": False}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(message, flow, x, run, **settings):
    before = contents(run)
    with pytest.raises(RunFolderError, match=message):
        fit(flow, x, run=run, **{**SETTINGS, **settings})
    assert contents(run) == before


def test_a_run_that_is_there_is_not_overwritten(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    refused("already holds a run; choose another folder, .* with resume=True or overwrite=True", make_flow(), x, run)
    first = contents(run)
    fit(make_flow(), x, run=run, overwrite=True, seed=1, **SETTINGS)
    assert contents(run)["model.safetensors"] != first["model.safetensors"]
    with pytest.raises(ValueError, match="resume and overwrite contradict each other"):
        fit(make_flow(), x, run=run, resume=True, overwrite=True, **SETTINGS)


def test_a_folder_of_somebody_elses(x, make_flow, run):
    run.mkdir()
    (run / "thesis.tex").write_text("years of work")
    for flag in ({}, {"overwrite": True}, {"resume": True}):
        refused(r"holds other files and no run \(thesis.tex\)", make_flow(), x, run, **flag)


def test_a_run_may_start_in_a_folder_with_a_judgement(x, make_flow, run):
    """A new run may start in a folder that holds a judgement but no run."""
    run.mkdir()
    (run / "judge.json").write_text("{}")
    (run / "plots").mkdir()
    fit(make_flow(), x, steps=2, progress=False, run=run)
    assert cf.load(run) is not None
    assert (run / "judge.json").exists()


def test_a_file_where_the_folder_should_be(x, make_flow, run):
    run.write_text("a file")
    with pytest.raises(RunFolderError, match="is a file; a run needs a folder"):
        fit(make_flow(), x, run=run, **SETTINGS)


def test_overwriting_keeps_files_that_are_not_of_the_run(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    (run / "notes.txt").write_text("mine")
    fit(make_flow(), x, run=run, overwrite=True, **SETTINGS)
    assert (run / "notes.txt").read_text() == "mine"


def test_resume_begins_where_there_is_nothing(x, make_flow, run, assert_same):
    begun = fit(make_flow(), x, run=run, resume=True, **SETTINGS)
    assert_same(begun.flow, fit(make_flow(), x, **SETTINGS).flow)


def test_resuming_a_finished_run_gives_its_result(x, make_flow, run, assert_same):
    first = fit(make_flow(), x, run=run, **SETTINGS)
    before = contents(run)
    again = fit(make_flow(), x, run=run, resume=True, **SETTINGS)
    assert_same(first.flow, again.flow)
    assert (again.validation_loss, again.weights, again.history) == (
        first.validation_loss,
        first.weights,
        first.history,
    )
    assert contents(run) == before


def test_a_finished_run_says_how_to_train_on(x, make_flow, run, assert_same, tmp_path):
    """The learning rate of a finished run is 0. More steps need another run that starts from the same weights."""
    first = fit(make_flow(), x, run=run, **SETTINGS)
    before = contents(run)
    refused(
        r"is finished after 12 steps, and its learning rate is 0.*steps was 12, is now 24.*start another run "
        r"in another folder from its weights: fit\(cubicflow.load\('.*run'\), ...\), or .* with start='.*run'",
        make_flow(), x, run, resume=True, steps=24,
    )  # fmt: skip
    assert contents(run) == before
    assert_same(first.flow, cf.load(run))
    further = fit(cf.load(run), x, run=tmp_path / "further", **{**SETTINGS, "steps": 24})
    assert further.steps == 24


def test_resume_with_changed_settings(x, make_flow, unfinished):
    refused(
        r"started with other settings \(training\): learning_rate was 0.0005, is now 0.1", make_flow(), x, unfinished,
        resume=True, learning_rate=0.1,
    )  # fmt: skip
    refused(r"\(training\): steps was 12, is now 24", make_flow(), x, unfinished, resume=True, steps=24)
    refused(r"\(training\): beta2 was 0.999, is now 0.9", make_flow(), x, unfinished, resume=True, beta2=0.9)
    resumed = fit(make_flow(), x, run=unfinished, resume=True, checkpoint_seconds=1, device="cpu", **SETTINGS)
    assert resumed.steps == 12


def test_settings_that_are_not_given_keep_the_values_of_the_run(x, make_flow, run, assert_same):
    """So a run of a version with other defaults resumes, and ends with the same weights."""
    settings = {"steps": 8, "validate_every": 2, "warmup_steps": 3, "batch_size": 50, "patience": 4, "progress": False}
    whole = fit(make_flow(), x, **settings)
    calls = itertools.count()
    with pytest.raises(TrainingInterrupted):
        fit(make_flow(), x, run=run, stop=lambda: next(calls) == 3, **settings)
    changed = {"steps": 8, "validate_every": 2, "patience": 5}
    refused(r"\(training\): patience was 4, is now 5", make_flow(), x, run, resume=True, **changed)
    resumed = fit(make_flow(), x, run=run, resume=True, progress=False)
    assert resumed.config == whole.config
    assert_same(whole.flow, resumed.flow)


def test_a_run_older_than_a_setting_resumes(x, make_flow, unfinished):
    path = unfinished / "config.json"
    config = json.loads(path.read_text())
    del config["training"]["beta2"]
    path.write_text(json.dumps(config))
    refused(r"\(training\): beta2 was 0.999, is now 0.9", make_flow(), x, unfinished, resume=True, beta2=0.9)
    assert fit(make_flow(), x, run=unfinished, resume=True, **SETTINGS).steps == 12


def test_resume_with_other_data(x, make_flow, unfinished):
    refused(r"started with other rows: fingerprint was", make_flow(), x + 1, unfinished, resume=True)
    refused(r"started with other rows: rows was 540, is now 270", make_flow(), x[:300], unfinished, resume=True)


@pytest.mark.parametrize("row", [0, 1, 299, 598])
def test_resume_with_one_other_value(x, make_flow, unfinished, row):
    changed = x.clone()
    changed[row, 1] += 1
    refused(
        r"started with other rows: fingerprint was '\w+', is now '\w+'", make_flow(), changed, unfinished, resume=True
    )


def test_resume_with_another_file_of_the_same_size(x, make_flow, run, tmp_path):
    values = x.numpy().copy()
    path = tmp_path / "rows.parquet"
    plain = {"compression": None, "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), path, **plain)
    fit(make_flow(), path, run=run, **SETTINGS)
    size = path.stat().st_size
    values[300] += 1
    pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), path, **plain)
    assert path.stat().st_size == size
    refused(r"started with other rows: fingerprint was", make_flow(), path, run, resume=True)


def test_resume_with_other_validation_rows(x, make_flow, run):
    fit(make_flow(), x[:500], x[500:], run=run, **SETTINGS)
    named = r"started with other rows: validation_fingerprint was '\w+', is now '\w+'"
    refused(named, make_flow(), x[:500], run, validation=x[500:] + 1, resume=True)
    refused(r"validation_rows was 100, is now 50", make_flow(), x[:500], run, validation=x[550:], resume=True)
    refused(r"validation_rows was 100, is now None", make_flow(), x[:500], run, resume=True)
    assert fit(make_flow(), x[:500], x[500:], run=run, resume=True, **SETTINGS).steps == 12


def test_resume_without_a_run(x, make_flow):
    with pytest.raises(ValueError, match="resume=True needs run="):
        fit(make_flow(), x, resume=True, **SETTINGS)


def test_resume_with_another_model(x, make_flow, unfinished):
    wider = make_flow(hidden_features=16)
    refused("run of another model.*hidden_features.*was 8 and is 16", wider, x, unfinished, resume=True)
    refused("run of another model.*which had 3 parts and has 5", make_flow(num_layers=2), x, unfinished, resume=True)
    refused("run of another model.*its dtype", make_flow().double(), x, unfinished, resume=True)


def test_another_version(x, make_flow, unfinished):
    path = unfinished / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "version": 99}))
    refused(
        "the format has version 99; this version of cubicflow reads version 1", make_flow(), x, unfinished, resume=True
    )
    path.write_text("{")
    refused("cannot resume: .*not valid JSON", make_flow(), x, unfinished, resume=True)


def test_sections_are_kept_and_compared(x, make_flow, run):
    fit(make_flow(), x, run=run, sections={"table": {"columns": ["a", "b"]}}, **SETTINGS)
    assert json.loads((run / "config.json").read_text())["table"] == {"columns": ["a", "b"]}
    refused(r"other settings \(table\)", make_flow(), x, run, resume=True, sections={"table": {"columns": ["a", "c"]}})


@pytest.mark.parametrize(
    "name", ["flow", "folder", "result", "training", "data", "format", "version", "dtype", "shared_tensors"]
)
def test_sections_cannot_take_the_place_of_the_runs_own(x, make_flow, run, name):
    def never(flow, batch):
        raise AssertionError("training began")

    with pytest.raises(ValueError, match=f"sections may not be named '{name}'.*choose another name"):
        fit(make_flow(), x, run=run, loss=never, sections={name: {}}, **SETTINGS)
    assert not run.exists()


# --- folders that a killed process left ---


def test_killed_while_overwriting(x, make_flow, run, tmp_path, monkeypatch, assert_same):
    """After a kill at any moment, the run can be resumed, and the folder can be overwritten again. Other files stay."""
    whole = fit(make_flow(), x, run=run, **SETTINGS)
    (run / "notes.txt").write_text("mine")
    real = Path.unlink
    for kill_at in range(7):
        calls = iter(range(100))

        def unlink(path, missing_ok=False, calls=calls, kill_at=kill_at):
            if path.name != "lock" and next(calls) == kill_at:
                raise KeyboardInterrupt
            real(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            fit(make_flow(), x, run=run, overwrite=True, **SETTINGS)
        monkeypatch.undo()
        assert (run / "config.json").exists()
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(run, tmp_path / "copy")
        resumed = fit(make_flow(), x, run=tmp_path / "copy", resume=True, **SETTINGS)
        assert_same(resumed.flow, whole.flow)
    again = fit(make_flow(), x, run=run, overwrite=True, **SETTINGS)
    assert_same(again.flow, fit(make_flow(), x, **SETTINGS).flow)


def test_killed_while_the_first_config_is_written(x, make_flow, run):
    """The command line checks the folder before it reads the table, and the training loop checks it again."""
    for flags in ({}, {"resume": True}, {"overwrite": True}):
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        (run / "lock").write_text("process 7")
        (run / ".config.json.0123456789abcdef").write_text("{")
        RunFolder(run).check(**flags)
        assert fit(make_flow(), x, run=run, **flags, **SETTINGS).steps == 12
        assert sorted(contents(run)) == ["config.json", "metrics.jsonl", "model.safetensors"]


def test_a_file_named_like_a_temporary_file_is_kept(x, make_flow, run):
    run.mkdir()
    (run / ".config.json.bak").write_text("mine")
    refused(r"holds other files and no run \(.config.json.bak\)", make_flow(), x, run)


def test_killed_between_the_last_config_and_the_clean_up(x, make_flow, unfinished, monkeypatch):
    run = unfinished

    def die(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("cubicflow.training.checkpoint.remove_checkpoints", die)
    with pytest.raises(KeyboardInterrupt):
        fit(make_flow(), x, run=run, resume=True, **SETTINGS)
    monkeypatch.undo()
    assert (run / "checkpoint.safetensors").exists()
    assert fit(make_flow(), x, run=run, resume=True, **SETTINGS).steps == 12
    assert sorted(contents(run)) == ["config.json", "metrics.jsonl", "model.safetensors"]


# --- finished runs that were damaged ---


def test_a_finished_run_whose_model_is_damaged(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    model = run / "model.safetensors"
    whole = model.read_bytes()
    for damaged in (whole[:-100], whole[:3], b""):
        model.write_bytes(damaged)
        refused(r"cannot resume: .*model.safetensors: .*overwrite=True", make_flow(), x, run, resume=True)
    model.unlink()
    refused(r"cannot resume: .*model.safetensors: there is no.*overwrite=True", make_flow(), x, run, resume=True)
    make_flow(hidden_features=16).save(run / "other")
    model.write_bytes((run / "other" / "model.safetensors").read_bytes())
    with pytest.raises(RunFolderError, match=r"model.safetensors: the weights do not match config"):
        fit(make_flow(), x, run=run, resume=True, **SETTINGS)


def test_a_finished_run_whose_whole_numbers_name_no_column(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    tensors = load_file(run / "model.safetensors")
    name = next(name for name, value in tensors.items() if value.dtype == torch.int64 and value.numel() > 1)
    save_file({**tensors, name: torch.full_like(tensors[name], 2**63 - 1)}, run / "model.safetensors")
    refused(rf"cannot resume: .*{name} holds invalid numbers.*overwrite=True", make_flow(), x, run, resume=True)


def test_a_finished_run_whose_result_is_damaged(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    path = run / "config.json"
    config = json.loads(path.read_text())
    del config["result"]["best_step"], config["result"]["weights"]
    path.write_text(json.dumps(config))
    refused(r"'result' of .*config.json lacks best_step, weights; .*overwrite=True", make_flow(), x, run, resume=True)
    del config["result"]
    path.write_text(json.dumps(config))
    refused(r"config.json has no section 'result'; .*overwrite=True", make_flow(), x, run, resume=True)


def test_a_line_of_metrics_that_is_not_text_is_skipped(x, make_flow, run):
    first = fit(make_flow(), x, run=run, **SETTINGS)
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:10] + b"\xff" + lines[1][11:], *lines[2:]]))
    again = fit(make_flow(), x, run=run, resume=True, **SETTINGS)
    assert again.history == [first.history[0], *first.history[2:]]


def test_two_runs_into_one_folder(x, make_flow, run):
    """Another process holds the lock. The lock is released when that process dies."""
    run.mkdir()
    hold = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'a+')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write('process 7 on elsewhere')\n"
        "file.flush()\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(run / "lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        for flag in ({}, {"overwrite": True}, {"resume": True}):
            refused("is in use by process 7 on elsewhere", make_flow(), x, run, **flag)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert fit(make_flow(), x, run=run, **SETTINGS).steps == 12


def test_within_one_process_too(x, make_flow, run):
    def loss(flow, batch):
        with pytest.raises(RunFolderError, match=f"in use by process {os.getpid()} on"):
            fit(make_flow(), x, run=run, resume=True, **SETTINGS)
        return negative_log_likelihood(flow, batch)

    fit(make_flow(), x, run=run, loss=loss, **{**SETTINGS, "steps": 4})


# --- progress ---


def test_plain_lines_without_a_terminal(x, make_flow, capsys):
    fit(make_flow(), x, **{**SETTINGS, "progress": True})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 4", "step 8", "step 12"]
    assert all(word in lines[0] for word in ("loss", "validation", "averaged", "rows/s", "left"))
    fit(make_flow(), x, **SETTINGS)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_live_line_in_a_terminal(x, make_flow, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert isinstance(make_progress(True, validates=True), LiveLine)
    shown = make_progress(True, validates=True)
    shown.update(0.5, {"step": 5, "loss": 1.5, "validation_loss": 2.5, "seconds": 1.0})
    shown.update(0.6, {"step": 6, "loss": 1.25, "seconds": 2.0})
    shown.notify("a sentence [that stays]")
    shown.close()
    said = capsys.readouterr().err
    assert "a sentence [that stays]" in said
    assert "validation 2.5" in said


def test_rich_is_optional(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(make_progress(True, validates=True), PlainLines)
    assert type(make_progress(False, validates=True)) is Progress, "the one that shows nothing"


def test_flows_stay_loadable_at_every_stage(x, make_flow, unfinished):
    """An interrupted run holds the best weights so far."""
    assert cf.load(unfinished).log_prob(x[:3]).shape == torch.Size([3])


def test_a_run_is_removed_and_other_files_are_kept(x, make_flow, run):
    fit(make_flow(), x, run=run, **SETTINGS)
    (run / "thesis.txt").write_text("mine")
    RunFolder(run).forget()
    assert contents(run) == {"thesis.txt": b"mine"}
    RunFolder(run).forget()  # the folder holds no run any more
    RunFolder(run / "nowhere").forget()
    (run / "thesis.txt").unlink()
    fit(make_flow(), x, run=run, **SETTINGS)
    RunFolder(run).forget()
    assert not run.exists()
