"""Whole jobs, run block by block by a chosen engine: score files, draw rows, or evaluate."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cubicflow.advice import Advice
from cubicflow.arguments import unknown_name, whole_number
from cubicflow.clusters.blocks import BLOCK_ROWS, Block, Outcome, Skipped, blocks_of
from cubicflow.clusters.engines import RunBlocks, open_engine
from cubicflow.clusters.inputs import Inputs, plan_inputs
from cubicflow.clusters.job_folder import JobFolder
from cubicflow.clusters.stores import shown
from cubicflow.clusters.tasks import EvaluateTask, SampleTask, ScoreTask, Task
from cubicflow.progress import PieceProgress, make_progress
from cubicflow.seeds import fresh_seed
from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.query import Given
from cubicflow.tables.run import ScoredParts, ScoreSums

ON_ERROR = ("stop", "skip")
PAUSE = 10.0  # seconds between two lines of progress


@dataclass
class JobResult:
    """The result of a finished job.

    Attributes:
        rows: the number of rows drawn, or of rows scored or skipped.
        blocks: the number of blocks.
        before: the number of blocks that were done before this call.
        unseen: for each column, the number of cells with a value that no training row had.
        skipped: the skipped files and rows.
        notes: messages for the user.

    >>> result = JobResult.of([Outcome(1, 50, {"kind": 2}), Outcome(0, 100, {"kind": 1})], before=1)
    >>> result.rows, result.blocks, dict(result.unseen)
    (150, 2, {'kind': 3})
    """

    rows: int
    blocks: int
    before: int
    unseen: Counter[str]
    skipped: list[Skipped]
    notes: list[str]

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], before: int, skipped: Iterable[Skipped] = ()) -> JobResult:
        """Combine the outcomes of all blocks, in the order of their numbers."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.block)
        unseen: Counter[str] = Counter()
        for outcome in ordered:
            unseen.update(outcome.unseen)
        aside = [*skipped, *(each for outcome in ordered for each in outcome.skipped)]
        notes = list(dict.fromkeys(note for outcome in ordered for note in outcome.notes))
        return cls(sum(outcome.rows for outcome in ordered), len(ordered), before, unseen, aside, notes)

    def lines(self, kept: str | None) -> list[str]:
        """Return what a user should know. ``kept`` is the file that lists the skipped files and rows."""
        lines: list[str] = [Advice.after("note: ", note) for note in self.notes]
        if self.before:
            lines.append(f"note: {self.before:,} of {self.blocks:,} blocks were finished in an earlier run")
        if self.skipped:
            files = sum(each.first is None for each in self.skipped)
            rows = sum((each.last or 0) - each.first + 1 for each in self.skipped if each.first is not None)
            counts = [f"{n:,} {what}{'s' * (n > 1)}" for n, what in ((files, "file"), (rows, "row")) if n]
            lines.append(f"warning: skipped {' and '.join(counts)}, see {kept}; the first: {self.skipped[0]}")
        return lines


