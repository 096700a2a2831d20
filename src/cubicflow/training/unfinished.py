"""The model of an unfinished run: the best weights so far, from the newest checkpoint."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from cubicflow.flows.serialization import CONFIG_FILE, WEIGHTS_FILE, FlowFileError, restored
from cubicflow.training.checkpoint import NEWEST, DamagedCheckpointError, load_checkpoint
from cubicflow.training.run_folder import LOCK_FILE

BEST = "best."  # prefix of the best weights' names in a checkpoint


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
        checkpoint, _ = load_checkpoint(folder)
    except DamagedCheckpointError as error:
        raise FlowFileError(folder, str(error)) from None
    if checkpoint is None:
        raise FlowFileError(folder, "there is no model and no checkpoint yet; wait for the first checkpoint")
    tensors = {name.removeprefix(BEST): value for name, value in checkpoint.tensors.items() if name.startswith(BEST)}
    shapes = {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}
    return restored(config, folder / CONFIG_FILE, folder / NEWEST, shapes, lambda _: tensors)


def is_unfinished(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether a run is unfinished, and has a checkpoint or no model.

    >>> is_unfinished(Path("no/such/run"), {"result": {"finished": True}})
    False
    """
    result = config.get("result")
    finished = not isinstance(result, dict) or result.get("finished") is not False
    return not finished and ((folder / NEWEST).exists() or not (folder / WEIGHTS_FILE).exists())


def is_training(folder: Path) -> bool:
    """Return whether a process holds the lock of a run folder.

    >>> is_training(Path("no/such/run"))
    False
    """
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
