"""Checkpoints: safetensors files with plain values as JSON in the header, and a digest of all content.

A checkpoint gets its name when it is complete, and the previous checkpoint is kept. So at least one of the two is
complete at any moment, even if the process is killed. A checkpoint contains no pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from cubicflow.files import NotPlainError, check_plain, sync_folder
from cubicflow.flows.serialization import write_tensors
from cubicflow.saved import Count, Range, SavedValueError, from_json

FORMAT = "cubicflow-checkpoint"
VERSION = "1"
NEWEST = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"
NEXT = "checkpoint-next.safetensors"
NAMES = (NEWEST, NEXT, PREVIOUS, "checkpoint-damaged.safetensors")  # older versions gave a damaged file this name
RAW: Literal["raw"] = "raw"
AVERAGED: Literal["averaged"] = "averaged"
WeightsKind = Literal["raw", "averaged"]
Seconds = Annotated[float, Range(0)]
Loss = Annotated[float, Range(-1e300, 1e300)]


@dataclass
class RunNumbers:
    """Numbers of a run that its checkpoints hold.

    Attributes:
        step: number of steps taken.
        elapsed: seconds of training.
        best_step: the step of the best validation loss.
        best_weights: the kind of weights that were best.
        waited: number of validations since the best step.
        last_read: the step at which the loss was last read.
        best_loss: the best validation loss; None before the first that is finite.
    """

    step: Count
    elapsed: Seconds
    best_step: Count
    best_weights: WeightsKind
    waited: Count
    last_read: Count
    best_loss: Loss | None


class Checkpoint(NamedTuple):
    """Content of a checkpoint: tensors by name, and plain values."""

    tensors: dict[str, Tensor]
    numbers: RunNumbers


class DamagedCheckpointError(ValueError):
    """A checkpoint's content differs from what was written."""


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], numbers: RunNumbers) -> None:
    """Write a new checkpoint and keep the previous one."""
    content, text = on_cpu(tensors), json.dumps(asdict(numbers))
    metadata = {"format": FORMAT, "version": VERSION, "numbers": text, "sha256": digest(content, text)}
    write_tensors(folder / NEXT, content, metadata)
    if (folder / NEWEST).exists():
        (folder / NEWEST).replace(folder / PREVIOUS)
    (folder / NEXT).replace(folder / NEWEST)
    sync_folder(folder)


def on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU that share no memory with one another.

    A tensor that is there already is not copied, so a checkpoint needs little memory.

    >>> on_cpu({"a": torch.ones(1, 2).T, "b": torch.tensor(3.0)})
    {'a': tensor([[1.],
            [1.]]), 'b': tensor(3.)}
    """
    here = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    copies, end = dict[str, Tensor](), 0
    for name, value in sorted(here.items(), key=lambda item: item[1].data_ptr()):
        is_shared = value.data_ptr() < end
        copies[name] = value.clone() if is_shared else value
        end = max(end, value.data_ptr() + value.nbytes)
    return {name: copies[name] for name in tensors}


def load_checkpoint(folder: Path, most_bytes: int | None = None) -> tuple[Checkpoint | None, str | None]:
    """Return the newest intact checkpoint and a note.

    The checkpoint is None if the folder has no checkpoint. The note is None unless a damaged checkpoint was skipped.

    Raises:
        DamagedCheckpointError: all checkpoints are damaged.
    """
    damaged: list[str] = []
    for path in (folder / name for name in (NEWEST, NEXT, PREVIOUS) if (folder / name).exists()):
        try:
            checkpoint = read_checkpoint(path, most_bytes)
        except DamagedCheckpointError as error:
            damaged.append(str(error))
            continue
        if not damaged:
            return checkpoint, None
        resumed = f"Resuming from {path.name}, step {checkpoint.numbers.step}."
        return checkpoint, f"{'; '.join(damaged)}. {resumed}"
    if damaged:
        raise DamagedCheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}")
    return None, None


def read_checkpoint(path: Path, most_bytes: int | None = None) -> Checkpoint:
    """Read one file, and check its size, its digest and its plain values.

    Raises:
        DamagedCheckpointError: a check failed, or the file is larger than ``most_bytes``.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_plain(path, most_bytes)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        text = metadata["numbers"]
        values = json.loads(text)
    except NotPlainError as error:
        raise DamagedCheckpointError(f"{path.name} is not a checkpoint: {error}") from None
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path.name} is damaged: {error}") from None
    if (metadata.get("format"), metadata.get("version")) != (FORMAT, VERSION):
        raise DamagedCheckpointError(f"{path.name} has version {metadata.get('version')!r}, expected {VERSION!r}")
    if metadata.get("sha256") != digest(tensors, text):
        raise DamagedCheckpointError(f"{path.name} is damaged: its digest does not match its content")
    try:
        numbers = from_json(RunNumbers, values)
    except SavedValueError as error:
        raise DamagedCheckpointError(f"{path.name} is damaged: it {error}") from None
    if max(numbers.best_step, numbers.last_read) > numbers.step:
        raise DamagedCheckpointError(f"{path.name} is damaged: it refers to a step after its own step, {numbers.step}")
    return Checkpoint(tensors, numbers)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a run. A finished run needs only its model."""
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)


def digest(tensors: dict[str, Tensor], text: str) -> str:
    """Return the SHA-256 of the tensors' names, dtypes, shapes and values, and of ``text``."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