def score_files(
    run: str | Path | FittedTable,
    data: str,
    output: str,
    *,
    keys: Sequence[str] = (),
    missing: str | None = None,
    observed_only: bool = False,
    unseen: str = "count",
    on_error: str = "stop",
    block_rows: int = BLOCK_ROWS,
    resume: bool = False,
    overwrite: bool = False,
    engine: str = "local",
    progress: bool | Callable[[str], object] = False,
    **how: Any,
) -> JobResult:
    """Score every row of the Parquet files at ``data``. Write the scores to a folder of Parquet parts, in row order.

    Args:
        run: a run folder, or a model.
        data: a file, a folder, or a pattern such as ``"lake/*.parquet"``; a path or a URL.
        output: the folder for the parts; a path or a URL.
        keys: columns of the input to write beside the scores.
        missing, observed_only, unseen: as in :meth:`cubicflow.tables.FittedTable.score_batches`.
        on_error: ``"stop"``, or ``"skip"`` to skip bad files and rows. The score of a skipped row is null.
        block_rows: the number of rows in a block, which is also the number of rows in a part.
        resume: continue the job in the output folder.
        overwrite: replace the job in the output folder.
        engine: ``"local"`` or ``"ray"``; ``how`` has the further arguments of
            :func:`~cubicflow.clusters.engines.open_engine`.
        progress: whether to show the number of finished blocks and the remaining time on standard error, or a function
            that is called with a line after every block.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet
    >>> from cubicflow.tables import fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = pa.table({"day": [1, 2, 3, 4] * 25, "hours": [0.5, 2.5] * 50})
    ...     pa.parquet.write_table(rows, f"{folder}/t.parquet")
    ...     _ = fit_table(f"{folder}/t.parquet", f"{folder}/run", steps=5, progress=False)
    ...     result = score_files(f"{folder}/run", f"{folder}/*.parquet", f"{folder}/scores", block_rows=60)
    ...     pa.parquet.read_table(f"{folder}/scores").shape, result.blocks
    ((100, 1), 2)
    """
    skip = _skips(on_error)
    with open_engine(engine, **how) as run_blocks:
        model = _model(run)
        inputs = plan_inputs(data, skip=skip)
        if unknown := [name for name in keys if name not in inputs.schema.names]:
            raise TableError(unknown_name(shown(data), "column", unknown[0], inputs.schema.names))
        scoring: dict[str, Any] = {"missing": missing, "observed_only": observed_only, "unseen": unseen}
        folder = JobFolder(output)
        task = ScoreTask(model, inputs, scoring, skip, folder, tuple(keys))
        # Score no rows: this raises for columns that differ from the fitted table and for unknown options, before
        # anything is written.
        list(model.score_table(inputs.empty(), **scoring))
        options = {"keys": list(keys), **scoring, "on_error": on_error}
        job = _described(task, inputs.rows, block_rows, options, inputs)
        return _to_folder(task, folder, job, run_blocks, progress, resume=resume, overwrite=overwrite)


def sample_files(
    run: str | Path | FittedTable,
    number: int,
    output: str,
    *,
    given: Given = None,
    temperature: float = 1.0,
    complete: bool = False,
    constraints: Sequence[str] = (),
    seed: int | None = None,
    block_rows: int = BLOCK_ROWS,
    resume: bool = False,
    overwrite: bool = False,
    engine: str = "local",
    progress: bool | Callable[[str], object] = False,
    **how: Any,
) -> JobResult:
    """Draw ``number`` rows, and write them to a folder of Parquet parts.

    The same seed and block size give the same rows with any engine and any number of workers. Without a seed, a random
    seed is chosen and written to the job's description.

    Args:
        given, temperature, complete, constraints: as in :meth:`cubicflow.tables.FittedTable.sample`.
        run, output, block_rows, resume, overwrite, engine, progress: as in :func:`score_files`.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet
    >>> from cubicflow.tables import fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = pa.table({"day": [1, 2, 3, 4] * 25, "hours": [0.5, 2.5] * 50})
    ...     pa.parquet.write_table(rows, f"{folder}/t.parquet")
    ...     _ = fit_table(f"{folder}/t.parquet", f"{folder}/run", steps=5, progress=False)
    ...     _ = sample_files(f"{folder}/run", 100, f"{folder}/rows", seed=1, block_rows=60)
    ...     pa.parquet.read_table(f"{folder}/rows").shape
    (100, 2)
    """
    number = whole_number("the number of samples", number, 0)
    with open_engine(engine, **how) as run_blocks:
        model = _model(run)
        folder = JobFolder(output)
        if seed is None:
            seed = _noted_seed(folder) if resume else None
        seed = fresh_seed() if seed is None else seed
        options: dict[str, Any] = {"given": given, "temperature": temperature}
        options |= {"complete": complete, "constraints": list(constraints)}
        model.sample(0, **options)  # raises for conditions and options that cannot be drawn, before anything is written
        task = SampleTask(model, folder, seed, options)
        job = {**_described(task, number, block_rows, options), "seed": seed}
        return _to_folder(task, folder, job, run_blocks, progress, resume=resume, overwrite=overwrite)


class Evaluated(NamedTuple):
    """The scores of a table, whether the model was fitted to this table, and the result of the job."""

    scored: ScoredParts
    is_source: bool
    job: JobResult


