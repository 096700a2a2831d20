"""A service that scores and samples raw rows with a graph, its JSON and a runtime, without cubicflow.

The code uses only NumPy and the standard library, and follows the format in docs/export.md. Rows are dicts of lists:
strings, numbers, and None for a gap. Dates are whole numbers in the unit of the column's type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

Rows = Mapping[str, Sequence[Any]]
Graph = Callable[[dict[str, np.ndarray]], list[np.ndarray]]
QUANTILE, ERFC = np.vectorize(NormalDist().inv_cdf), np.vectorize(math.erfc)
UNSEEN = -1


def plain_numbers(column: dict[str, Any], values: Sequence[Any]) -> np.ndarray:
    """Return codes and values: NaN for a gap, inf for a value that does not belong to the column."""
    found = np.full(len(values), np.inf)
    for i, value in enumerate(values):
        if value is None or value != value:
            found[i] = np.nan
        elif "levels" in column:
            found[i] = column["levels"].index(value) if value in column["levels"] else np.inf
        elif "grid" in column:
            grid = column["grid"]
            scaled = value * 10 ** grid["decimals"]
            offset = round(scaled) - grid["origin"]
            on_grid = abs(round(scaled) - scaled) <= 1e-6 and offset % grid["step"] == 0
            between = (scaled - grid["origin"]) / grid["step"] if column["role"] == "context" else np.inf
            found[i] = offset // grid["step"] if on_grid else between
        else:
            found[i] = value
    return found


def raw_value(column: dict[str, Any], y: float) -> Any:
    """Return the value of a drawn plain number."""
    if math.isnan(y):
        return None
    if "levels" in column:
        return column["levels"][min(max(math.floor(y), 0), len(column["levels"]) - 1)]
    if "grid" in column:
        grid = column["grid"]
        whole = grid["origin"] + grid["step"] * math.floor(y)
        return whole / 10 ** grid["decimals"] if grid["decimals"] else whole
    return y if column.get("decimals") is None else round(y, column["decimals"])


# --- a flow: maps of columns to the real line ---


def tables_of(map: dict[str, Any]) -> tuple[np.ndarray, ...]:
    edges, inner = np.array(map["edges"], float), np.array(map["masses"]) * (1 - map["below"] - map["above"])
    lower = map["below"] + np.concatenate([[0.0], np.cumsum(inner)])
    upper = map["above"] + np.concatenate([np.cumsum(inner[::-1])[::-1], [0.0]])
    return edges, inner / np.diff(edges), lower, upper


def quantile(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    smaller = np.minimum(lower, upper)
    z = np.where(smaller > 0, QUANTILE(np.clip(smaller, 1e-300, 0.5)), -np.inf)
    return np.where(lower <= upper, z, -z)


def to_line(map: dict[str, Any], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return z and log dz/dy."""
    if map["type"] == "histogram":
        edges, slopes, lower, upper = tables_of(map)
        bin = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(slopes) - 1)
        inside = np.clip(y, edges[0], edges[-1])
        low = lower[bin] + slopes[bin] * (inside - edges[bin])
        z = quantile(low, upper[bin + 1] + slopes[bin] * (edges[bin + 1] - inside))
        log_slope = np.log(slopes[bin]) + z * z / 2 + math.log(2 * math.pi) / 2
        knots = quantile(lower[[0, -1]], upper[[0, -1]])
        for end, side in ((0, "below"), (-1, "above")):
            if map[side]:
                outside = y < edges[0] if end == 0 else y > edges[-1]
                rate = 1 / (abs(knots[end]) * map[f"reach_{side}"])
                z = np.where(outside, knots[end] + rate * (y - edges[end]), z)
                log_slope = np.where(outside, math.log(rate), log_slope)
        return z, log_slope
    unit, std = map.get("unit", 1.0), map.get("std", 1.0)
    v = map.get("start", 0.0) + unit * y
    shape = map.get("shape", "identity")
    if shape == "asinh":
        w = (v - map.get("centre", 0.0)) / map.get("scale", 1.0)
        t, slope = np.arcsinh(w), -np.log(np.hypot(1.0, w)) - math.log(map.get("scale", 1.0))
    else:
        low = 0.0 if shape == "log" else map.get("low")
        high = None if shape == "log" else map.get("high")
        above = 0.0 * v if low is None else np.log(v - low)
        below = 0.0 * v if high is None else np.log(high - v)
        span = 0.0 if low is None or high is None else math.log(high - low)
        t, slope = (v, 0.0 * v) if low is None and high is None else (above - below, span - above - below)
    return (t - map.get("mean", 0.0)) / std, slope + math.log(unit) - math.log(std)


