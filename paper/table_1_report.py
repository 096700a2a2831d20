"""Table 1 as plain values, as Markdown and as CSV, from records. The table says why a cell is missing."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from benchmarks.machine import name_of
from benchmarks.markdown import markdown_table

from paper.cells import CellRecord, TableSettings, by_seed
from paper.recipe_files import Settings
from paper.scores import ENOUGH_SEEDS, estimate, mixture_scores, paired_difference

ABSENT = "not yet run"
OTHER_ROWS = {
    "redrawn": "Rows of {} are redrawn: they are not the published rows.",
    "partial": "{} has only a part of the published rows.",
}
NO_DATA = "cannot be rerun"
NOT_INSTALLED = "not installed"


def summarise(records: Sequence[CellRecord], settings: TableSettings, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that the table shows, as plain values."""
    titles = {name: model["title"] for name, model in (settings.models | settings.peers["models"]).items()}
    comparisons = settings.comparisons
    peers = settings.peers["models"]
    summary: dict[str, Any] = {
        "titles": titles,
        "not_installed": [name for name, peer in peers.items() if find_spec(peer["package"]) is None],
        "only": {name: model["only"] for name, model in settings.models.items() if "only" in model},
        "published_as": {name: model["published"] for name, model in settings.models.items() if "published" in model},
        "always_shown": [*(name for pair in comparisons["verdicts"] for name in pair), *peers],
        "datasets": {},
        **{kind: [] for kind in ("rows", "goals", "comparisons", "ablations", "relatives", "rivals")},
    }
    for dataset, about in settings.datasets.items():
        found = [record for record in records if record.cell.dataset == dataset]
        summary["datasets"][dataset] = {
            "published": about["published"],
            "left_out": None if found else left_out.get(dataset),
            "comparable": bool(found) and all(record.about["comparable"] for record in found),
            "provenance": found[0].about["provenance"] if found else None,
            "note": found[0].about["note"] if found else None,
        }
        rows = [row for model in titles if (row := _row(found, dataset, model)) is not None]
        summary["rows"] += rows
        refits = summary["datasets"][dataset]["refits"] = _spread_of_refits(rows)
        if summary["datasets"][dataset]["comparable"]:
            summary["goals"] += _goals(rows, [goal for goal in settings.goals if goal["dataset"] == dataset])
        pairs = [("comparisons", first, second) for first, second in comparisons["verdicts"]]
        against_ours = {"ablations": comparisons["ablations"], "relatives": comparisons["relatives"], "rivals": peers}
        pairs += [(kind, model, comparisons["base"]) for kind, models in against_ours.items() for model in models]
        for kind, first, second in pairs:
            if (pair := _pair(found, dataset, first, second, refits)) is not None:
                pair["paper"] = about["cubic_against_quadratic"] if kind == "comparisons" else None
                summary[kind].append(pair)
    return summary


def _row(records: Sequence[CellRecord], dataset: str, model: str) -> dict[str, Any] | None:
    found = list(by_seed(records, dataset, model).values())
    if not found:
        return None
    abouts = [record.about for record in found]
    scores = [record.scores for record in found]
    return {
        "dataset": dataset,
        "model": model,
        "test": asdict(estimate(scores)),
        "mixture": asdict(estimate([mixture_scores(scores)])) if len(found) > 1 else None,
        "validation": statistics.fmean(about["validation"] for about in abouts),
        "seeds": [about["seed"] for about in abouts],
        "parameters": abouts[0]["parameters"],
        "steps": round(statistics.fmean(about["steps"] for about in abouts)),
        "best_step": round(statistics.fmean(about["best_step"] for about in abouts)),
        "best_at_end": all(about["best_step"] == about["steps"] for about in abouts),
        "seconds": round(sum(about["seconds"] for about in abouts), 1),
        "stopped": sorted({about["stopped"] for about in abouts}),
        "weights": sorted({about["weights"] for about in abouts}),
        "commands": sorted({_without_limit(about["command"]) for about in abouts}),
        "hardware": sorted({name_of(about["machine"]) for about in abouts}),
        "processors": sorted({about["machine"]["gpu"] or "CPU" for about in abouts}),
        "lanes": max(about["machine"].get("lanes", 1) for about in abouts),
    }


