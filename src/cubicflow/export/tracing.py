"""Tracing of a module to a program of torch operators for any number of rows."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from itertools import count
from traceback import walk_tb

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import config as fx_config

from cubicflow.export.graphs import ExportError, Graph

FEWEST_EXAMPLES = 101
NO_SOURCE_LINES = "do_not_emit_stack_traces"  # not in torch 2.8


@torch.no_grad()
def traced(graph: Graph) -> ExportedProgram:
    """Trace a graph. Raises ExportError if the model cannot be traced; the message names the part that was running.

    >>> import cubicflow as cf
    >>> from cubicflow.export.graphs import graph_of
    >>> program = traced(graph_of(cf.flows.tabular(1, num_layers=1, hidden_features=8), sampler=False))
    >>> program.module()(torch.zeros(2, 1)).shape
    torch.Size([2])
    """
    # The number of example rows must differ from all sizes in the model: torch treats equal sizes as the same axis.
    taken = sizes_of(graph.module)
    rows = next(n for n in count(FEWEST_EXAMPLES) if n not in taken and all(n % d for d in range(2, 11)))
    examples = tuple(torch.full((rows, *shape), 0.5, dtype=graph.dtype) for shape in graph.inputs.values())
    free = Dim("rows")
    try:
        with quiet():
            return torch.export.export(graph.module, examples, dynamic_shapes=tuple({0: free} for _ in examples))
    except Exception as error:  # modules of users can raise anything during tracing
        raise ExportError(_why(graph.module, error)) from error


def sizes_of(model: nn.Module) -> set[int]:
    """Return the axis sizes and the element counts of all tensors in a model."""
    state = model.state_dict().values()
    return {size for value in state for size in (*value.shape, math.prod(value.shape))}


def _why(module: nn.Module, error: BaseException) -> str:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300].rstrip(".:; ")
    part = running_part(module, error)
    where = "the model" if part is None else part
    return f"{where} cannot be exported: {reason}; use torch operators only, without branches on tensor values"


def running_part(module: nn.Module, error: BaseException | None) -> str | None:
    """Return the name and class of the innermost module that was running when the error was raised."""
    names = {id(part): name for name, part in module.named_modules()}
    while error is not None:
        for frame, _ in reversed(list(walk_tb(error.__traceback__))):
            found = frame.f_locals.get("self")
            if isinstance(found, nn.Module) and names.get(id(found)) not in (None, "", "model"):
                return f"{names[id(found)].removeprefix('model.')} ({type(found).__name__})"
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and log messages, because the user cannot act on them. Exceptions are still raised.

    Before torch raises an exception, it also prints the graph that it has traced so far to standard error. Where torch
    can leave them out, no source lines are recorded: a file has none, and they take half of the time.
    """
    before, no_lines = logging.root.manager.disable, getattr(fx_config, NO_SOURCE_LINES, None)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            if no_lines is not None:
                setattr(fx_config, NO_SOURCE_LINES, True)
            yield
    finally:
        logging.disable(before)
        if no_lines is not None:
            setattr(fx_config, NO_SOURCE_LINES, no_lines)
