"""One table with a column of every kind, and runs fitted to it: what the tests of all outer packages share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cubicflow.tables import FittedTable, TableOptions, fit_table

ROWS = 600
TURN = 2 * np.pi
CIRCLES = {"angle": f"circular:{-np.pi}:{np.pi}", "wind": "circular:360", "hour": "circular:24"}
COLUMNS = {
    "species": "categorical",
    "finder": "categorical",
    "town": "categorical",
    "county": "categorical",
    "dose": "levels",
    "tall": "boolean",
    "rings": "integer",
    "branches": "integer",
    "girth": "stepped",
    "born": "datetime",
    "hour": "circular steps",
    "wind": "circular steps",
    "angle": "circular",
    "rain": "real",
    "height": "real",
    "height_again": "real",
    "planet": "constant",
}
SMALL = {"hidden_features": 16, "num_blocks": 1, "num_bins": 8}


def every_kind(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return words, rare words, steps, atoms, gaps, circles, dates, levels, booleans, a rule, a copy and a constant.

    Columns depend on earlier ones.
    """
    rng = np.random.default_rng(seed)
    species = rng.choice(["ash", "elm, old", "oak"], rows, p=[0.5, 0.3, 0.2])
    oak = species == "oak"
    town = rng.choice(["Ulm", "Bonn", "Jena", "Trier"], rows)
    county = pd.Series(town).map({"Ulm": "south", "Bonn": "west", "Jena": "east", "Trier": "west"})
    finder = np.where(
        rng.random(rows) < 0.9, rng.choice(["Ada", "Ben"], rows), [f"guest {i % 30}" for i in range(rows)]
    )
    rings = rng.poisson(30 + 15 * oak, rows)
    branches = rng.poisson(3, rows)
    height = rng.gamma(4.0, 2.0 + oak, rows)
    hour = np.mod(np.round(rng.normal(23, 3, rows)), 24).astype(int)
    rain = np.where(rng.random(rows) < 0.3 + 0.3 * oak, 0.0, rng.exponential(2.0, rows))
    angle = rng.vonmises(3.0, 2.0 + 2 * oak, rows)
    frame = pd.DataFrame(
        {
            "species": species,  # words
            "finder": finder,  # words, most of them rare
            "town": town,  # words that determine others
            "county": county,
            "dose": rng.choice([1 / 3, 2**0.5, np.e, 10.0], rows),  # levels: a few numbers off any grid
            "tall": height > 10,  # truth values
            "rings": rings,  # whole numbers, many values
            "branches": branches,  # whole numbers, few values
            "girth": np.round(rng.normal(3, 1, rows) + oak, 2),  # steps of 0.01
            "born": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D"),
            "hour": hour,  # a circle with steps
            "wind": np.mod(np.round(np.mod(rng.normal(0, 30, rows), 360), 1), 360),  # a circle with steps of 0.1
            "angle": np.where(angle >= np.pi, -np.pi, angle),  # a circle of reals
            "rain": rain,  # reals with an atom
            "height": height,  # reals
            "height_again": height,  # a copy
            "planet": "earth",  # a constant
        }
    )
    frame["born"] = frame["born"].dt.strftime("%Y-%m-%d")
    frame.loc[rng.random(rows) < 0.1, "girth"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "finder"] = None
    return frame


def every_number(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return what a flow serves: reals and steps, with words as context."""
    frame = every_kind(rows, seed)
    found = frame[["species", "rings", "height", "rain"]].copy()
    found["rain"] += np.random.default_rng(seed).exponential(0.1, rows)  # no atom
    found["girth"] = np.round(found["height"] / 3, 2)
    return found


def fit_every_kind(folder: Path, **how: Any) -> FittedTable:
    """Fit a model of columns to the table of every kind, saved as table.csv beside the run."""
    every_kind().to_csv(folder / "table.csv", index=False)
    return _fit(folder, TableOptions(kinds=CIRCLES), "columns", SMALL, **how)


def fit_every_number(folder: Path, **how: Any) -> FittedTable:
    """Fit a flow to the table of reals and steps, saved as table.csv beside the run."""
    every_number().to_csv(folder / "table.csv", index=False)
    return _fit(folder, TableOptions(context=["species"]), "flow", {"num_layers": 2, "hidden_features": 8}, **how)


def _fit(
    folder: Path, options: TableOptions, model: str, settings: dict[str, int], steps: int = 60, **how: Any
) -> FittedTable:
    options = how.pop("options", options)
    how = {"steps": steps, "seed": 0, "progress": False, "device": "cpu", "learning_rate": 1e-2, **how}
    fit_table(folder / "table.csv", folder / "run", options, settings, model=model, **how)
    return FittedTable.load(folder / "run")
