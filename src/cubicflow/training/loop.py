"""The training loop, from rows and settings to the best weights. Read it from top to bottom."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cubicflow.data.as_rows import as_rows
from cubicflow.data.row_summary import Summary
from cubicflow.data.rows import Batch, Draws, Order, Rows, derive_seed, endless
from cubicflow.data.symmetries import Symmetries, check_symmetries
from cubicflow.nets.precision import float32_products
from cubicflow.training.config import TrainingConfig
from cubicflow.training.diagnosis import likely_cause
from cubicflow.training.distributed import World, join
from cubicflow.training.errors import NonFiniteLossError, TrainingError, TrainingInterrupted
from cubicflow.training.interrupts import Interrupts
from cubicflow.training.losses import SINGLE_PASS, Loss, dequantised_likelihood, negative_log_likelihood
from cubicflow.training.parts import parts
from cubicflow.training.progress import Progress, make_progress
from cubicflow.training.randomness import random_state_kept
from cubicflow.training.run_folder import RunFolder, check_run, open_run
from cubicflow.training.saved_numbers import AVERAGED, RAW, RESULT
from cubicflow.training.schedule import averaging_weight, done, learning_rate
from cubicflow.training.state import TrainingState
from cubicflow.training.step import Step

VALIDATION_ROWS = {"cpu": 2_048, "cuda": 16_384}  # at once; a GPU waits longer for a call than it works on small ones
DRAWN_ROWS = 50_000  # an epoch of a loss that needs no data
AGREE_EVERY = 10  # steps between exchanges about stopping, where there are several processes
RESUME = "the same call with resume=True, or the same command with --resume"
NOT_SAVED = "with the best weights so far. Nothing was saved: give fit a folder, run=, to be able to go on"
INITIALISE, STEP, VALIDATE = 3, 4, 5  # keys that keep the random numbers of one seed apart


@dataclass
class FitResult:
    """What :func:`fit` returns.

    Attributes:
        flow: the flow given, in evaluation mode, with the weights that were best on validation.
        config: every setting as it was used.
        steps: taken.
        stopped: what ended the run: ``"steps"``, ``"time_budget"`` or ``"patience"``.
        validation_loss: the best; None without validation.
        best_step: when that was.
        weights: which were best, ``"raw"`` or ``"averaged"``.
        seconds: of training.
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
    progress: bool = True,
    stop: Callable[[], bool] | None = None,
    sections: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FitResult:
    """Train a flow, by maximum likelihood unless told otherwise, and leave it with the weights that were best on
    validation. Under torchrun, call it in every process.

    Args:
        flow: a flow, or any module with ``log_prob(x)``; trained in place, and moved to the device.
        train: a tensor or array of rows, a tuple of them (x, context, weights), a path of .npy or Parquet files, any
            :class:`~cubicflow.data.rows.Rows`, or None for a loss that draws its own samples.
        validation: the same; by default rows are split off ``train``.
        config: the settings; see :class:`TrainingConfig`. Further ``settings`` change single ones of them.
        run: a folder for the config, metrics, checkpoints and the final model. Without one, nothing is written.
        resume: go on with the run in that folder, where there is one.
        overwrite: begin again in that folder.
        loss: a function of (flow, batch) that returns one number for each row, and may take gradients on its way; see
            :mod:`cubicflow.training.losses`.
        symmetries: maps that leave the density as it is. At every step each training row is replaced by one of its
            images; validation rows stay as they are.
        progress: show it, on standard error.
        stop: asked after each step. Where it returns True the run is saved and ends with :class:`TrainingInterrupted`,
            as after Ctrl-C, in any thread.
        sections: further plain values to keep in the run's config.json, under names that are not the run's own.

    >>> import torch, cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=2, hidden_features=16)
    >>> result = fit(flow, torch.randn(500, 2), steps=20, progress=False)
    >>> result.steps, result.flow.log_prob(torch.zeros(1, 2)).shape
    (20, torch.Size([1]))
    """
    config = TrainingConfig.make(config, **settings)
    check_run(run, resume=resume, sections=sections or {})
    with join(config.device) as world, random_state_kept(world.device):
        # --- rows: refuse what is not finite, set some aside for validation ---
        given = Draws(DRAWN_ROWS) if train is None else as_rows(train)
        summary = check_rows(flow, given, "train", loss)
        check_symmetries(symmetries, summary)
        if validation is None:
            rows, held_out = split_off(given, config)
        else:
            if config.validation_fraction:
                raise ValueError(f"validation_fraction={config.validation_fraction} contradicts validation=: give one")
            rows, held_out = given, as_rows(validation)
            check_rows(flow, held_out, "validation", loss)
        config = config.resolve(rows.num_rows, has_validation=held_out is not None)
        check_settings(config, world, flow)
        loss = loss or (dequantised_likelihood if summary.dtype == torch.uint8 else negative_log_likelihood)

        # --- the run folder, held by the one process that writes ---
        opened: AbstractContextManager[RunFolder | None] = nullcontext()
        if run is not None and world.is_writer:
            about: dict[str, Any] = {"rows": rows.num_rows, "fingerprint": given.fingerprint()}
            if held_out is not None and validation is not None:
                about |= {"validation_rows": held_out.num_rows, "validation_fingerprint": held_out.fingerprint()}
            about |= {} if symmetries is None else {"symmetries": symmetries.described()}
            kept = {"training": config.as_dict(), "data": about, **(sections or {})}
            opened = open_run(run, flow, kept, resume=resume, overwrite=overwrite)
        interrupts = Interrupts(saved=run is not None, patient=world.size > 1, stop=stop)
        shown = make_progress(progress and world.is_writer, validates=held_out is not None)
        with closing(shown), opened as folder, interrupts:
            flow.to(world.device)
            step = Step(flow, loss, config, world, summary.mean_weight, symmetries)
            try:
                result = train_to_the_end(step, rows, held_out, folder, shown, interrupts)
            finally:
                step.weights.release()
        # Only now do signals act as usual again: none that came before, however late, is lost.
        if interrupts.received is not None:
            finished = f"stopped after the last step, {result.steps:,}: the run is finished and saved"
            raise TrainingInterrupted(f"{finished}. To get its result: {RESUME}")
        return result


