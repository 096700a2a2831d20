"""Small, briefly trained flows, runtimes for exported files, and bounds of their errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.nets import ResidualMLP
from cubicflow.splines import dispatch
from cubicflow.splines.backends import reference
from cubicflow.training import fit
from cubicflow.transforms import Compose, Coupling, ElementMap, LULinear

ROWS = (1, 2, 3, 17, 10_000)


COPIES = 24


def trained_flow(context_features: int = 0) -> cf.Flow:
    """Return a small flow of three correlated columns. Tracing time grows with the number of operators."""
    torch.manual_seed(0)
    network = partial(ResidualMLP, hidden_features=16, num_blocks=1)
    mask, few_bins = [True, False, True], ElementMap(num_bins=4)
    layer = Coupling(mask, network, few_bins, context_features=context_features, transform_identity=False)
    flow = cf.Flow(cf.distributions.StandardNormal(3), Compose([LULinear(3, seed=0), layer]))
    x, context = rows(2000, context_features)
    data = x if context is None else (x, context)
    fit(flow, data, steps=150, validate_every=1, batch_size=200, learning_rate=1e-2, progress=False, seed=0)
    return flow.eval()


def rows(number: int, context_features: int, seed: int = 0) -> tuple[Tensor, Tensor | None]:
    """Return rows with some in the tails, and their context."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 3, generator=generator)
    x[:, 1] = x[:, 0] ** 2 / 2 + 0.3 * x[:, 1]
    if not context_features:
        return x, None
    context = torch.randn(number, context_features, generator=generator)
    return x + context[:, :1], context


def runtime(path: Path) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """Return a graph in onnxruntime, on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def eager_error(
    single: Callable[..., Tensor], double: Callable[..., Tensor], *inputs: Tensor, nudged: Sequence[int] | None = None
) -> np.ndarray:
    """Return the error of eager float32 for each row: the largest error among copies of the row whose numbers differ by
    a rounding.

    One evaluation is not enough: rounding errors cancel in one row and add up in another, and a different float32
    program has other such rows. Half of the copies are evaluated by the reference backend, half by the fastest backend.
    ``nudged`` are the columns of the inputs that are changed; by default all columns.
    """
    generator = torch.Generator().manual_seed(0)
    worst = np.zeros(len(inputs[0]))
    for copy in range(COPIES):
        moved = []
        for values in inputs:
            factors = 1 + 2.0**-23 * torch.randint(-1, 2, values.shape, generator=generator) * (copy > 0)
            if nudged is not None:
                kept = torch.ones(values.shape[1], dtype=torch.bool)
                kept[list(nudged)] = False
                factors[:, kept] = 1
            moved.append(values * factors)
        with by_reference() if copy % 2 else nullcontext():
            error = single(*moved).double() - double(*(values.double() for values in moved))
        worst = np.maximum(worst, error.abs().numpy())
    return worst


@contextmanager
def by_reference() -> Iterator[None]:
    """Evaluate splines with the reference backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "evaluate", lambda spec, x, params, _: reference.evaluate(spec, x, params))
        yield


def check_float32(found: np.ndarray, exact: np.ndarray, eager: np.ndarray) -> None:
    """Assert that the error of every row is at most twice that of eager float32, plus 4 ulps."""
    rounding = 4 * np.spacing(np.abs(exact).astype(np.float32))
    error = np.abs(found - exact)
    beyond = np.flatnonzero(error - 2 * eager > rounding)
    assert len(beyond) == 0, f"{len(beyond)} of {len(exact)} rows, such as {beyond[:5]}"


def check_distribution(
    found: np.ndarray, eager: np.ndarray, exact: np.ndarray, terms: np.ndarray, name: str = "graph"
) -> None:
    """Assert that the errors of a graph have the distribution of eager's errors, and log both.

    The unit is float32's eps times the sum of the absolute ``terms`` of a row. In a single evaluation, one of two
    equally good programs often has more than twice the error of the other, by chance. So the shares of such rows are
    compared in both directions.
    """
    graph, other, unit = np.abs(found - exact), np.abs(eager - exact), 2.0**-23 * terms
    worse, better = (graph > 2 * other).mean(), (other > 2 * graph).mean()
    for label, error, share in ((name, graph, worse), ("eager", other, better)):
        units = error / unit
        values = (np.median(units), units.max(), np.median(error), error.max(), 100 * share)
        form = "%s: median %.3g and largest %.3g units (%.3g and %.3g); in %.1f %% of rows more than twice the other"
        logging.getLogger(__name__).info(form, label, *values)
    for measure, most in ((np.median, 1.1), (lambda units: np.quantile(units, 0.999), 1.25), (np.max, 1.5)):
        assert measure(graph / unit) <= most * measure(other / unit)
    assert worse <= better + 0.03
