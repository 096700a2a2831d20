"""Small flows that were trained a little, and runtimes for the files that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.nets import ResidualMLP
from cubicflow.training import fit
from cubicflow.transforms import Compose, Coupling, ElementMap, LULinear

ROWS = (1, 2, 3, 17, 10_000)


def trained_flow(context_features: int = 0) -> cf.Flow:
    """Three correlated columns, one coupling layer with few bins: tracing takes seconds by the operator."""
    torch.manual_seed(0)
    network = partial(ResidualMLP, hidden_features=16, num_blocks=1)
    layer = Coupling(
        [True, False, True], network, ElementMap(num_bins=4), context_features=context_features, transform_identity=False
    )
    flow = cf.Flow(cf.distributions.StandardNormal(3), Compose([LULinear(3, seed=0), layer]))
    x, context = rows(2000, context_features)
    data = x if context is None else (x, context)
    fit(flow, data, steps=150, batch_size=200, learning_rate=1e-2, progress=False, seed=0)
    return flow.eval()


def rows(number: int, context_features: int, seed: int = 0) -> tuple[Tensor, Tensor | None]:
    """Rows with tails, and their context."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 3, generator=generator)
    x[:, 1] = x[:, 0] ** 2 / 2 + 0.3 * x[:, 1]
    if not context_features:
        return x, None
    context = torch.randn(number, context_features, generator=generator)
    return x + context[:, :1], context


def runtime(path: Path) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """A graph in onnxruntime, on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


@pytest.fixture(scope="session")
def conditional_flow() -> cf.Flow:
    return trained_flow(2)
