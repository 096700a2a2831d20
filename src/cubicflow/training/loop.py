"""The training loop, from rows and settings to the best weights."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from cubicflow.advice import Advice
from cubicflow.data.rows import NoColumns, Order, Rows, endless
from cubicflow.data.symmetries import Symmetries, check_symmetries
from cubicflow.progress import Progress, make_progress
from cubicflow.seeds import Stream, derive_seed
from cubicflow.training.config import TrainingConfig, least_validate_every
from cubicflow.training.diagnosis import likely_cause
from cubicflow.training.distributed import join
from cubicflow.training.errors import NonFiniteLossError, TrainingError, TrainingInterrupted
from cubicflow.training.fit_checks import as_rows, check_rows, check_settings, split_off
from cubicflow.training.interrupts import Interrupts
from cubicflow.training.losses import Loss, dequantised_likelihood, negative_log_likelihood
from cubicflow.training.randomness import random_state_kept
from cubicflow.training.run_folder import RunFolder, RunResult, check_run, open_run, recorded_settings
from cubicflow.training.schedule import Interval, averaging_weight, done, learning_rate
from cubicflow.training.state import TrainingState
from cubicflow.training.step import Step
from cubicflow.training.step_hook import step_hook
from cubicflow.training.validation import Validation

DRAWN_ROWS = 50_000  # rows of an epoch, for a loss that needs no data
READ_AT_ONCE = ("cpu",)  # devices on which Python reads a number without waiting for the device
AGREE_EVERY = 10  # steps between exchanges of stop requests, with several processes


@dataclass
class FitResult:
    """Result of :func:`fit`.

    Attributes:
        flow: the trained flow, in evaluation mode, with the weights that were best on validation.
        config: the settings, with all defaults filled in.
        steps: number of steps taken.
        stopped: the reason for the end of training: ``"steps"``, ``"time_budget"`` or ``"patience"``.
        validation_loss: the best validation loss; None without validation.
        best_step: the step of the best validation loss.
        weights: the kind of weights that were best, ``"raw"`` or ``"averaged"``.
        seconds: seconds of training.
        history: the logged metrics, as in metrics.jsonl.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(1, num_layers=1, hidden_features=8)
    >>> result = fit(flow, torch.randn(200, 1), steps=10, progress=False)
    >>> result.stopped, result.config.batch_size, result.history[-1]["step"]
    ('steps', 64, 10)
    """

    flow: Any = field(repr=False)
    config: TrainingConfig
    steps: int
    stopped: str
    validation_loss: float | None
    best_step: int
    weights: str
    seconds: float
    history: list[dict[str, Any]] = field(repr=False, default_factory=list)


def fit(
    flow: Any,
    train: Any,
    validation: Any = None,
    config: TrainingConfig | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    loss: Loss | None = None,
    symmetries: Symmetries | None = None,
    progress: bool | Callable[[str], object] = True,
    stop: Callable[[], bool] | None = None,
    sections: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FitResult:
    """Train a flow by maximum likelihood, or by another ``loss``, and load the weights that were best on validation.

    Under torchrun, call this function in every process.

    Args:
        flow: a flow, or any module with ``log_prob(x)``. It is trained in place and moved to the device.
        train: training rows: a tensor or array, a tuple (x, context, weights) of them, a path of .npy or Parquet
            files, any :class:`~cubicflow.data.rows.Rows`, or None for a loss that draws its own samples.
        validation: validation rows, in the same forms. Default: rows are split off ``train``.
        config: the settings. Keyword ``settings`` replace single settings; see :class:`TrainingConfig` for their names.
        run: a folder for the config, metrics, checkpoints and the final model. Default: nothing is written.
        resume: continue the run in the folder ``run``; start a new run if the folder has none.
        overwrite: replace the run in the folder ``run``.
        loss: a function of (flow, batch) that returns one number for each row. It may compute gradients itself; see
            :mod:`cubicflow.training.losses`.
        symmetries: maps under which the density does not change. At every step each training row is replaced by one
            of its images. Validation rows are not replaced.
        progress: True shows progress on standard error; a function is called with each line instead.
        stop: a function that is called after each step, in any thread. If it returns True, the run is saved and ends
            with :class:`TrainingInterrupted`, as after Ctrl-C.
        sections: further plain values for the run's config.json. Names of the run's own sections are not allowed.

    >>> import torch, cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=2, hidden_features=16)
    >>> result = fit(flow, torch.randn(500, 2), steps=20, progress=False)
    >>> result.steps, result.flow.log_prob(torch.zeros(1, 2)).shape
    (20, torch.Size([1]))
    """
    config = TrainingConfig.make(config, **settings)
    check_run(run, resume=resume, sections=sections or {})
    with join(config.device) as processes, random_state_kept(processes.device):
        if resume and run is not None:
            config = config.completed(processes.broadcast(recorded_settings(run) if processes.is_writer else None))
        # --- check the rows, and split off validation rows ---
        given = NoColumns(DRAWN_ROWS) if train is None else as_rows(train)
        summary = check_rows(flow, given, "train", loss)
        check_symmetries(symmetries, summary)
        if validation is None:
            rows, held_out = split_off(given, config)
        else:
            if config.validation_fraction:
                raise ValueError(
                    f"validation_fraction={config.validation_fraction} contradicts validation=; give one of the two"
                )
            rows, held_out = given, as_rows(validation)
            check_rows(flow, held_out, "validation", loss)
        config = config.resolve(rows.num_rows, 0 if held_out is None else held_out.num_rows)
        check_settings(config, processes, flow)
        loss = loss or (dequantised_likelihood if summary.dtype == torch.uint8 else negative_log_likelihood)

        # --- the run folder, locked by process 0 ---
        opened: AbstractContextManager[RunFolder | None] = nullcontext()
        if run is not None and processes.is_writer:
            about: dict[str, Any] = {"rows": rows.num_rows, "fingerprint": given.fingerprint()}
            if held_out is not None and validation is not None:
                about |= {"validation_rows": held_out.num_rows, "validation_fingerprint": held_out.fingerprint()}
            about |= {} if symmetries is None else {"symmetries": symmetries.described()}
            kept = {"training": asdict(config), "data": about, **(sections or {})}
            opened = open_run(run, flow, kept, resume=resume, overwrite=overwrite)
        interrupts = Interrupts(saved=run is not None, patient=processes.size > 1, stop=stop)
        display = make_progress(processes.is_writer and progress, validates=held_out is not None)
        with closing(display), opened as folder, interrupts:
            flow.to(processes.device)
            step = Step(flow, loss, config, processes, summary.mean_weight, symmetries)
            try:
                result = train_to_the_end(step, rows, held_out, folder, display, interrupts)
            finally:
                step.weights.unflatten()
        # The handlers are removed by now, so a signal that arrived during the last step is not lost.
        if interrupts.received is not None:
            finished = f"stopped after the last step, {result.steps:,}: the run is finished and saved"
            raise TrainingInterrupted(Advice(f"{finished}. To get its result, run this again", resume=True))
        return result


def train_to_the_end(
    step: Step, rows: Rows, held_out: Rows | None, folder: RunFolder | None, display: Progress, interrupts: Interrupts
) -> FitResult:
    """Run the loop until a limit, early stopping or an interrupt ends it; load the best weights into the flow."""
    flow, config, processes = step.flow, step.config, step.processes
    state = TrainingState(step)
    history: list[dict[str, Any]] = [] if folder is None else folder.history()
    if folder is not None and folder.note is not None:
        display.notify(folder.note)

    # --- start or resume: process 0 reads the folder and broadcasts its state ---
    finished = processes.broadcast(None if folder is None else folder.finished)
    if finished is not None:
        return restore_finished(step, finished, folder, history)
    resumed = processes.broadcast(folder is not None and folder.checkpoint is not None)
    if folder is not None and folder.checkpoint is not None:
        state.restore_tensors(folder.checkpoint.tensors)
        vars(state).update(asdict(folder.checkpoint.numbers))
        display.notify(f"resuming at step {state.step:,}")
    vars(state).update(processes.broadcast(asdict(state)))
    processes.copy_from_first_(itertools.chain(*state.named_tensors().values()))
    state.refresh()

    flow.train()
    rows, held_out = rows.on(processes.device), None if held_out is None else held_out.fixed_on(processes.device)
    batch_size = config.batch_size or 1
    order = Order(batch_size, config.seed, processes.rank, processes.size)
    batches = endless(rows, order, state.step)
    if not resumed:
        first = next(batches)
        batches = itertools.chain([first], batches)
        with step.randomness.seeded(derive_seed(config.seed, Stream.INITIALISE, processes.rank)):
            step.initialise(first.to(processes.device, step.dtype))
        if folder is not None:
            folder.save(state.tensors(), state)  # a disk that cannot be written raises now

    take_step = step_hook.prepared_step(step, display.notify)
    validation = None if held_out is None else Validation(state, held_out, display.notify)
    began = time.monotonic() - state.elapsed
    saved = logged = time.monotonic()
    first_step = logged_step = state.step
    metrics: dict[str, Any] = {}
    interrupted = False
    least = least_validate_every(
        batch_size, 0 if held_out is None else held_out.num_rows, averages=step.averages is not None
    )
    validations, readings = Interval(config.validate_every, 1 / 100, least), Interval(config.log_every, 1 / 1000)
    for interval in (validations, readings):
        interval.restart(state.step, done(config, state.step, state.elapsed))
    while not (stopped := why_stop(config, state)) and not interrupted:
        # --- one step ---
        batch = next(batches).to(processes.device, step.dtype)  # x (B / processes, D), context (., C), weights (.,)
        ema_weight = averaging_weight(config.average_decay or 0.0, state.step)
        step.set_rates(learning_rate(config, state.step, state.elapsed), ema_weight)
        with step.randomness.seeded(derive_seed(config.seed, Stream.STEP, state.step, processes.rank)):
            take_step(batch)
        state.step += 1
        if state.step == first_step + 1:  # it compiles kernels and captures graphs, so it is reported apart
            metrics["first_step_seconds"] = time.monotonic() - logged
            logged, logged_step = time.monotonic(), state.step
        if processes.size == 1 or state.step % AGREE_EVERY == 0:
            interrupted, state.elapsed = processes.agree(interrupts.requested(), time.monotonic() - began)

        # --- read the loss every log_every steps; a checkpoint must not follow a failed step unnoticed ---
        last = why_stop(config, state) is not None
        finished_share = done(config, state.step, state.elapsed)
        validating = validation is not None and (last or validations.is_due(state.step, finished_share))
        reading = last or validating or readings.is_due(state.step, finished_share)
        saving = interrupted or (folder is not None and time.monotonic() - saved >= config.checkpoint_seconds)
        if (reading or saving or processes.device.type in READ_AT_ONCE) and int(step.failed_at) >= 0:
            raise failure(state, rows, order, folder)
        if reading:
            now = time.monotonic()
            metrics |= step.read()
            metrics["loss"] /= state.step - state.last_read
            if state.step > logged_step:
                metrics["rows_per_second"] = (state.step - logged_step) * batch_size / max(now - logged, 1e-9)
            step.loss_sum.zero_()
            state.last_read = logged_step = state.step
            logged = now
            readings.restart(state.step, finished_share)

        # --- validate ---
        if validation is not None and validating:
            metrics |= validation()
            validations.restart(state.step, finished_share)
        if reading:
            metrics = {"step": state.step, **metrics, "seconds": time.monotonic() - began}
            history.append(metrics)
            display.update(finished_share, metrics)
            if folder is not None:
                folder.log(metrics)
            metrics = {}

        # --- save ---
        if folder is not None and saving:
            folder.save(state.tensors(), state)
            saved = time.monotonic()

    # --- the end: load the best weights; without a validation loss, the averaged weights ---
    if state.best_loss is None:
        if validation is not None and not interrupted:
            raise TrainingError(f"no validation loss was finite: {likely_cause(step, validation.first_batch())}")
        state.keep(state.best_weights)
    flow.load_state_dict(state.best)
    flow.eval()
    result = RunResult(
        steps=state.step,
        stopped=stopped or "interrupted",
        validation_loss=state.best_loss,
        best_step=state.best_step,
        weights=state.best_weights,
        seconds=state.elapsed,
    )
    if interrupted and stopped is None:
        if folder is not None:
            folder.save_model(result)
        there = f"stopped at step {state.step:,}"
        if interrupts.saved:
            raise TrainingInterrupted(Advice(f"{there} and saved. To resume, run this again", resume=True))
        raise TrainingInterrupted(
            f"{there} with the best weights so far. Nothing was saved: give fit a folder, run=, to be able to resume"
        )
    if folder is not None:
        folder.finish(result)
    return FitResult(flow=flow, config=config, history=history, **asdict(result))


def why_stop(config: TrainingConfig, state: TrainingState) -> Literal["steps", "time_budget", "patience"] | None:
    """Return the name of the limit that was reached, or None."""
    if config.steps is not None and state.step >= config.steps:
        return "steps"
    if config.time_budget is not None and state.elapsed >= config.time_budget:
        return "time_budget"
    if config.patience and state.waited >= config.patience:
        return "patience"
    return None


def failure(state: TrainingState, rows: Rows, order: Order, folder: RunFolder | None) -> NonFiniteLossError:
    """Return the error for the first step whose loss was not finite, and save a checkpoint.

    On a GPU, more steps may have been taken before the loop read ``failed_at``. None of them changed a weight, so the
    state is that of the failed step: the checkpoint is good, and its batch and its random numbers are drawn again.
    """
    step = state.training_step
    number = int(step.failed_at)
    state.step = number + 1
    step.count.fill_(state.step)
    kept = "the flow keeps the last finite weights"
    if folder is not None:
        folder.save(state.tensors(), state)
        kept = f"{folder.path} keeps the last finite weights; resuming continues without this batch"
    batch = next(endless(rows, order, number)).to(step.processes.device, step.dtype)
    with step.randomness.seeded(derive_seed(order.seed, Stream.STEP, number, order.rank)):
        cause = likely_cause(step, batch)
    return NonFiniteLossError(f"the loss of step {number} is not finite. Likely cause: {cause}. {kept}.")


def restore_finished(
    step: Step, result: RunResult, folder: RunFolder | None, history: list[dict[str, Any]]
) -> FitResult:
    """Load the weights of a finished run and return its result."""
    if folder is not None:
        step.flow.load_state_dict(folder.weights())
    step.processes.copy_from_first_(step.flow.state_dict().values())
    step.flow.load_state_dict(step.flow.state_dict())
    step.flow.eval()
    return FitResult(flow=step.flow, config=step.config, history=history, **asdict(result))
