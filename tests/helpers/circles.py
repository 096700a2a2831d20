"""A fitted table with circles, tails and decimals, whose splines are far from the identity, and integrals of scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from cubicflow.tables import FittedTable, TableOptions, fit_table
from cubicflow.tables.laws.law import Law
from cubicflow.tables.laws.masses import bins_of
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.query.walk import Walk
from cubicflow.tables.schema.plain_rows import Numbers

KINDS = {
    "angle": "circular:-3.141592653589793:3.141592653589793",
    "wind": "circular:360",
    "bearing": "circular:0:6.283185307179586",
    "hour": "circular:24",
    "size": "real",
}
SMALL = {"hidden_features": 16, "num_blocks": 1, "num_bins": 6}
PANELS, NODES = 20, np.polynomial.legendre.leggauss(6)


def circles(rows: int = 400) -> pd.DataFrame:
    """Return a circle of real numbers, two with decimals, one of steps, a rounded number, a long tail with an atom."""
    rng = np.random.default_rng(0)
    angle = rng.vonmises(3.0, 2.0, rows)
    return pd.DataFrame(
        {
            "word": rng.choice(["ash", "oak", "elm"], rows),
            "angle": angle,
            "wind": np.round(rng.normal(358, 20, rows), 3) % 360,
            "bearing": np.floor(rng.vonmises(0.1, 1.5, rows) % (2 * np.pi) * 1e4) / 1e4,
            "hour": np.round(rng.normal(23, 3, rows) + 2 * np.sin(angle)).astype(int) % 24,
            "size": np.round(np.cos(angle - 1) + 0.2 * rng.normal(size=rows), 1),
            "zero": np.where(rng.random(rows) < 0.3, 0.0, rng.exponential(2, rows)),
        }
    )


def fit_circles(folder: Path) -> FittedTable:
    """Return the table fitted for one step, with random splines."""
    circles().to_csv(folder / "t.csv", index=False)
    options = TableOptions(kinds=KINDS)
    fit_table(folder / "t.csv", folder / "run", options, steps=1, seed=0, progress=False, settings=SMALL)
    fitted = FittedTable.load(folder / "run")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for head in fitted.flow.splines:
            if isinstance(head, torch.nn.Linear):
                head.bias.normal_(0, 0.6)
                head.weight.normal_(0, 0.2)
    fitted.flow.double()
    return fitted


class Rows:
    """Drawn rows of the table, and the laws of a column given the earlier columns of these rows."""

    def __init__(self, fitted: FittedTable, rows: int = 2) -> None:
        self.fitted, self.encoder, self.model = fitted, fitted.model.laws().encoder, fitted.flow
        self.walk = Walk(fitted.model.laws(), {})
        self.y = self.walk.run(rows, len(self.encoder.order), torch.Generator().manual_seed(1)).y

    def index(self, name: str) -> int:
        return self.encoder.order.index(name)

    def law(self, name: str) -> Law:
        return self.walk.law(self.index(name), self.walk.begun(self.y, self.index(name)))

    def log_p(self, name: str, values: np.ndarray, rows: Sequence[int] | None = None) -> np.ndarray:
        """Return the scores (rows, values) of plain numbers, without the share of values that no row had."""
        i, begun = self.index(name), self.y if rows is None else self.y[rows]
        y = np.repeat(begun, len(values), axis=0)
        y[:, i] = np.tile(values, len(begun))
        found = ModelOfColumns(self.encoder, self.model).score(Numbers(self.walk.to_table(y), None, None)).terms[:, i]
        return found.reshape(len(begun), -1) - np.log1p(-self.encoder.cells[name].unseen)

    def integral(self, name: str, first: float, last: float, parts: int = PANELS) -> np.ndarray:
        """Return the integrals (rows,) of exp(score) over an interval without atoms.

        The score is smooth between the knots of the row's spline and the edges of the scale. There, Gauss's rule is
        exact up to rounding.
        """
        scale, params = self.encoder.cells[name].scale, self.law(name).params
        widths = bins_of(params, closed=self.encoder.cells[name].closed).widths.numpy()
        found = []
        for row, low in enumerate(np.cumsum(widths, axis=1)):
            corners = np.union1d(scale.edges, scale.values_at(low[:-1], np.cumsum(widths[row, ::-1])[-2::-1]))
            corners = np.concatenate([[first], corners[(corners > first) & (corners < last)], [last]])
            panels = np.concatenate([np.linspace(a, b, parts, endpoint=False) for a, b in pairwise(corners)])
            size = np.diff([*panels, last])
            at = panels[:, None] + size[:, None] * (NODES[0] + 1) / 2
            found.append(np.exp(self.log_p(name, at.ravel(), [row])[0]) @ (size[:, None] * NODES[1] / 2).ravel())
        return np.array(found)