def from_line(map: dict[str, Any], z: np.ndarray) -> np.ndarray:
    if map["type"] != "histogram":
        assert map.get("shape", "identity") == "identity"  # the tests need no other shape
        t = map.get("mean", 0.0) + map.get("std", 1.0) * z
        return (t - map.get("start", 0.0)) / map.get("unit", 1.0)
    edges, slopes, lower, upper = tables_of(map)
    knots = quantile(lower, upper)
    bin = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, len(slopes) - 1)
    left = edges[bin] + (ERFC(-z * math.sqrt(0.5)) / 2 - lower[bin]) / slopes[bin]
    right = edges[bin + 1] - (ERFC(z * math.sqrt(0.5)) / 2 - upper[bin + 1]) / slopes[bin]
    y = np.clip(np.where(z < 0, left, right), edges[bin], np.nextafter(edges[bin + 1], -np.inf))
    for end, side in ((0, "below"), (-1, "above")):
        if map[side]:
            outside = z < knots[0] if end == 0 else z > knots[-1]
            y = np.where(outside, edges[end] + (z - knots[end]) * abs(knots[end]) * map[f"reach_{side}"], y)
    return y


# --- a model of columns: cells ---


def scale_tables(scale: dict[str, Any]) -> tuple[np.ndarray, ...]:
    edges, masses = np.array(scale["edges"], float), np.array(scale["masses"], float)
    lower = scale["below"] + np.concatenate([[0.0], np.cumsum(masses)])
    upper = scale["above"] + np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
    return edges, masses / np.diff(edges), lower, upper


def distances(scale: dict[str, Any], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges, slopes, lower, upper = scale_tables(scale)
    bin = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(slopes) - 1)
    inside = np.clip(y, edges[0], edges[-1])
    low = lower[bin] + slopes[bin] * (inside - edges[bin])
    high = upper[bin + 1] + slopes[bin] * (edges[bin + 1] - inside)
    under, over = np.maximum(edges[0] - y, 0), np.maximum(y - edges[-1], 0)
    tail_low = scale["below"] * np.exp(-under / scale["reach_below"])
    tail_high = scale["above"] * np.exp(-over / scale["reach_above"])
    low = np.where(under > 0, tail_low, np.where(over > 0, 1 - tail_high, low))
    return low, np.where(over > 0, tail_high, np.where(under > 0, 1 - tail_low, high))


def log_size(scale: dict[str, Any], y: np.ndarray, is_point: bool) -> np.ndarray:
    """Return the log of the slope at a point, or of the mass of the step from y to y + 1."""
    edges, slopes, _, _ = scale_tables(scale)
    half = 0.0 if is_point else 0.5
    bin = np.clip(np.searchsorted(edges, y + half, side="right") - 1, 0, len(slopes) - 1)
    with np.errstate(divide="ignore"):
        found = np.log(slopes[bin])
        for side, beyond in (("below", edges[0] - y - half), ("above", y + half - edges[-1])):
            reach = scale[f"reach_{side}"]
            first = -math.log(reach) if is_point else math.log(-math.expm1(-1 / reach))
            found = np.where(beyond > 0, np.log(scale[side]) - (beyond - half) / reach + first, found)
    return found


