"""A model of columns that is trained in random orders, so that it learns each column given any of the others.

Each training step draws a new order for every row. In that order, every column is conditioned on the columns before
it. Such a model answers conditions on any columns without importance weights. :mod:`benchmarks.column_ablations`
measures the price: it scores this model in the same fixed order as the default model.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import CELL, UNSEEN
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.columns import suited_columns
from cubicflow.tables.model.network import ColumnsModel

ROWS_AT_ONCE = 4096


class AnyOrder(nn.Module):
    """D conditional models, one for each column. The context is the other columns; later columns are masked as unseen.

    >>> model = AnyOrder([2, 1], [0, 1], hidden_features=8)
    >>> model.log_prob(torch.tensor([[1.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.25, -1.386]])).shape
    torch.Size([1])
    """

    def __init__(self, outcomes: list[int], shapes: list[int], **settings: float) -> None:
        super().__init__()
        self.shape, self.context_features = (CELL * len(outcomes),), 0
        others = [[j for j in range(len(outcomes)) if j != i] for i in range(len(outcomes))]
        self.others = others
        self.columns = nn.ModuleList(
            ColumnsModel(
                [outcomes[i]],
                [shapes[i]],
                [outcomes[j] for j in others[i]],
                [shapes[j] for j in others[i]],
                **settings,  # type: ignore[arg-type]
            )
            for i in range(len(outcomes))
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p, (N, 4 D) -> (N,). Training draws an order for each row; evaluation uses the column order."""
        return self.conditionals(x).sum(1)

    forward = log_prob

    def conditionals(self, x: Tensor) -> Tensor:
        """Return log p of every cell given the cells before it, (N, D)."""
        cells = x.unflatten(1, (-1, CELL))
        rank = torch.arange(cells.shape[1], device=x.device).expand(cells.shape[:2])
        if self.training:
            rank = torch.rand(cells.shape[:2], device=x.device).argsort(1)
        found = []
        for i, (column, others) in enumerate(zip(self.columns, self.others, strict=True)):
            context = cells[:, others].clone()
            context[:, :, 0] = torch.where(rank[:, others] < rank[:, i : i + 1], context[:, :, 0], UNSEEN)
            found.append(column.conditionals(cells[:, i], context.flatten(1))[:, 0])  # type: ignore[operator]
        return torch.stack(found, dim=1)


def any_order_model(encoder: CellEncoder, rows: int, seed: int) -> AnyOrder:
    """Return a model with the default settings for ``rows`` rows. Cell dropout is off: the random orders hide cells."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        described = encoder.model_arguments
        model = AnyOrder(described["outcomes"], described["shapes"], **{**suited_columns(rows), "cell_dropout": 0.0})
    shares = [torch.tensor(encoder.independent.shares[name]) for name in encoder.order]
    for column, share in zip(model.columns, shares, strict=True):
        column.start_from([share])  # type: ignore[operator]
    return model


@torch.no_grad()
def log_probability(model: AnyOrder, encoder: CellEncoder, y: Floats) -> Floats:
    """Return log p of rows of plain numbers, in the encoder's column order and in float64."""
    model = model.double().eval()
    found = []
    for start in range(0, len(y), ROWS_AT_ONCE):
        rows = y[start : start + ROWS_AT_ONCE]
        log_p = model.conditionals(torch.from_numpy(encoder.inputs(rows))).numpy()
        found.append(encoder.log_ruled(log_p, rows).sum(axis=1))
    return np.concatenate(found)
