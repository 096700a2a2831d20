"""The experiments by name."""

from __future__ import annotations

import importlib

from cubicflow.reproduce.experiment import Request

EXPERIMENTS = ("figure-1", "figure-2", "table-1", "figure-3", "appendix")


def run_experiment(request: Request) -> None:
    """Run the one that is asked for. Its module is imported now: only one is needed, and it may need matplotlib."""
    request.check()
    importlib.import_module(f"cubicflow.reproduce.{request.name.replace('-', '_')}").run(request)