def cells_of(cells: dict[str, Any], y: np.ndarray) -> np.ndarray:
    """Return the cells of plain numbers: (N,) -> (N, 4)."""
    found = np.full((len(y), 4), 0.25)
    known = np.isfinite(y)
    if cells["form"] == "words":
        outcomes = max(cells["kinds"]) + 1
        level = np.where(known, y, 0).astype(int)
        kind, size = np.array(cells["kinds"])[level], np.log(np.array(cells["shares"]))[level]
    else:
        atoms = np.array(sorted(cells["atoms"]))
        outcomes = 1 + len(atoms)
        value = np.where(known, y, cells["scale"]["edges"][0])
        last = value if cells["is_point"] else value + 1
        scale = cells["scale"]
        place = np.searchsorted(atoms, value)
        is_atom = known & np.isin(value, atoms)
        size = log_size(scale, value, cells["is_point"])
        lowest = -np.inf if scale["below"] else scale["edges"][0]
        highest = np.inf if scale["above"] else scale["edges"][-1]
        usual = known & ~is_atom & (value >= lowest) & (last <= highest) & np.isfinite(size)
        kind = np.where(is_atom, 1 + place, 0)
        size = np.where(usual, size, 0)
        known = usual | is_atom
        found[:, 1] = np.where(known, distances(scale, value)[0], 0.25)
        found[:, 2] = np.where(known, distances(scale, last)[1], 0.25)
    gap = outcomes if cells["gaps"] else UNSEEN
    found[:, 0] = np.where(known, kind, np.where(np.isnan(y), gap, UNSEEN))
    settled = np.where(known, size, 0) + math.log1p(-cells["unseen"])
    found[:, 3] = np.where(found[:, 0] == UNSEEN, math.log(cells["unseen"]), settled)
    return found


def drawn_number(cells: dict[str, Any], kind: int, u: float, draw: float) -> float:
    """Return the plain number of a drawn outcome."""
    if cells["form"] == "words":
        if cells["gaps"] and kind == max(cells["kinds"]) + 1:
            return math.nan
        order = np.argsort(cells["kinds"], kind="stable")
        ends = np.cumsum(np.array(cells["shares"])[order])
        return float(order[min(np.searchsorted(ends, kind + draw, side="right"), len(order) - 1)])
    atoms, scale = sorted(cells["atoms"]), cells["scale"]
    if kind > len(atoms):
        return math.nan
    if kind:
        return float(atoms[kind - 1])
    edges, slopes, lower, _ = scale_tables(scale)
    if u < scale["below"]:
        y = edges[0] + scale["reach_below"] * math.log(max(u, 2.0**-1022) / scale["below"])
    elif 1 - u < scale["above"]:
        y = edges[-1] - scale["reach_above"] * math.log(max(1 - u, 2.0**-53) / scale["above"])
    else:
        bin = min(max(int(np.searchsorted(lower, u, side="right")) - 1, 0), len(slopes) - 1)
        y = edges[bin] + ((u - lower[bin]) / slopes[bin] if slopes[bin] > 0 else 0.0)
        y = min(max(y, edges[bin]), np.nextafter(edges[bin + 1], -np.inf))
    return float(y) if cells["is_point"] else float(math.floor(y))


