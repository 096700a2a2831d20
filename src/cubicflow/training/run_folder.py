"""The folder of a run: config.json, model.safetensors, metrics.jsonl, and while it trains a checkpoint and a lock."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from cubicflow.atomic_files import is_leftover, write_atomically
from cubicflow.flows import serialization as flow_files
from cubicflow.flows.serialization import CONFIG_FILE, UNREGISTERED, WEIGHTS_FILE, FlowFileError
from cubicflow.flows.untrusted import is_usable
from cubicflow.plain_files import NotPlainError, open_own
from cubicflow.training import checkpoint as checkpoints
from cubicflow.training.checkpoint import Checkpoint, DamagedCheckpointError
from cubicflow.training.config import describe_changes
from cubicflow.training.errors import RunFolderError
from cubicflow.training.metrics_file import METRICS_FILE, read_metrics
from cubicflow.training.saved_numbers import RESULT, why_not

LOCK_FILE = "lock"
# What may lie in a folder that a run begins in or overwrites; anything else is somebody's and stays.
OWN_FILES = (CONFIG_FILE, WEIGHTS_FILE, METRICS_FILE)
HARMLESS = (LOCK_FILE, "plots", "judge.json", "lost+found")
WRITTEN = (*OWN_FILES, checkpoints.NEXT)  # and then renamed; killed in between, they leave a file of another name
# Sections of config.json that say what was trained, how, on what, and with which outcome; "folder" is an argument of
# save_flow's.
RESERVED = ("format", "version", "dtype", "training", "data", "result", "flow", "shared_tensors", "folder")
# A checkpoint has the weights, the best ones, the averaged ones and two moments of each; the rest is its header.
COPIES, BYTES_OF_A_NUMBER, HEADER_BYTES = 6, 16, 1 << 24
BEGIN_AGAIN = "begin again with overwrite (--overwrite)"


class RunFolder:
    """One run on disk, locked by this process.

    Attributes:
        path: the folder.
        finished: the ``result`` section of a run that is already complete, else None.
        checkpoint: what to go on from, else None.
        note: a sentence for the user about how the run was found, or None.
    """

    def __init__(self, path: Path, flow: Any, sections: Mapping[str, Any]) -> None:
        self.path = path
        self.flow = flow
        self.sections = dict(sections)
        # Refuses before anything is written.
        self.about = {} if flow is None else flow_files.about_flow(flow, or_state=True)
        self.finished: dict[str, Any] | None = None
        self.checkpoint: Checkpoint | None = None
        self.note: str | None = None
        self.saved_step: int | None = None

    # --- finding out what is there ---

    def begin(self) -> None:
        """A new run, in place of one that may be here."""
        with self.writing():
            self.clear()
            flow_files.write_config(self.path, self.about, {**self.sections, "result": {"finished": False}})
            write_atomically(self.path / METRICS_FILE, b"")

    def clear(self) -> None:
        """Remove all files of a run but config.json. That makes the folder a run's, so it is replaced or removed when
        all else is gone: killed at any moment, the folder can be overwritten again. It no longer says that the run is
        finished before the model goes, so the run that was there can be resumed as well, and begins."""
        checkpoints.remove_checkpoints(self.path)
        with suppress(FlowFileError):
            config = flow_files.read_config(self.path)
            flow_files.write_config(self.path, {**config, "result": {"finished": False}}, {})
        for name in (METRICS_FILE, WEIGHTS_FILE):
            (self.path / name).unlink(missing_ok=True)

    def resume(self) -> None:
        """Go on with the run that is here, which must be this one."""
        try:
            config = flow_files.read_config(self.path)
        except FlowFileError as error:
            raise RunFolderError(f"cannot resume: {error}") from None
        self._compare(config)
        result = config.get("result")
        if not isinstance(result, dict):
            raise RunFolderError(f"cannot resume: {self.path / CONFIG_FILE} has no section 'result'; {BEGIN_AGAIN}")
        if result.get("finished"):
            if wrong := why_not(RESULT, result):
                raise RunFolderError(
                    f"cannot resume: the section 'result' of {self.path / CONFIG_FILE} {wrong}; {BEGIN_AGAIN}"
                )
            self.finished = result
            with self.writing():
                checkpoints.remove_checkpoints(self.path)  # a process that was killed at its end left them
            return
        with self.writing():
            try:
                self.checkpoint, self.note = checkpoints.load_checkpoint(self.path, self._most_bytes())
            except DamagedCheckpointError as error:
                raise RunFolderError(f"cannot resume: {error}; {BEGIN_AGAIN}") from None
            self.saved_step = None if self.checkpoint is None else self.checkpoint.numbers["step"]
            self._cut_metrics(self.saved_step or 0)

    def _most_bytes(self) -> int:
        """Of a checkpoint of this flow."""
        elements: int = sum(value.numel() for value in self.flow.state_dict().values())
        return COPIES * BYTES_OF_A_NUMBER * elements + HEADER_BYTES

    def _compare(self, config: dict[str, Any]) -> None:
        dtype, before, after = config.get("dtype"), config.get("flow"), self.about["flow"]
        if isinstance(before, dict) and UNREGISTERED in before:  # its tensors are all that is known of it
            dtype, before, after = self.about["dtype"], before.get("state"), flow_files.describe_state(self.flow)
        elif UNREGISTERED in after:
            raise RunFolderError(
                f"{self.path} was begun when all classes in its flow were registered; call cubicflow.register on "
                f"{', '.join(after[UNREGISTERED])} before you resume it"
            )
        if where := first_difference(before, after) or (None if dtype == self.about["dtype"] else "its dtype"):
            raise RunFolderError(
                f"{self.path} holds a run of another model (it differs in {where}); resume it with the flow it was "
                "begun with, or choose another folder"
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
                    f"{self.path} is finished after {result.get('steps')} steps, its learning rate has come down to "
                    f"0: it cannot go on with other settings ({'; '.join(changes)}). To train on, begin another run "
                    f"from its weights: fit(cubicflow.load({str(self.path)!r}), ...) with another folder, or --start "
                    f"{self.path} with another -o"
                )
            if changes:
                what = "rows" if name == "data" else f"settings ({name})"
                raise RunFolderError(
                    f"{self.path} was begun with other {what}: {'; '.join(changes)}. Resume it with those it was begun "
                    "with, or choose another folder"
                )

    # --- writing ---

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with self.writing():
            descriptor = open_own(self.path / METRICS_FILE, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are whole."""
        with self.writing():
            return read_metrics(self.path)

    def save(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write a checkpoint."""
        with self.writing():
            checkpoints.save_checkpoint(self.path, tensors, numbers)
        self.saved_step = numbers["step"]

    def save_model(self, result: Mapping[str, Any]) -> None:
        """Write the flow as it is, and what the config says of it."""
        with self.writing():
            flow_files.write_flow(self.flow, self.path, self.about, {**self.sections, "result": dict(result)})

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the model, and then drop the checkpoints. Killed in between, a run resumes at its end."""
        self.save_model({**result, "finished": True})
        with self.writing():
            checkpoints.remove_checkpoints(self.path)

    def weights(self) -> dict[str, Tensor]:
        """The tensors of the finished model, if they are those of this flow."""
        path = self.path / WEIGHTS_FILE
        try:
            flow_files.compare(path, flow_files.state_shapes(self.flow), flow_files.read_header(path))
            tensors = flow_files.read_tensors(path, None)
        except FlowFileError as error:
            raise RunFolderError(f"cannot resume: {error}; {BEGIN_AGAIN}") from None
        here = self.flow.state_dict()
        if wrong := [name for name, value in tensors.items() if not is_usable(value, [here[name]])]:
            raise RunFolderError(f"cannot resume: {path}: {wrong[0]} holds numbers that no run has; {BEGIN_AGAIN}")
        return tensors

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the disk refuses becomes one clear message, with what is safe."""
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
        """Drop what was logged after the checkpoint, and a line that was cut short."""
        kept = [metrics for metrics in self.history() if metrics["step"] <= step]
        content = "".join(json.dumps(metrics) + "\n" for metrics in kept)
        write_atomically(self.path / METRICS_FILE, content.encode())


def check_folder(path: Path, *, may_exist: bool) -> None:
    """Refuse a folder that no run can begin in. ``may_exist`` says whether a run may be there already."""
    _refuse_file(path)
    names = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    foreign = [name for name in names if name not in HARMLESS and not is_leftover(name, WRITTEN)]
    if CONFIG_FILE in names and not may_exist:
        raise RunFolderError(
            f"{path} already holds a run: continue it with resume (--resume), begin again with overwrite "
            "(--overwrite), or choose another folder"
        )
    if foreign and CONFIG_FILE not in names:
        raise RunFolderError(
            f"{path} is not empty and holds no run ({', '.join(foreign[:3])}); choose a new or empty folder"
        )


def _refuse_file(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file; a run needs a folder")


@contextmanager
def open_run(
    path: str | Path, flow: Any, sections: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[RunFolder]:
    """Lock a folder and begin, resume or overwrite the run in it. Refuses to touch what is not asked for."""
    if resume and overwrite:
        raise ValueError("resume and overwrite contradict each other; choose one")
    folder = RunFolder(Path(path), flow, sections)
    _refuse_file(folder.path)
    with folder.writing():
        folder.path.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        _tidy(folder)
        check_folder(folder.path, may_exist=resume or overwrite)
        for name in (*OWN_FILES, *checkpoints.NAMES):
            if (folder.path / name).is_dir():
                raise RunFolderError(f"{folder.path / name} is a folder where a run has a file; move it away")
        if resume and (folder.path / CONFIG_FILE).exists():
            folder.resume()
        else:
            folder.begin()
        yield folder


def forget_run(path: Path) -> None:
    """Remove the files of the run in a folder, if there is one, and the folder if nothing else is in it."""
    if not (path / CONFIG_FILE).is_file():
        return
    folder = RunFolder(path, None, {})
    with _lock(folder), folder.writing():
        _tidy(folder)
        folder.clear()
        (path / CONFIG_FILE).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def check_run(run: str | Path | None, *, resume: bool, sections: Mapping[str, Any]) -> None:
    """What is asked of a run folder makes sense: sections of the user's own do not take the place of the run's.

    >>> check_run("runs/first", resume=False, sections={"flow": {}})
    Traceback (most recent call last):
    ...
    ValueError: sections may not be named 'flow': a run keeps its own there; choose another name
    """
    if resume and run is None:
        raise ValueError("resume=True needs run=, the folder of the run to go on with")
    if taken := [name for name in sections if name in RESERVED]:
        names = ", ".join(map(repr, taken))
        raise ValueError(f"sections may not be named {names}: a run keeps its own there; choose another name")


def first_difference(before: Any, after: Any, path: str = "flow") -> str | None:
    """Where two descriptions differ, for a message."""
    if isinstance(before, dict) and isinstance(after, dict):
        parts = [(before.get(key), after.get(key), f"{path}.{key}") for key in {**before, **after}]
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{path}, which had {len(before)} parts and has {len(after)}"
        parts = [(one, after[i], f"{path}[{i}]") for i, one in enumerate(before)]
    else:
        return None if before == after else f"{path}, which was {before!r} and is {after!r}"
    return next(filter(None, (first_difference(*part) for part in parts)), None)


@contextmanager
def _lock(folder: RunFolder) -> Iterator[None]:
    """One process at a time. The system drops the lock when the process dies, however it dies."""
    import fcntl

    path = folder.path / LOCK_FILE
    with folder.writing():
        file = os.fdopen(open_own(path, os.O_RDWR), "r+", encoding="utf-8", errors="replace")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            current = path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except BlockingIOError:
            current = False
        if not current:  # somebody holds it, or dropped it and its file just now
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise RunFolderError(f"{folder.path} is in use by {holder}; wait for it, or choose another folder")
        with folder.writing():
            file.truncate(0)
            # Past the buffer: on a full disk closing the file would try again, and that error would hide this one.
            os.pwrite(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _tidy(folder: RunFolder) -> None:
    """Remove what a killed process left half written."""
    with folder.writing():
        for file in list(folder.path.iterdir()):
            if is_leftover(file.name, WRITTEN):
                file.unlink(missing_ok=True)
