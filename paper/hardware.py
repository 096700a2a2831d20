"""The machine of a run, and the number of processes that shared it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from cubicflow import __version__
from cubicflow.bench.bench_report import machine

LANES_VARIABLE = "CUBICFLOW_LANES"


def machine_in_use(device: str) -> dict[str, Any]:
    """Return the versions, the hardware, and ``lanes``, the number of processes that ran side by side.

    The environment variable CUBICFLOW_LANES gives ``lanes``. Times measured on a shared machine are longer than on an
    idle one, so the record must say so.
    """
    found = machine("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    found["versions"]["cubicflow"] = __version__  # a source tree that is not installed has no package metadata
    text = os.environ.get(LANES_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{LANES_VARIABLE} must be a whole number, 1 or more, got {text!r}")
    return {**found, "lanes": int(text)}


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
