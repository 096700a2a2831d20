"""Count the operators of a training step: ``python -m benchmarks.step_operators [FEATURES]``.

On a GPU, a step of a small model takes as long as its chain of small kernels, and nearly every operator is one or two
of them. Counting needs no GPU and has no noise. Operators that only make a view or reserve memory are left out. The
clipping and the update of the weights are not counted: on a GPU they are three kernels.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cubicflow as cf
from cubicflow.data.rows import Batch
from cubicflow.training.losses import negative_log_likelihood

NO_KERNEL = ("aten.detach", "aten.alias", "aten.empty", "aten.new_empty", "aten.promote_types")


class OperatorCounter(TorchDispatchMode):
    """Counts operators by name while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not func.is_view and not str(func).startswith(NO_KERNEL):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators(features: int) -> Counter[str]:
    """Return the operators of the loss and its backward, for the default model of a table with so many columns."""
    flow = cf.flows.tabular(features)
    batch = Batch(torch.randn(512, features, generator=torch.Generator().manual_seed(0)))
    negative_log_likelihood(flow, batch)  # the first call initialises layers
    counter = OperatorCounter()
    with counter:
        negative_log_likelihood(flow, batch).mean().backward()
    return counter.counts


if __name__ == "__main__":
    found = operators(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
    for name, count in [*found.most_common(), ("all", found.total())]:
        print(f"{count:5d} {name}")