def evaluate_files(
    run: str | Path | FittedTable,
    data: str,
    *,
    missing: str | None = None,
    unseen: str = "count",
    on_error: str = "stop",
    block_rows: int = BLOCK_ROWS,
    engine: str = "local",
    progress: bool | Callable[[str], object] = False,
    **how: Any,
) -> Evaluated:
    """Return the mean log likelihood of all rows of Parquet files, and of the training, validation and test rows.

    The arguments are documented in :func:`score_files`. No file is written.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet
    >>> from cubicflow.tables import fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = pa.table({"day": [1, 2, 3, 4] * 25, "hours": [0.5, 2.5] * 50})
    ...     pa.parquet.write_table(rows, f"{folder}/t.parquet")
    ...     _ = fit_table(f"{folder}/t.parquet", f"{folder}/run", steps=5, progress=False)
    ...     found = evaluate_files(f"{folder}/run", f"{folder}/t.parquet", block_rows=30)
    >>> found.scored.whole.model.rows, found.is_source
    (100, True)
    """
    skip = _skips(on_error)
    with open_engine(engine, **how) as run_blocks:
        model = _model(run)
        inputs = plan_inputs(data, skip=skip)
        scoring = {"missing": missing, "unseen": unseen, "weights": True}
        task = EvaluateTask(model, inputs, scoring, skip)
        outcomes = _outcomes(run_blocks, task, list(blocks_of(inputs.rows, block_rows)), progress)
        job = JobResult.of(outcomes, 0, inputs.skipped)
        sums = ScoreSums()
        for outcome in sorted(outcomes, key=lambda each: each.block):  # the order of a sum changes its last bit
            sums += outcome.sums
        return Evaluated(sums.result(len(task.columns())), inputs.fingerprint() == model.fingerprint, job)


def _skips(on_error: str) -> bool:
    if on_error not in ON_ERROR:
        raise TableError(f"on_error must be stop or skip, got {on_error!r}")
    return on_error == "skip"


def _model(run: str | Path | FittedTable) -> FittedTable:
    """Return the model; a run folder is loaded on the CPU, so that the model can be pickled for the workers."""
    return run if isinstance(run, FittedTable) else FittedTable.load(run, "cpu")


def _described(
    task: Task, rows: int, block_rows: int, options: dict[str, Any], inputs: Inputs | None = None
) -> dict[str, Any]:
    """Return the description of a job. Two jobs with the same description write the same parts."""
    next(blocks_of(rows, block_rows))  # raises for a block size below 1
    return {
        "task": task.name,
        "run": digest(task.model),
        "inputs": None if inputs is None else inputs.to_json(),
        "rows": rows,
        "block_rows": block_rows,
        "options": options,
    }


def digest(model: FittedTable) -> str:
    """Return a hash of a model's table description and weights."""
    found = hashlib.sha256(json.dumps(model.to_json(), sort_keys=True, default=str).encode())
    for name, value in sorted(model.flow.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _noted_seed(folder: JobFolder) -> int | None:
    try:
        seed = folder.read_job().get("seed")
    except TableError:
        return None
    return seed if isinstance(seed, int) else None


def _to_folder(
    task: ScoreTask | SampleTask,
    folder: JobFolder,
    job: dict[str, Any],
    run_blocks: RunBlocks,
    progress: bool | Callable[[str], object],
    *,
    resume: bool,
    overwrite: bool,
) -> JobResult:
    """Run the blocks that are not done yet, and return the result of the whole job."""
    with folder.begin(job, resume=resume, overwrite=overwrite) as done:
        blocks = [block for block in blocks_of(job["rows"], job["block_rows"]) if block.number not in done]
        skipped = task.inputs.skipped if isinstance(task, ScoreTask) else ()
        outcomes = _outcomes(run_blocks, task, blocks, progress, before=len(done))
        result = JobResult.of([*done.values(), *outcomes], len(done), skipped)
        folder.finish(result.skipped)
        return result


def _outcomes(
    run_blocks: RunBlocks,
    task: Task,
    blocks: Sequence[Block],
    progress: bool | Callable[[str], object],
    *,
    before: int = 0,
) -> list[Outcome]:
    """Return the outcomes of all blocks. ``before`` is the number of blocks that an earlier call finished.

    An error stops the workers before it leaves this function. Otherwise the traceback would keep the workers alive
    until the garbage collector runs, possibly in one of the workers.
    """
    found: list[Outcome] = []
    with closing(make_progress(progress, pause=PAUSE)) as display, closing(run_blocks(task, blocks)) as results:
        shown = PieceProgress(display, "block", before + len(blocks), before)
        for result in results:
            if isinstance(result, TableError):
                raise result
            found.append(result)
            shown.update(before + len(found))
    return found
