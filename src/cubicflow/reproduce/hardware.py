"""The machine of a run, and how many processes shared it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from cubicflow import __version__
from cubicflow.bench.bench_report import machine

LANES_VARIABLE = "CUBICFLOW_LANES"


def machine_in_use(device: str) -> dict[str, Any]:
    """Versions and hardware of a run on ``device``, and ``lanes``: how many processes ran side by side, as whoever
    started them says in the environment variable CUBICFLOW_LANES. Seconds measured beside others are not those of a
    machine of one's own."""
    found = machine("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    found["versions"]["cubicflow"] = __version__  # it is no package's metadata where the sources are used as they lie
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