def _spread_of_refits(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the standard deviation of a fit's mean over seeds, pooled over the models with several seeds."""
    spreads = [(len(row["seeds"]) - 1, row["test"]["spread"]) for row in rows if len(row["seeds"]) > 1]
    if not spreads:
        return None
    return math.sqrt(sum(n * spread**2 for n, spread in spreads) / sum(n for n, _ in spreads))


def _goals(rows: Sequence[Mapping[str, Any]], goals: Sequence[Settings]) -> list[dict[str, Any]]:
    """Compare means of fits, or mixtures of fits, with the goals."""
    by_model = {row["model"]: row for row in rows}
    found = []
    for goal in (goal for goal in goals if goal["model"] in by_model):
        row = by_model[goal["model"]]
        fits, mixed = len(row["seeds"]), goal["of"] == "mixture"
        if (test := row["mixture" if mixed else "test"]) is not None:
            of = f"mixture of {fits} fits" if mixed else "one fit" if fits == 1 else f"mean of {fits} fits"
            reached = [words for words in ("aim", "reach") if test["mean"] >= goal[words]]
            met = {"aim": "the aim", "reach": "the goal"}[reached[0]] if reached else "neither"
            scored = {"mean": test["mean"], "error": test["error"], "best_at_end": row["best_at_end"]}
            found.append({**goal, **scored, "of": of, "met": met})
    return found


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


def table_markdown(summary: Mapping[str, Any]) -> str:
    """Return the table in the paper's layout, then comparisons of models, then details of the fits."""
    against_ours = [_against_ours(summary, kind, heading) for kind, heading in AGAINST_OURS.items()]
    parts = [_layout(summary), _data(summary), _against_goals(summary), _missed_goals(summary), _as_published(summary)]
    parts += [_comparisons(summary), *against_ours]
    parts += [_mixtures(summary), _details(summary)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(heading: str, header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return a heading and a Markdown table; an empty string for a table without lines."""
    return f"{heading}\n\n{markdown_table(header, lines)}" if lines else ""


def _dataset_and_model(summary: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    return [row["dataset"].upper(), summary["titles"][row["model"]]]


def _nats(found: Mapping[str, float]) -> str:
    return f"{found['mean']:.2f} ± {found['error']:.2f}"


def _difference(pair: Mapping[str, float]) -> str:
    return f"{pair['mean']:+.3f} ± {pair['error']:.3f}"


def _layout(summary: Mapping[str, Any]) -> str:
    datasets = list(summary["datasets"])
    rows = {(row["dataset"], row["model"]): row for row in summary["rows"]}
    lines = []
    for model, title in summary["titles"].items():
        ours: list[str] = []
        for dataset in datasets:
            row, about = rows.get((dataset, model)), summary["datasets"][dataset]
            if dataset not in summary["only"].get(model, datasets):
                ours.append("")
            elif row is None:
                absent = NOT_INSTALLED if model in summary["not_installed"] else ABSENT
                ours.append(NO_DATA if about["left_out"] else absent)
            else:
                ours.append(_nats(row["test"]))
        if model in summary["always_shown"] or any((dataset, model) in rows for dataset in datasets):
            lines.append([title, *ours])
    for name, title in PUBLISHED_ROWS.items():
        lines.append([title, *(summary["datasets"][dataset]["published"].get(name, "") for dataset in datasets)])
    heading = "Test log likelihood in nats, ± two standard errors over the test rows; higher is better."
    heading += _other_rows(summary)
    return _section(heading, ["model", *map(str.upper, datasets)], lines)


PUBLISHED_ROWS = {
    "cubic-paper": "*published:* cubic coupling",
    "quadratic-paper": "*published:* quadratic coupling",
    "rational-quadratic": "*published:* rational-quadratic coupling",
    "maf": "*published:* MAF",
    "naf": "*published:* NAF",
    "cnf": "*published:* FFJORD",
    "tan": "*published:* TAN",
    "trade": "*published, later:* TraDE",
}


def described_provenance(provenance: str) -> str:
    """Return the provenance of a dataset's rows, with a warning if the rows are not the published ones.

    >>> described_provenance("redrawn"), described_provenance("partial")
    ('redrawn, so its rows are not the published rows', 'partial')
    """
    return "redrawn, so its rows are not the published rows" if provenance == "redrawn" else provenance


def _other_rows(summary: Mapping[str, Any]) -> str:
    """Return sentences about comparable datasets whose rows are redrawn or partial, after a space."""
    text = ""
    for provenance, sentence in OTHER_ROWS.items():
        about = summary["datasets"].items()
        names = [name.upper() for name, a in about if (a["provenance"], a["comparable"]) == (provenance, True)]
        text += " " + sentence.format(", ".join(names)) if names else ""
    return text


def _data(summary: Mapping[str, Any]) -> str:
    lines = []
    for dataset, about in summary["datasets"].items():
        if about["note"]:
            lines.append(f"- {dataset.upper()}: {described_provenance(about['provenance'])}. {about['note']}")
        elif about["left_out"]:
            lines.append(f"- {dataset.upper()}: not rerun, {about['left_out'].rstrip('.')}.")
        else:
            lines.append(f"- {dataset.upper()}: {ABSENT}.")
    return "\n".join(lines)


def _against_goals(summary: Mapping[str, Any]) -> str:
    lines = [
        [*_dataset_and_model(summary, row), row["of"], _nats(row), row["reach"], row["aim"], row["met"]]
        for row in summary["goals"]
    ]
    heading = "Goals: a goal is the score to reach, an aim is harder." + _other_rows(summary)
    return _section(heading, ["dataset", "model", "score of", "nats", "goal", "aim", "meets"], lines)


def _missed_goals(summary: Mapping[str, Any]) -> str:
    """Return a paragraph for each missed goal, with the note of the recipe on possible reasons."""
    paragraphs = []
    for row in (row for row in summary["goals"] if row["met"] == "neither"):
        dataset, model = _dataset_and_model(summary, row)
        missing = row["reach"] - row["mean"]
        text = f"**A goal missed**: on {dataset}, {model}: {row['mean']:.2f}, {missing:.2f} nats below the goal."
        if row.get("best_at_end"):  # older records do not have this key
            text += " The validation score was best at the last step, so more steps may help."
        paragraphs.append(" ".join([text, *([row["note"]] if "note" in row else [])]))
    return "\n\n".join(paragraphs)


def _as_published(summary: Mapping[str, Any]) -> str:
    """Compare the paper's models with their published scores, on datasets with comparable test rows."""
    lines = []
    named = summary.get("published_as", {})  # older records have no published names
    for row in summary["rows"]:
        about = summary["datasets"][row["dataset"]]
        published = about["published"].get(named.get(row["model"]))
        if published and about["comparable"]:
            difference = f"{row['test']['mean'] - float(published.split()[0]):+.2f}"
            steps = [f"{row[name]:,}" for name in ("steps", "best_step")]
            lines.append([*_dataset_and_model(summary, row), _nats(row["test"]), published, difference, *steps])
    heading = "The paper's models as written, beside their published scores." + _other_rows(summary)
    return _section(heading, ["dataset", "model", "ours", "published", "difference", "steps", "best step"], lines)


def _comparisons(summary: Mapping[str, Any]) -> str:
    lines = []
    for pair in summary["comparisons"]:
        dataset, models = pair["dataset"], f"{pair['first']} - {pair['second']}"
        comparable = summary["datasets"][dataset]["comparable"]
        paper = pair["paper"] if comparable else "not comparable: not its test rows"
        lines.append([dataset.upper(), models, _difference(pair), pair["seeds"], pair["verdict"], paper])
    heading = (
        "Cubic minus quadratic, paired over test rows, ± two standard errors. The error includes the spread of refits. "
        f"With {ENOUGH_SEEDS} seeds or more, this spread is estimated from the pair. With fewer seeds, it is at least "
        f"the spread of all models with several seeds on the same dataset ({_refits(summary)})."
    )
    header = ["dataset", "paired difference of", "nats", "seeds", "our verdict on the first", "the paper's verdict"]
    return _section(heading, header, lines)


def _refits(summary: Mapping[str, Any]) -> str:
    known = {dataset: about["refits"] for dataset, about in summary["datasets"].items() if about["refits"] is not None}
    if not known:
        return "no model has several seeds"
    return "standard deviation " + ", ".join(f"{spread:.2f} on {name.upper()}" for name, spread in known.items())


AGAINST_OURS = {
    "ablations": "Variations of our cubic coupling minus our cubic coupling, with errors as above.",
    "relatives": "Other layers in the same architecture minus our cubic coupling.",
    "rivals": "Other packages minus our cubic coupling, on the same arrays, with each package's own initialisation. A "
    "fit that ended by its time budget (time_budget) took fewer steps than planned, and fewer still on a shared "
    "machine.",
}


def _against_ours(summary: Mapping[str, Any], kind: str, heading: str) -> str:
    rows = {(row["dataset"], row["model"]): row for row in summary["rows"]}
    header = ["dataset", "model", "paired difference, nats", "seeds", "the model is"]
    if kind == "rivals":
        header += ["steps", "ended by"]
    lines = []
    for pair in summary[kind]:
        row = rows[pair["dataset"], pair["first"]]
        line = [*_dataset_and_model(summary, row), _difference(pair), pair["seeds"], pair["verdict"]]
        line += [f"{row['steps']:,}", ", ".join(row["stopped"])]
        lines.append(line[: len(header)])
    return _section(heading, header, lines)


def _mixtures(summary: Mapping[str, Any]) -> str:
    lines = [
        [*_dataset_and_model(summary, row), len(row["seeds"]), f"{row['test']['spread']:.2f}", _nats(row["mixture"])]
        for row in summary["rows"]
        if row["mixture"]
    ]
    heading = "Models with several seeds: the spread of refits, and the equal mixture of all fits."
    return _section(heading, ["dataset", "model", "seeds", "standard deviation over seeds", "their mixture"], lines)


def _details(summary: Mapping[str, Any]) -> str:
    lines = [
        [
            *_dataset_and_model(summary, row),
            ", ".join(map(str, row["seeds"])),
            f"{row['validation']:.3f}",
            f"{row['parameters']:,}",
            f"{row['steps']:,}",
            f"{row['seconds'] / 60:.1f}",
            ", ".join(row["processors"]),
            row["lanes"],
            ", ".join(row["stopped"]),
            ", ".join(row["weights"]),
        ]
        for row in summary["rows"]
    ]
    minutes = ["minutes, all seeds", "on", "processes at once"]
    header = ["dataset", "model", "seeds", "validation, nats", "parameters", "steps", *minutes, "ended by", "weights"]
    shared = " Fits that shared a machine with other processes took longer than they would have alone."
    heading = "Details of the fits." + (shared if any(row["lanes"] > 1 for row in summary["rows"]) else "")
    return _section(heading, header, lines)
