"""Table 1 as plain values, from the records of its cells."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.machine import name_of

from paper.cells import CellRecord, TableSettings, by_seed
from paper.data import PUBLISHED
from paper.scores import carried_over, estimate, mixture_scores, paired_difference

CONTROL = "gaussian"  # the model whose published score carries the scores on redrawn rows over
OUT_OF_TIME = "time_budget"  # how a fit ended that took fewer steps than its schedule has

Row = dict[str, Any]


def summarise(records: Sequence[CellRecord], settings: TableSettings, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that the page of the table shows.

    Fits that the time limit stopped have not converged. They are in ``stopped``, without scores, and nowhere else.
    """
    trained = [record for record in records if record.about["stopped"] != OUT_OF_TIME]
    titles = {name: model["title"] for name, model in (settings.models | settings.peers["models"]).items()}
    summary: dict[str, Any] = {
        "titles": titles,
        "stopped": [_stopped(record) for record in records if record.about["stopped"] == OUT_OF_TIME],
        "datasets": {},
        **{kind: [] for kind in ("rows", "layers", "comparisons", "ablations", "relatives", "rivals")},
    }
    chosen: dict[str, dict[str, str]] = {}  # dataset -> title of a line -> model
    for dataset, about in settings.datasets.items():
        found = [record for record in trained if record.cell.dataset == dataset]
        rows = [row for model in titles if (row := _row(found, dataset, model)) is not None]
        refits = _spread_of_refits(rows)
        summary["datasets"][dataset] = {
            "published": about["published"],
            "left_out": None if found else left_out.get(dataset),
            "comparable": bool(found) and all(record.about["comparable"] for record in found),
            "provenance": found[0].about["provenance"] if found else None,
            "note": found[0].about["note"] if found else None,
            "refits": refits,
        }
        _carry_over(rows, found, dataset, about["published"].get(CONTROL))
        summary["rows"] += rows
        chosen[dataset] = {line["title"]: _best(rows, line.get("models", ())) for line in settings.table}
        for kind, first, second in _pairs(settings, chosen[dataset]):
            if (pair := _pair(found, dataset, first, second, refits)) is not None:
                pair["paper"] = about["cubic_against_quadratic"] if kind == "comparisons" else None
                summary[kind].append(pair)
    summary["lines"] = [
        {
            "name": line.get("name"),
            "title": line["title"],
            "published": line.get("published"),
            "candidates": list(line.get("models", ())),
            "models": {dataset: lines[line["title"]] for dataset, lines in chosen.items() if lines[line["title"]]},
        }
        for line in settings.table
    ]
    return summary


def _pairs(settings: TableSettings, chosen: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (kind of comparison, first model, second model) of one dataset."""
    comparisons = settings.comparisons
    by_name = {line["name"]: chosen[line["title"]] for line in settings.table if "name" in line}
    pairs = [("comparisons", first, second) for first, second in comparisons["verdicts"]]
    pairs += [("layers", by_name.get(first, ""), by_name.get(second, "")) for first, second in comparisons["lines"]]
    against_base = {
        "ablations": comparisons["ablations"],
        "relatives": comparisons["relatives"],
        "rivals": settings.peers["models"],
    }
    return pairs + [(kind, model, comparisons["base"]) for kind, models in against_base.items() for model in models]


def _best(rows: Sequence[Row], models: Sequence[str]) -> str:
    """Return the model with the best validation score, or an empty string if there is none."""
    rows = [row for row in rows if row["model"] in models]
    return max(rows, key=lambda row: row["validation"])["model"] if rows else ""


def _row(records: Sequence[CellRecord], dataset: str, model: str) -> Row | None:
    found = list(by_seed(records, dataset, model).values())
    if not found:
        return None
    abouts = [record.about for record in found]
    scores = [record.scores for record in found]
    return {
        "dataset": dataset,
        "model": model,
        "test": asdict(estimate(scores)),
        "carried": None,
        "mixture": asdict(estimate([mixture_scores(scores)])) if len(found) > 1 else None,
        "validation": statistics.fmean(about["validation"] for about in abouts),
        "seeds": [about["seed"] for about in abouts],
        "parameters": abouts[0]["parameters"],
        "steps": round(statistics.fmean(about["steps"] for about in abouts)),
        "best_step": round(statistics.fmean(about["best_step"] for about in abouts)),
        "seconds": round(sum(about["seconds"] for about in abouts), 1),
        "stopped": sorted({about["stopped"] for about in abouts}),
        "weights": sorted({about["weights"] for about in abouts}),
        "commands": sorted({_without_limit(about["command"]) for about in abouts}),
        "hardware": sorted({name_of(about["machine"]) for about in abouts}),
        "processors": sorted({about["machine"]["gpu"] or "CPU" for about in abouts}),
        "lanes": max(about["machine"].get("lanes", 1) for about in abouts),
    }


def _stopped(record: CellRecord) -> Row:
    about = record.about
    return {
        "dataset": record.cell.dataset,
        "model": record.cell.model,
        "steps": about["steps"],
        "planned": about["settings"]["training"]["steps"],
        "seconds": about["seconds"],
        "hardware": name_of(about["machine"]),
    }


def _carry_over(rows: Sequence[Row], records: Sequence[CellRecord], dataset: str, published: str | None) -> None:
    """Estimate the scores on the published rows from the scores on redrawn rows, for all models but the control."""
    control = by_seed(records, dataset, CONTROL)
    if published is None or not control or any(record.about["provenance"] != "redrawn" for record in records):
        return
    known = next(iter(control.values())).scores  # the same for every seed
    for row in (row for row in rows if row["model"] != CONTROL):
        scores = [record.scores for record in by_seed(records, dataset, row["model"]).values()]
        row["carried"] = asdict(carried_over(scores, known, number(published), PUBLISHED[dataset].test))


def number(published: str) -> float:
    """Return the number of a published score.

    >>> number("157.24 ± 0.28")
    157.24
    """
    return float(published.split()[0])


def _spread_of_refits(rows: Sequence[Row]) -> float | None:
    """Return the standard deviation of a fit's mean over seeds, pooled over the models with several seeds."""
    spreads = [(len(row["seeds"]) - 1, row["test"]["spread"]) for row in rows if len(row["seeds"]) > 1]
    if not spreads:
        return None
    return math.sqrt(sum(n * spread**2 for n, spread in spreads) / sum(n for n, _ in spreads))


def _without_limit(command: str) -> str:
    """Remove --seconds from a command: the time limit of a call does not change the result of a cell."""
    return re.sub(r" --seconds \S+", "", command)


def _pair(
    records: Sequence[CellRecord], dataset: str, first: str, second: str, refits: float | None
) -> dict[str, Any] | None:
    one, other = ({s: r.scores for s, r in by_seed(records, dataset, model).items()} for model in (first, second))
    difference = paired_difference(one, other, refits)
    if difference is None:
        return None
    return {"dataset": dataset, "first": first, "second": second, **difference.as_dict()}


def table_csv(records: Sequence[CellRecord]) -> list[dict[str, Any]]:
    """Return one line for each cell."""
    names = ("dataset", "model", "seed", "validation", "parameters", "steps", "best_step", "weights", "stopped")
    return [
        {
            **{name: record.about[name] for name in names},
            "test": record.about["test"]["mean"],
            "two_standard_errors": record.about["test"]["error"],
            "seconds": record.about["seconds"],
            "provenance": record.about["provenance"],
        }
        for record in records
    ]