class Service:
    """A stand-in for a program in another language."""

    def __init__(self, encoding: Path, graph: Graph) -> None:
        self.about = json.loads(encoding.read_text(encoding="utf-8"))
        self.dtype = np.dtype(self.about["dtype"])
        assert (self.about["format"], self.about["version"]) == ("cubicflow-export", 1)
        self.columns = {column["name"]: column for column in self.about["columns"]}
        self.graph = graph

    def score(self, rows: Rows) -> np.ndarray:
        """Return the log likelihood of every row, in the data's own units."""
        names, given = self.about["features"], self.about["context"]
        y = {name: plain_numbers(self.columns[name], rows[name]) for name in [*names, *given]}
        return self._by_cells(y) if self.about["model"] == "columns" else self._by_flow(y, rows)

    def _by_cells(self, y: dict[str, np.ndarray]) -> np.ndarray:
        cells = self.about["cells"]
        inputs = {"cells": self._cells(y, self.about["features"])}
        if self.about["context"]:
            inputs["context"] = self._cells(y, self.about["context"])
        log_p = self.graph(inputs)[1].astype(float)
        assert set(cells) >= set(y)
        for rule in self.about["rules"]:
            place = self.about["features"].index(rule["dependent"])
            same = {_key(key): _key(value) for key, value in rule["pairs"]}
            for i, (first, second) in enumerate(zip(y[rule["determinant"]], y[rule["dependent"]], strict=True)):
                if _key(first) in same:
                    kept = math.log1p(-rule["slack"]) if same[_key(first)] == _key(second) else -np.inf
                    log_p[i, place] = np.logaddexp(kept, math.log(rule["slack"]) + log_p[i, place])
        return log_p.sum(1)

    def _cells(self, y: dict[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
        return np.concatenate([cells_of(self.about["cells"][name], y[name]) for name in names], 1).astype(self.dtype)

    def _by_flow(self, y: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
        names = self.about["features"]
        is_mass = np.array([self.columns[name]["counts_mass"] for name in names])
        context = {"context": self._context(y)} if self.about["context"] else {}
        scores = []
        for offset in self.about.get("offsets", [[]]):
            moved = np.stack([y[name] for name in names], axis=1)
            moved[:, is_mass] += np.array(offset)
            pairs = [to_line(self.columns[name]["map"], moved[:, i]) for i, name in enumerate(names)]
            x = np.stack([z for z, _ in pairs], axis=1).astype(self.dtype)
            scores.append(self.graph({"x": x, **context})[0] + sum(slope for _, slope in pairs))
        return np.logaddexp.reduce(scores, axis=0) - math.log(len(scores))

    def _context(self, y: dict[str, np.ndarray]) -> np.ndarray:
        parts = []
        for name in self.about["context"]:
            column = self.columns[name]
            if "levels" in column:
                parts.append(np.eye(len(column["levels"]))[y[name].astype(int)])
            else:
                parts.append(to_line(column["map"], y[name] + 0.5 * column["counts_mass"])[0][:, None])
        return np.concatenate(parts, axis=1).astype(self.dtype)

    def decoded(self, x: np.ndarray) -> list[dict[str, Any]]:
        """Return the rows of a flow's samples."""
        y = {name: from_line(self.columns[name]["map"], x[:, i]) for i, name in enumerate(self.about["features"])}
        return [{name: raw_value(self.columns[name], y[name][i]) for name in y} for i in range(len(x))]

    def drawn(self, noise: np.ndarray, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return samples of a model of columns as plain numbers, column by column, without context."""
        names, cells = self.about["features"], self.about["cells"]
        inputs = np.zeros((len(noise), 4 * len(names)), self.dtype)
        y: dict[str, np.ndarray] = {}
        rules = {rule["dependent"]: rule for rule in self.about["rules"]}
        for i, name in enumerate(names):
            outcomes, places = self.graph({"cells": inputs, "noise": noise})
            each = zip(outcomes[:, i].tolist(), places[:, i].tolist(), draws[:, i].tolist(), strict=True)
            y[name] = np.array([drawn_number(cells[name], *one) for one in each])
            if self.columns[name].get("decimals") is not None and "grid" not in self.columns[name]:
                y[name] = np.round(y[name], self.columns[name]["decimals"])
            if name in rules:
                same = {_key(key): value for key, value in rules[name]["pairs"]}
                known = zip(y[rules[name]["determinant"]], y[name], strict=True)
                ruled = [same.get(_key(first), own) for first, own in known]
                y[name] = np.array([math.nan if value is None else value for value in ruled])
            inputs[:, 4 * i : 4 * i + 4] = cells_of(cells[name], y[name])
        return y


def _key(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else float(number)


def raw(table: pa.Table) -> Rows:
    """Return rows as a service would have them: dates are days since 1970."""
    columns = {name: table.column(name) for name in table.column_names}
    columns = {name: c.cast(pa.int32()) if pa.types.is_date32(c.type) else c for name, c in columns.items()}
    return {name: column.to_pylist() for name, column in columns.items()}
