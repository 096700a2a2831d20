"""The experiments by name."""

from __future__ import annotations

import importlib

from cubicflow.reproduce.experiment import Request

EXPERIMENTS = {
    "figure-1": "cubicflow.reproduce.figure_1",
    "figure-2": "cubicflow.reproduce.figure_2",
    "table-1": "cubicflow.reproduce.table_1",
    "figure-3": "cubicflow.reproduce.figure_3",
    "appendix": "cubicflow.reproduce.appendix",
}


def run_experiment(request: Request) -> None:
    """Run the one that is asked for. Its module is imported now: only one is needed, and it may need matplotlib."""
    request.check()
    importlib.import_module(EXPERIMENTS[request.name]).run(request)
