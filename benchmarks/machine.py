"""The machine of a run, and the number of processes that shared it."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.peers import NAMES
from cubicflow import __version__

LANES_VARIABLE = "CUBICFLOW_LANES"


def machine(device: str) -> dict[str, Any]:
    """Return the versions, the hardware, and ``lanes``, the number of processes that ran side by side.

    The environment variable CUBICFLOW_LANES gives ``lanes``. Times measured on a shared machine are longer than on an
    idle one, so the record must say so.
    """
    lanes = os.environ.get(LANES_VARIABLE, "1")
    if not lanes.isdecimal() or int(lanes) < 1:
        raise ValueError(f"{LANES_VARIABLE} must be a whole number, 1 or more, got {lanes!r}")
    others = {name: version for name in ("torch", "triton", "numpy", *NAMES) if (version := _version(name))}
    return {
        "versions": {"python": platform.python_version(), "cubicflow": __version__, **others},
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else None,
        "lanes": int(lanes),
    }


def name_of(about: Mapping[str, Any], *, threads: bool = False) -> str:
    """Return the hardware of a record in words.

    >>> name_of({"gpu": "NVIDIA H200", "processor": "EPYC", "threads": 2, "lanes": 9})
    'NVIDIA H200, shared by up to 9 processes'
    >>> name_of({"gpu": None, "processor": "EPYC", "threads": 2}, threads=True)  # a record from before lanes
    'EPYC, threads: 2'
    """
    name = about["gpu"] or (f"{about['processor']}, threads: {about['threads']}" if threads else about["processor"])
    lanes = about.get("lanes", 1)
    return f"{name}, shared by up to {lanes} processes" if lanes > 1 else str(name)


def _version(name: str) -> str | None:
    """Return the version of an installed package, or the ``__version__`` of a package that is only on the path."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    for module in (name, f"{name}.version"):
        with suppress(ImportError, AttributeError):
            return str(importlib.import_module(module).__version__)
    return None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
