"""The folder of a run: config.json, model.safetensors, metrics.jsonl; during training also checkpoints and a lock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from cubicflow.files import NotPlainError, check_plain, open_plain, write_atomically
from cubicflow.flows import serialization as flow_files
from cubicflow.flows.serialization import CONFIG_FILE, UNREGISTERED, WEIGHTS_FILE, FlowFileError
from cubicflow.flows.untrusted import is_usable
from cubicflow.owned_folder import LocalFiles, OwnedFolder
from cubicflow.saved import LARGEST, Count, SavedValueError, from_json
from cubicflow.training import checkpoint as checkpoints
from cubicflow.training.checkpoint import Checkpoint, DamagedCheckpointError, Loss, RunNumbers, Seconds, WeightsKind
from cubicflow.training.config import describe_changes
from cubicflow.training.errors import RunFolderError, cannot_resume

LOCK_FILE = "lock"
BEST = "best."  # prefix of the best weights' names in a checkpoint
METRICS_FILE = "metrics.jsonl"  # one line of JSON for each logged step
MOST_METRICS_BYTES = 1 << 26  # a quarter of a million lines
MOST_IN_LINE = 1 << 16  # bytes
OWNED = (*checkpoints.NAMES, METRICS_FILE, WEIGHTS_FILE)  # files of a run, besides config.json
# Sections of config.json that the run itself writes. "folder" is reserved because save_flow has an argument of that
# name.
RESERVED = ("format", "version", "dtype", "training", "data", "result", "flow", "shared_tensors", "folder")
# Bounds on the size of a checkpoint: it holds the weights, the best weights, the averages, two moments and a header.
COPIES, BYTES_OF_A_NUMBER, HEADER_BYTES = 6, 16, 1 << 24


@dataclass
class RunResult:
    """Result of a run as config.json holds it; see :class:`~cubicflow.training.FitResult` for the attributes."""

    steps: Count
    stopped: Literal["steps", "time_budget", "patience", "interrupted"]
    validation_loss: Loss | None
    best_step: Count
    weights: WeightsKind
    seconds: Seconds


class RunFolder(OwnedFolder):
    """Run on disk. config.json is its marker.

    Attributes:
        path: the folder.
        finished: the result of a finished run, else None.
        checkpoint: the checkpoint to resume from, or None.
        note: a message for the user about a damaged checkpoint, or None.
    """

    what, marker, lock = "run", CONFIG_FILE, LOCK_FILE
    beside = ("plots", "judge.json", "lost+found")

    def __init__(self, path: Path, flow: Any = None, sections: Mapping[str, Any] | None = None) -> None:
        super().__init__(LocalFiles(path))
        self.path = path
        self.flow = flow
        self.sections = dict(sections or {})
        # Raises for a flow that cannot be described, before anything is written.
        self.about = {} if flow is None else flow_files.config_of_flow(flow, or_state=True)
        self.finished: RunResult | None = None
        self.checkpoint: Checkpoint | None = None
        self.note: str | None = None
        self.saved_step: int | None = None

    def owns(self, name: str) -> bool:
        return name in OWNED

    def refusal(self, problem: str, **arguments: Any) -> Exception:
        return RunFolderError(f"{self.path} {problem}", **arguments)

    # --- start or resume ---

    def begin(self) -> None:
        """Start a new run, and remove an earlier run in this folder."""
        with self.writing():
            self.clear()
            flow_files.write_config(self.path, self.about, {**self.sections, "result": {"finished": False}})
            write_atomically(self.path / METRICS_FILE, b"")

    def clear(self) -> None:
        """Remove all files of a run except config.json, and mark the run in config.json as not finished.

        The mark "not finished" is written before the model is removed: if the process is killed in between, the old run
        can still be resumed, and starts from step 0.
        """
        checkpoints.remove_checkpoints(self.path)
        with suppress(FlowFileError):
            config = flow_files.read_config(self.path)
            flow_files.write_config(self.path, {**config, "result": {"finished": False}}, {})
        super().clear()

    def forget(self) -> None:
        """Remove the run, if there is one, and then the folder if it is empty."""
        if not (self.path / CONFIG_FILE).is_file():
            return
        with self.locked(), self.writing():
            self.tidy()
            self.clear()
            self.files.remove([CONFIG_FILE])
        with suppress(OSError):
            self.path.rmdir()

    def resume(self) -> None:
        """Read the state of the run in this folder. Raises RunFolderError if its flow, settings or rows differ."""
        try:
            config = flow_files.read_config(self.path)
        except FlowFileError as error:
            raise RunFolderError(f"cannot resume: {error}") from None
        self._compare(config)
        result = config.get("result")
        if not isinstance(result, dict):
            raise cannot_resume(f"{self.path / CONFIG_FILE} has no section 'result'")
        if result.get("finished"):
            try:
                self.finished = from_json(RunResult, result)
            except SavedValueError as error:
                raise cannot_resume(f"the section 'result' of {self.path / CONFIG_FILE} {error}") from None
            with self.writing():
                checkpoints.remove_checkpoints(self.path)  # left by a process that was killed in ``finish``
            return
        with self.writing():
            try:
                self.checkpoint, self.note = checkpoints.load_checkpoint(self.path, self._most_bytes())
            except DamagedCheckpointError as error:
                raise cannot_resume(error) from None
            if self.note is not None:  # the newest is damaged: the next save must not keep it as the previous one
                (self.path / checkpoints.NEWEST).unlink(missing_ok=True)
            self.saved_step = None if self.checkpoint is None else self.checkpoint.numbers.step
            self._cut_metrics(self.saved_step or 0)

    def _most_bytes(self) -> int:
        """Return an upper bound on the size of a checkpoint of this flow."""
        elements: int = sum(value.numel() for value in self.flow.state_dict().values())
        return COPIES * BYTES_OF_A_NUMBER * elements + HEADER_BYTES

    def _compare(self, config: dict[str, Any]) -> None:
        dtype, before, after = config.get("dtype"), config.get("flow"), self.about["flow"]
        if isinstance(before, dict) and UNREGISTERED in before:  # config.json describes only the flow's tensors
            dtype, before, after = self.about["dtype"], before.get("state"), flow_files.describe_state(self.flow)
        elif UNREGISTERED in after:
            raise RunFolderError(
                f"{self.path} was started with all classes of its flow registered; call cubicflow.register on "
                f"{', '.join(after[UNREGISTERED])} before you resume it"
            )
        if where := first_difference(before, after) or (None if dtype == self.about["dtype"] else "its dtype"):
            raise RunFolderError(
                f"{self.path} holds a run of another model (it differs in {where}); resume it with the original flow, "
                "or choose another folder"
            )
        for name, section in self.sections.items():
            before, after = config.get(name), json.loads(json.dumps(section))
            if not isinstance(before, dict) or not isinstance(after, dict):
                changes = [] if before == after else [f"{name} was {before!r}, is now {after!r}"]
            else:
                changes = describe_changes(before, after)
            result = config.get("result")
            if changes and name == "training" and isinstance(result, dict) and result.get("finished"):
                raise RunFolderError(
                    f"{self.path} is finished after {result.get('steps')} steps, and its learning rate is 0: it cannot "
                    f"be continued with other settings ({'; '.join(changes)}). To train further, start another run "
                    f"in another folder from its weights: fit(cubicflow.load({str(self.path)!r}), ...), or fit the "
                    "table",
                    start=str(self.path),
                )
            if changes:
                what = "rows" if name == "data" else f"settings ({name})"
                raise RunFolderError(
                    f"{self.path} was started with other {what}: {'; '.join(changes)}. Resume it with the original "
                    f"{what.split()[0]}, or choose another folder"
                )

    # --- writing ---

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with self.writing():
            descriptor = open_plain(self.path / METRICS_FILE, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl."""
        with self.writing():
            return read_metrics(self.path)

    def save(self, tensors: dict[str, Tensor], numbers: RunNumbers) -> None:
        """Write a checkpoint."""
        with self.writing():
            checkpoints.save_checkpoint(self.path, tensors, numbers)
        self.saved_step = numbers.step

    def save_model(self, result: RunResult, *, finished: bool = False) -> None:
        """Write the flow's current weights, and config.json with this result."""
        section = {**asdict(result), "finished": finished}
        with self.writing():
            flow_files.write_flow(self.flow, self.path, self.about, {**self.sections, "result": section})

    def finish(self, result: RunResult) -> None:
        """Write the model, then remove the checkpoints. If the process is killed in between, the run is finished."""
        self.save_model(result, finished=True)
        with self.writing():
            checkpoints.remove_checkpoints(self.path)

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors of the finished model. Raises RunFolderError if they do not fit this flow."""
        path = self.path / WEIGHTS_FILE
        try:
            flow_files.compare(path, flow_files.state_shapes(self.flow), flow_files.read_header(path))
            tensors = flow_files.read_tensors(path, None)
        except FlowFileError as error:
            raise cannot_resume(error) from None
        here = self.flow.state_dict()
        if wrong := [name for name, value in tensors.items() if not is_usable(value, [here[name]])]:
            raise cannot_resume(f"{path}: {wrong[0]} holds invalid numbers")
        return tensors

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the file system inside the block into RunFolderError, with a hint about saved checkpoints."""
        try:
            yield
        except NotPlainError as error:
            raise RunFolderError(str(error)) from None
        except OSError as error:
            kept = ""
            if self.saved_step is not None:
                kept = f" The checkpoint of step {self.saved_step} is kept: make room and resume."
            raise RunFolderError(
                f"cannot write the run folder {self.path}: {error.strerror or error}.{kept}"
            ) from error

    def _cut_metrics(self, step: int) -> None:
        """Remove the lines of metrics.jsonl after ``step``, and an incomplete last line."""
        kept = [metrics for metrics in self.history() if metrics["step"] <= step]
        content = "".join(json.dumps(metrics) + "\n" for metrics in kept)
        write_atomically(self.path / METRICS_FILE, content.encode())


