"""Checkpoints: one safetensors file each, with the plain values as JSON in its header and a digest over everything.

A file is complete before it gets its name, and the previous one is kept, so whatever happens at whatever moment, one of
the two is whole. Nothing in them is a pickle.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cubicflow.atomic_files import keep_names, write_atomically
from cubicflow.plain_files import NotPlainError, check_plain
from cubicflow.training.saved_numbers import CHECKPOINT, why_not

FORMAT = "cubicflow-checkpoint"
VERSION = "1"
NEWEST = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"
NEXT = "checkpoint-next.safetensors"
DAMAGED = "checkpoint-damaged.safetensors"
NAMES = (NEWEST, NEXT, PREVIOUS, DAMAGED)


class Checkpoint(NamedTuple):
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not as it was written."""


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Write a new checkpoint and keep the one before it."""
    from safetensors.torch import save

    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    text = json.dumps(numbers)
    metadata = {"format": FORMAT, "version": VERSION, "numbers": text, "sha256": digest(copies, text)}
    write_atomically(folder / NEXT, save(copies, metadata))
    if (folder / NEWEST).exists():
        (folder / NEWEST).replace(folder / PREVIOUS)
    (folder / NEXT).replace(folder / NEWEST)
    keep_names(folder)


def load_checkpoint(folder: Path, most_bytes: int | None = None) -> tuple[Checkpoint | None, str | None]:
    """The newest checkpoint that is whole, None if there are none at all, and a sentence if an older one had to do.

    A damaged newest one is put aside, so that the next save does not take it for the previous good one.
    """
    damaged: dict[Path, str] = {}
    for path in (folder / name for name in (NEWEST, NEXT, PREVIOUS) if (folder / name).exists()):
        try:
            checkpoint = read_checkpoint(path, most_bytes)
        except DamagedCheckpointError as error:
            damaged[path] = str(error)
            continue
        if not damaged:
            return checkpoint, None
        for bad in damaged:
            bad.replace(folder / DAMAGED)
        step = checkpoint.numbers.get("step")
        return checkpoint, f"{'; '.join(damaged.values())}. Going on from {path.name}, step {step}."
    if damaged:
        raise DamagedCheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(damaged.values())}")
    return None, None


def read_checkpoint(path: Path, most_bytes: int | None = None) -> Checkpoint:
    """One file, with its digest and its numbers checked; larger ones than ``most_bytes`` are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        check_plain(path, most_bytes)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        text = metadata["numbers"]
        numbers = json.loads(text)
    except NotPlainError as error:
        raise DamagedCheckpointError(f"{path.name} is no checkpoint: {error}") from None
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path.name} is damaged: {error}") from None
    if (metadata.get("format"), metadata.get("version")) != (FORMAT, VERSION):
        raise DamagedCheckpointError(f"{path.name} has version {metadata.get('version')!r}, this reads {VERSION!r}")
    if metadata.get("sha256") != digest(tensors, text):
        raise DamagedCheckpointError(f"{path.name} is damaged: its digest does not match its content")
    if wrong := why_not(CHECKPOINT, numbers):
        raise DamagedCheckpointError(f"{path.name} is damaged: it {wrong}")
    if max(numbers["best_step"], numbers["last_read"]) > numbers["step"]:
        raise DamagedCheckpointError(f"{path.name} is damaged: it tells of steps after its own, {numbers['step']}")
    return Checkpoint(tensors, {name: numbers[name] for name in CHECKPOINT})


def remove_checkpoints(folder: Path) -> None:
    """Once a run is finished its model is all that is needed."""
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)


def digest(tensors: dict[str, Tensor], text: str) -> str:
    """SHA-256 over names, dtypes, shapes, values and the plain values."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