def train_to_the_end(
    step: Step, rows: Rows, held_out: Rows | None, folder: RunFolder | None, shown: Progress, interrupts: Interrupts
) -> FitResult:
    """The loop itself."""
    flow, config, world = step.flow, step.config, step.world
    state = TrainingState(step)
    history: list[dict[str, Any]] = [] if folder is None else folder.history()
    if folder is not None and folder.note is not None:
        shown.say(folder.note)

    # --- begin, or go on: process 0 knows, the others are told ---
    finished = world.tell(None if folder is None else folder.finished)
    if finished is not None:
        return restore_finished(step, finished, folder, history)
    resumed = world.tell(folder is not None and folder.checkpoint is not None)
    if folder is not None and folder.checkpoint is not None:
        state.restore_tensors(folder.checkpoint.tensors)
        state.restore_numbers(folder.checkpoint.numbers)
        shown.say(f"resuming at step {state.step:,}")
    state.restore_numbers(world.tell(state.numbers()))
    world.copy_from_first_(itertools.chain(*state.memory().values()))
    state.refresh()

    flow.train()
    rows, held_out = rows.on(world.device), None if held_out is None else held_out.on(world.device)
    batch_size = config.batch_size or 1
    batches = endless(rows, Order(batch_size, config.seed, world.rank, world.size), state.step)
    if not resumed:
        first = next(batches)
        batches = itertools.chain([first], batches)
        with step.randomness.seeded(derive_seed(config.seed, INITIALISE, world.rank)):
            step.initialise(first.to(world.device, step.dtype))
        if folder is not None:
            folder.save(state.tensors(), state.numbers())  # a disk that refuses says so now, not after an hour

    take = parts.repeated(step, shown.say)
    began = time.monotonic() - state.elapsed
    saved = logged = time.monotonic()
    logged_step = state.step
    interrupted = False
    while not (stopped := why_stop(config, state)) and not interrupted:
        # --- one step ---
        batch = next(batches).to(world.device, step.dtype)  # x (B / processes, D), context (., C), weights (.,)
        reach = averaging_weight(config.average_decay or 0.0, state.step)
        step.tell(learning_rate(config, state.step, state.elapsed), reach)
        with step.randomness.seeded(derive_seed(config.seed, STEP, state.step, world.rank)):
            take(batch)
        state.step += 1
        if world.size == 1 or state.step % AGREE_EVERY == 0:
            interrupted, state.elapsed = world.agree(interrupts.asked(), time.monotonic() - began)

        # --- read the loss, now and then; on the CPU looking for a failed step costs nothing ---
        metrics: dict[str, Any] = {}
        last = why_stop(config, state) is not None
        validating = held_out is not None and (last or state.step % (config.validate_every or 1) == 0)
        reading = last or validating or state.step % (config.log_every or 1) == 0
        if (reading or world.device.type == "cpu") and int(step.failed_at) >= 0:
            raise failure(state, batch, folder)
        if reading:
            now = time.monotonic()
            metrics["loss"] = float(step.loss_sum) / (state.step - state.last_read)
            metrics["learning_rate"] = float(step.learning_rate)
            metrics["gradient_norm"] = float(step.gradient_norm)
            metrics["rows_per_second"] = (state.step - logged_step) * batch_size / max(now - logged, 1e-9)
            step.loss_sum.zero_()
            state.last_read = logged_step = state.step
            logged = now

        # --- validate ---
        if held_out is not None and validating:
            metrics |= validate(state, held_out)
        if metrics:
            metrics = {"step": state.step, **metrics, "seconds": time.monotonic() - began}
            history.append(metrics)
            shown.update(done(config, state.step, state.elapsed), metrics)
            if folder is not None:
                folder.log(metrics)

        # --- save ---
        if folder is not None and (interrupted or time.monotonic() - saved >= config.checkpoint_seconds):
            folder.save(state.tensors(), state.numbers())
            saved = time.monotonic()

    # --- the end: the best weights, or, where nothing could tell, the averaged ones ---
    if not math.isfinite(state.best_loss):
        if held_out is not None and not interrupted:
            rows_at_hand = next(held_out.in_order(VALIDATION_ROWS["cpu"])).to(world.device, step.dtype)
            raise TrainingError(f"no validation loss was finite: {likely_cause(step, rows_at_hand)}")
        with step.averages.in_place() if step.averages is not None else nullcontext():
            state.keep(state.best_weights)
    flow.load_state_dict(state.best)
    flow.eval()
    loss = None if held_out is None else state.best_loss
    summary: dict[str, Any] = {
        "steps": state.step,
        "stopped": stopped or "interrupted",
        "validation_loss": loss if loss is not None and math.isfinite(loss) else None,
        "best_step": state.best_step,
        "weights": state.best_weights,
        "seconds": state.elapsed,
    }
    if interrupted and stopped is None:
        if folder is not None:
            folder.save_model({**summary, "finished": False})
        then = f"and saved. To go on: {RESUME}" if interrupts.saved else NOT_SAVED
        raise TrainingInterrupted(f"stopped at step {state.step:,} {then}")
    if folder is not None:
        folder.finish(summary)
    return FitResult(flow=flow, config=config, history=history, **summary)


