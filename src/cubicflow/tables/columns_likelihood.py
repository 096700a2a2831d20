"""The log probability of rows under a model of columns, in the data's own units, and rows drawn from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.encoder import Numbers

ROWS_AT_ONCE = 1 << 12


@torch.no_grad()
def log_conditionals(
    model: ColumnsModel, encoder: CellEncoder, numbers: Numbers, *, observed_only: bool = False
) -> Floats:
    """log p of every cell given those before it, (N, D) in the model's order.

    Networks compute in their own dtype, splines and sums in float64. With ``observed_only``, a value that is there
    counts given that it is there, and a gap counts nothing.
    """
    result = np.empty((len(numbers.y), len(encoder.order)))
    gaps = [encoder.cells[name].gap for name in encoder.order]
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        x = _placed(model, encoder.inputs(numbers.y[rows]))
        told = None if numbers.context is None else _placed(model, encoder.context_inputs(numbers.context[rows]))
        found = model.conditionals(x, told)
        if observed_only:
            kinds = x.unflatten(1, (len(gaps), -1))[:, :, 0]
            is_gap = (kinds == torch.tensor(gaps, device=x.device)) & (kinds >= 0)
            found = found - model.log_presence(x, gaps, told)
        result[rows] = encoder.log_ruled(found.double().cpu().numpy(), numbers.y[rows])
        if observed_only:
            result[rows][is_gap.cpu().numpy()] = 0
    return result


def log_probability(
    model: ColumnsModel, encoder: CellEncoder, numbers: Numbers, *, observed_only: bool = False
) -> Floats:
    """log p of every row, given its context, in nats."""
    found: Floats = log_conditionals(model, encoder, numbers, observed_only=observed_only).sum(axis=1)
    return found


def draw_rows(
    model: ColumnsModel,
    encoder: CellEncoder,
    n: int,
    context: Floats | None,
    generator: torch.Generator,
    *,
    complete: bool = False,
) -> Floats:
    """Plain numbers (n, D) of drawn rows; ``complete`` draws no gaps."""
    y = np.full((n, encoder.features), np.nan)
    device = model.positions.device

    def settle(i: int, kind: Tensor, u: Tensor) -> Tensor:
        draw = torch.rand(n, generator=generator, device=device, dtype=torch.float64)
        drawn = (part.cpu().numpy() for part in (kind, u, draw))
        return torch.from_numpy(encoder.settle(y, i, *drawn)).to(device)

    told = None if context is None else _placed(model, encoder.context_inputs(context))
    never = [encoder.cells[name].gap for name in encoder.order] if complete else ()
    model.sample(n, settle, told, generator=generator, never=never)
    return y


def _placed(model: ColumnsModel, cells: Floats | None) -> Tensor:
    """Cells in float64, on the model's device."""
    return torch.from_numpy(cells).to(model.positions.device)