@contextmanager
def open_run(
    path: str | Path, flow: Any, sections: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[RunFolder]:
    """Lock a folder, and start, resume or overwrite the run in it.

    Raises:
        RunFolderError: the folder is in use, holds a run and neither ``resume`` nor ``overwrite`` is given, or holds
            files that do not belong to a run.
    """
    folder = RunFolder(Path(path), flow, sections)
    with folder.opened(resume=resume, overwrite=overwrite) as resumed:
        if resumed:
            folder.resume()
        else:
            folder.begin()
        yield folder


def check_run(run: str | Path | None, *, resume: bool, sections: Mapping[str, Any]) -> None:
    """Raise ValueError for ``resume`` without ``run``, and for sections with a reserved name.

    >>> check_run("runs/first", resume=False, sections={"flow": {}})
    Traceback (most recent call last):
    ...
    ValueError: sections may not be named 'flow': the run itself uses that name; choose another name
    """
    if resume and run is None:
        raise ValueError("resume=True needs run=, the folder of the run to resume")
    if taken := [name for name in sections if name in RESERVED]:
        names = ", ".join(map(repr, taken))
        raise ValueError(f"sections may not be named {names}: the run itself uses that name; choose another name")


def recorded_settings(run: str | Path) -> dict[str, Any]:
    """Return the training settings in a run's config.json; none if there is no such file or section."""
    with suppress(FlowFileError):  # reported when the run is opened
        section = flow_files.read_config(Path(run)).get("training")
        return section if isinstance(section, dict) else {}
    return {}


def first_difference(before: Any, after: Any, path: str = "flow") -> str | None:
    """Return a phrase for the first difference between two descriptions, or None if they are equal."""
    if isinstance(before, dict) and isinstance(after, dict):
        parts = [(before.get(key), after.get(key), f"{path}.{key}") for key in {**before, **after}]
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{path}, which had {len(before)} parts and has {len(after)}"
        parts = [(one, after[i], f"{path}[{i}]") for i, one in enumerate(before)]
    else:
        return None if before == after else f"{path}, which was {before!r} and is {after!r}"
    return next(filter(None, (first_difference(*part) for part in parts)), None)


# --- what others read, during a run or after it ---


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of metrics.jsonl in order; an empty list if there is no file.

    Lines that no run writes are left out: lines with nested values, with integers above LARGEST, or without a step.

    Raises:
        NotPlainError: the path is not a plain file, or the file is larger than MOST_METRICS_BYTES.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, METRICS_FILE).write_text('{"step": 1, "loss": 2.5}\\n{"step": 2, "lo')
    ...     read_metrics(Path(folder))
    [{'step': 1, 'loss': 2.5}]
    """
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    check_plain(path, MOST_METRICS_BYTES)
    complete = []
    with path.open("rb") as file:
        while line := file.readline(MOST_IN_LINE):
            with suppress(ValueError, RecursionError):
                metrics = json.loads(line)
                if _is_valid(metrics):
                    complete.append(metrics)
    return complete


def _is_valid(metrics: Any) -> bool:
    if not isinstance(metrics, dict) or not all(map(_is_plain, metrics.values())):
        return False
    step = metrics.get("step")
    return isinstance(step, int) and not isinstance(step, bool) and step >= 0


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) <= LARGEST)


def load_unfinished(folder: Path, config: dict[str, Any]) -> Any:
    """Return the best model so far of an unfinished run with this config.

    The function writes nothing, and checks the files as :func:`cubicflow.load` does. Raises FlowFileError if no
    checkpoint can be read.

    >>> import tempfile, torch
    >>> import cubicflow as cf
    >>> from cubicflow.flows.serialization import read_config
    >>> flow, x = cf.flows.tabular(1, num_layers=1, hidden_features=8), torch.randn(200, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         cf.training.fit(flow, x, run=folder, steps=50, progress=False, stop=lambda: True)
    ...     except cf.training.TrainingInterrupted:
    ...         best = load_unfinished(Path(folder), read_config(Path(folder)))
    >>> best.log_prob(x).shape
    torch.Size([200])
    """
    try:
        checkpoint, _ = checkpoints.load_checkpoint(folder)
    except DamagedCheckpointError as error:
        raise FlowFileError(folder, str(error)) from None
    if checkpoint is None:
        raise FlowFileError(folder, "there is no model and no checkpoint yet; wait for the first checkpoint")
    tensors = {name.removeprefix(BEST): value for name, value in checkpoint.tensors.items() if name.startswith(BEST)}
    shapes = {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}
    return flow_files.restored(config, folder / CONFIG_FILE, folder / checkpoints.NEWEST, shapes, lambda _: tensors)


def is_unfinished(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether a run is unfinished, and has a checkpoint or no model.

    >>> is_unfinished(Path("no/such/run"), {"result": {"finished": True}})
    False
    """
    result = config.get("result")
    finished = not isinstance(result, dict) or result.get("finished") is not False
    return not finished and ((folder / checkpoints.NEWEST).exists() or not (folder / WEIGHTS_FILE).exists())


def is_training(folder: Path) -> bool:
    """Return whether a process holds the lock of a run folder.

    >>> is_training(Path("no/such/run"))
    False
    """
    import fcntl

    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