def why_stop(config: TrainingConfig, state: TrainingState) -> str | None:
    """What has ended the run, or None."""
    if config.steps is not None and state.step >= config.steps:
        return "steps"
    if config.time_budget is not None and state.elapsed >= config.time_budget:
        return "time_budget"
    if config.patience and state.waited >= config.patience:
        return "patience"
    return None


def validate(state: TrainingState, held_out: Rows) -> dict[str, float]:
    """Evaluate the raw and the averaged weights, and keep the better if it is the best so far."""
    step = state.parts
    step.world.copy_from_first_(step.flow.buffers())  # batch norm's statistics are each process's own
    losses = {RAW: evaluate(step, held_out)}
    if step.averages is not None:
        with step.averages.in_place():
            losses[AVERAGED] = evaluate(step, held_out)
    state.waited += 1
    winner = min(losses, key=lambda weights: losses[weights] if math.isfinite(losses[weights]) else math.inf)
    if losses[winner] < state.best_loss:
        state.best_loss, state.waited = losses[winner], 0
        with step.averages.in_place() if step.averages is not None and winner == AVERAGED else nullcontext():
            state.keep(winner)
    names = {RAW: "validation_loss", AVERAGED: "validation_loss_averaged"}
    return {names[weights]: value for weights, value in losses.items()}


@torch.no_grad()
def evaluate(step: Step, held_out: Rows) -> float:
    """The weighted mean loss over rows that all processes share, in evaluation mode and full precision. Losses that
    draw samples draw the same ones every time."""
    step.flow.eval()
    total = torch.zeros(2, dtype=torch.float64, device=step.world.device)
    # A loss of the user's own may keep a graph, which takes far more memory.
    kind = step.world.device.type if step.loss in SINGLE_PASS else "cpu"
    rows_at_once = VALIDATION_ROWS.get(kind, VALIDATION_ROWS["cpu"])
    for i, part in enumerate(held_out.in_order(rows_at_once)):
        if i % step.world.size == step.world.rank:
            batch = part.to(step.world.device, step.dtype)
            seeded = step.randomness.seeded(derive_seed(step.config.seed, VALIDATE, i))
            with seeded, float32_products(tf32=False, device=step.world.device):
                losses = step.loss_of_rows(batch).double()  # (B,)
            weights = torch.ones_like(losses) if batch.weights is None else batch.weights.double()
            total += torch.stack([(weights * losses).sum(), weights.sum()])
    step.flow.train()
    loss, weight = step.world.sum_(total).tolist()
    return float(loss / weight)


def failure(state: TrainingState, batch: Batch, folder: RunFolder | None) -> NonFiniteLossError:
    """The error for a step that was not finite; it changed nothing, so what is saved here is good."""
    step = state.parts
    number = int(step.failed_at)
    kept = "the flow keeps the last finite weights"
    if folder is not None:
        folder.save(state.tensors(), state.numbers())
        kept = f"{folder.path} keeps the last finite weights; resuming goes on without this batch"
    cause = likely_cause(step, batch)
    return NonFiniteLossError(f"the loss of step {number} is not finite. Likely cause: {cause}. {kept}.")


def restore_finished(
    step: Step, result: dict[str, Any], folder: RunFolder | None, history: list[dict[str, Any]]
) -> FitResult:
    """Resuming a run that is complete gives its result again."""
    if folder is not None:
        step.flow.load_state_dict(folder.weights())
    step.world.copy_from_first_(step.flow.state_dict().values())
    step.flow.load_state_dict(step.flow.state_dict())
    step.flow.eval()
    entries = {name: result[name] for name in RESULT}
    return FitResult(flow=step.flow, config=step.config, history=history, **entries)


def check_rows(flow: Any, rows: Rows, name: str, loss: Loss | None) -> Summary:
    """One pass over the rows: they are finite, and of the shape the flow is on."""
    try:
        summary = rows.summary
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if isinstance(rows, Draws):
        if loss is None:
            raise ValueError("train=None needs a loss that draws its own samples, such as losses.reverse_kl(...)")
        return summary
    if loss is None and not hasattr(flow, "log_prob"):
        raise TypeError(f"{type(flow).__name__} has no log_prob(x); add it, or give fit a loss of your own, loss=")
    shape = getattr(flow, "shape", None)
    if shape is not None and tuple(shape) != summary.shape:
        raise ValueError(f"{name}: rows have shape {summary.shape}, but this flow is on data of shape {tuple(shape)}")
    context_features = getattr(flow, "context_features", summary.context_features)
    if context_features != summary.context_features:
        raise ValueError(
            f"{name}: rows have {summary.context_features} context columns, but this flow has context_features="
            f"{context_features}"
        )
    return summary


def split_off(rows: Rows, config: TrainingConfig) -> tuple[Rows, Rows | None]:
    """Rows for training and rows for validation, none of either being an error unless it was asked for."""
    num_validation = config.validation_rows(rows.num_rows)
    if config.validation_fraction == 0:
        return rows, None
    training, validation = rows.split(num_validation, config.seed)
    if training.num_rows == 0 or validation.num_rows == 0:
        raise ValueError(
            f"{rows.num_rows} rows leave {training.num_rows} for training and {validation.num_rows} for validation; "
            "give more rows or another validation_fraction, or 0 to train without validation"
        )
    for part, use in ((training, "training"), (validation, "validation")):
        if not part.has_weight():
            raise ValueError(
                f"the {part.num_rows} rows that the split leaves for {use} all have weight 0; give validation= rows, "
                "another seed, or validation_fraction=0 to train on all rows"
            )
    return training, validation


def check_settings(config: TrainingConfig, world: World, flow: Any) -> None:
    """Settings against the machine and the flow."""
    if (config.batch_size or 1) < world.size:
        raise ValueError(f"batch_size={config.batch_size} cannot be shared by {world.size} processes; use a larger one")
    if config.precision == "bf16" and any(param.dtype == torch.float64 for param in flow.parameters()):
        raise ValueError("precision='bf16' contradicts a flow in float64; use precision='float32', or flow.float()")
