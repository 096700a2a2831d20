"""The page of results from the records: Markdown tables, and one picture for each table of data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.synthetic.records import MODELS, Record

INTRODUCTION = """# Generators of tables

This page compares rows sampled by cubicflow (`cubicflow fit` and `cubicflow sample`), by SDV and by mostlyai-engine.
Each generator has its default settings and its own environment. In Magic, Shoppers, diamonds and penguins, a random
nine tenths of the rows are training rows. Adult comes with test rows. Every generator is fitted to the training rows,
and draws as many samples as there are training rows.

`cubicflow fit` chooses settings by the number of rows. This choice was tuned by the log likelihood of validation rows.
In Magic and Shoppers, these validation rows were a part of the training rows. Penguins and other small tables were used
as well. Two defaults were changed after a look at samples of Shoppers and Adult: the tails of columns have finer bins,
and 0 is the lower limit of whole numbers whose smallest value is near 0.

- *detection*: XGBoost's default classifier separates training rows from samples (words one-hot, three shuffled
  stratified folds). The score is 1 - (2 max(AUC, 1/2) - 1). At 1 the classifier cannot tell samples from training rows;
  at 0 it separates them perfectly.
- *held out*: the same score with test rows in place of training rows, and as many samples as test rows.
- *shape*, *trend*: SDMetrics' scores of columns, and of pairs of columns. 1 is best, but chance alone keeps samples of
  this size below 1. Each section gives the scores of training rows drawn with replacement. A perfect generator would
  score a little lower, because its rows are new.
- *copies*: the share of samples that equal a training row in every cell. The number in brackets is the
  share of test rows that equal a training row.
- *impossible*: the share of samples with a pair of words that no row of the table has, although the pair would be
  expected in seven rows or more if the columns were independent.
- *contradictory*: the share of samples that break a dependency. In a dependency, one column determines another column
  in every row of the table.
- *seconds*: wall-clock and processor seconds of the fit, with one thread. The machines were shared, so processor
  seconds are the better measure. The fits ran on several machines of different speed, so the seconds of two generators
  can be compared only roughly. The records name the machines.
"""

COMMAND = "python -m benchmarks.synthetic_tables FOLDER --judge PYTHON --sdv PYTHON --mostlyai PYTHON"
ROWS = ("real", "sampled")
HEAD = ("generator", "detection", "held out", "shape", "trend", "copies", "impossible", "contradictory", "seconds")


def page(records: Sequence[Record], tables: Sequence[str]) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, "\n".join(_best_lines(records, tables))]
    for table in tables:
        found = [record for record in records if record["table"] == table]
        if found:
            parts.append("\n".join(_table_lines(table, found)))
    parts.append("\n".join(_about(records) + _not_run(records, tables)))
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)


def markdown_row(cells: Sequence[str]) -> str:
    """
    >>> markdown_row(["a", "b"])
    '| a | b |'
    """
    return f"| {' | '.join(cells)} |"


def _best_lines(records: Sequence[Record], tables: Sequence[str]) -> list[str]:
    """Return the table of detection scores, a line for each generator and a column for each table."""
    scores = {(r["table"], r["model"]): r["judged"]["detection"]["score"] for r in records if "judged" in r}
    models = [model for model in MODELS if any(found == model for _, found in scores)]
    there = [table for table in tables if any(found == table for found, _ in scores)]
    lines = ["## Detection score", "", markdown_row(["", *there]), markdown_row(["---"] * (len(there) + 1))]
    for model in models:
        cells = [_score(scores.get((table, model)), _best(scores, table)) for table in there]
        lines.append(markdown_row([MODELS[model], *cells]))
    return lines


def _best(scores: dict[tuple[str, str], float], table: str) -> float:
    return max(score for (found, _), score in scores.items() if found == table)


def _score(score: float | None, best: float) -> str:
    if score is None:
        return "not run"
    return f"**{score:.3f}**" if score == best else f"{score:.3f}"


def _table_lines(table: str, records: Sequence[Record]) -> list[str]:
    """Return the section of one table."""
    lines = [f"## {table.capitalize()}", "", markdown_row(HEAD), markdown_row(["---"] * len(HEAD))]
    lines += [markdown_row(_cells(record)) for record in records if "judged" in record]
    judged = [record for record in records if "judged" in record]
    for record in records:
        if "failed" in record:
            lines += ["", f"{MODELS[record['model']]} could not be run: {record['failed']}"]
    lines += _resampled(judged)
    for record in judged:
        if (mass := record["log_mass"]) is not None:
            lines += ["", _log_mass(record["model"], mass)]
    lines += _frequent(judged)
    lines += ["", f"![{table}: detection and columns](synthetic_tables/{table}.png)"] if judged else []
    return lines


def _cells(record: Record) -> list[str]:
    found = record["judged"]
    copies, seconds = found["copies"], record["seconds"]["fit"]
    contradictory = found["contradictions"]
    return [
        MODELS[record["model"]],
        f"{found['detection']['score']:.3f}",
        f"{found['detection_held_out']['score']:.3f}",
        f"{found['sdmetrics']['shape']:.4f}",
        f"{found['sdmetrics']['trend']:.4f}",
        f"{_percent(copies['sampled'])} ({_percent(copies['held_out'])})",
        _percent(found["impossible_pairs"]["share"]) if found["impossible_pairs"]["pairs"] else "-",
        _percent(contradictory["share"]) if contradictory["rules"] else "-",
        f"{seconds['wall']:.0f}, {seconds['processor']:.0f}",
    ]


def _percent(share: float) -> str:
    """
    >>> _percent(0.0123), _percent(0.0)
    ('1.2 %', '0 %')
    """
    return f"{100 * share:.1f} %" if share else "0 %"


def _resampled(records: Sequence[Record]) -> list[str]:
    """Return a line with the scores of training rows drawn with replacement, if a record has them."""
    found = [record["judged"]["resampled"] for record in records if "resampled" in record["judged"]]
    if not found:
        return []
    shape, trend = found[0]["shape"], found[0]["trend"]
    return ["", f"Training rows drawn with replacement: shape {shape:.4f}, trend {trend:.4f}."]


def _log_mass(model: str, mass: Record) -> str:
    line = f"{MODELS[model]}: mean log probability of {mass['of']} {mass['mean']:.3f} ± {mass['error']:.3f} nats over"
    line += f" {mass['rows']:,} test rows"
    return line + (f"; independent columns {mass['independent']:.3f}." if mass.get("independent") is not None else ".")


def _frequent(records: Sequence[Record]) -> list[str]:
    """Return the table of frequent numbers' shares, and of samples below 0 in columns without numbers below 0."""
    columns = {name: found[:2] for record in records for name, found in record["judged"]["frequent_numbers"].items()}
    if not columns:
        return []
    lines = [
        "",
        "Some numbers are held by at least a fifth of the training rows. The table shows their shares among training",
        "rows and samples. *Below 0* is the share of samples with a number below 0 in a column without such numbers.",
        "",
    ]
    names = [f"{name} = {value[0]:g}" for name, value in columns.items()]
    lines += [markdown_row(["", *names, "below 0"]), markdown_row(["---"] * (len(names) + 2))]
    lines.append(markdown_row(["training rows", *(_percent(value[1]) for value in columns.values()), "0 %"]))
    for record in records:
        shares = record["judged"]["frequent_numbers"]
        cells = [_percent(shares[name][2]) for name in columns]
        lines.append(markdown_row([MODELS[record["model"]], *cells, _percent(record["judged"]["negatives"])]))
    return lines


def _about(records: Sequence[Record]) -> list[str]:
    """Return the section on the runs: command, machines, versions, and settings that limit training."""
    lines = ["## How these were run", "", f"`{COMMAND}`", "Each PYTHON is the interpreter of a separate environment."]
    machines = sorted({f"{r['machine']['processor']}, threads: {r['threads']}" for r in records if "judged" in r})
    lines += [f"Machine: {'; '.join(machines)}. Records with their commands are in `results/synthetic-tables`."]
    packages: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.get("versions", {}).items():
            packages.setdefault(name, set()).add(version)
    versions = ", ".join(f"{name} {' and '.join(sorted(packages[name]))}" for name in sorted(packages))
    lines += [f"Versions: {versions}."]
    limits = [
        f"{MODELS[r['model']]} on {r['table']} {name} = {r['settings'][name]:g}"
        for r in records
        for name in ("epochs", "max_training_time")
        if r.get("settings", {}).get(name) is not None
    ]
    if limits:
        lines += ["", f"Settings of peers that limit training: {'; '.join(limits)}."]
    return lines


def _not_run(records: Sequence[Record], tables: Sequence[str]) -> list[str]:
    """Return a line that names the generators and tables without a record."""
    there = {(record["table"], record["model"]) for record in records}
    missing = []
    for model, name in MODELS.items():
        lacking = [table for table in tables if (table, model) not in there]
        missing += [f"{name} on {', '.join(lacking)}"] if lacking else []
    return ["", f"Not run yet: {'; '.join(missing)}. To run the missing fits, repeat the command."] if missing else []


def draw(records: Sequence[Record], table: str, path: Path) -> None:
    """Draw the detection scores, and three columns of the real and the sampled rows."""
    import matplotlib.pyplot as plt

    found = [record for record in records if record["table"] == table and "judged" in record]
    shown = list(found[0]["judged"]["marginals"])
    figure, axes = plt.subplots(1, 1 + len(shown), figsize=(4 * (1 + len(shown)), 3), layout="constrained")
    colors = {model: f"C{i}" for i, model in enumerate(MODELS)}
    height = 0.38
    for place, record in enumerate(reversed(found)):
        color = colors[record["model"]]
        scores = [record["judged"][name]["score"] for name in ("detection", "detection_held_out")]
        axes[0].barh(place + height / 2, scores[0], height, color=color)
        axes[0].barh(place - height / 2, scores[1], height, color=color, alpha=0.4)
    axes[0].set(xlim=(0, 1), title="detection score (pale: held-out rows)")
    axes[0].set_yticks(range(len(found)), [MODELS[record["model"]] for record in reversed(found)])
    for axis, name in zip(axes[1:], shown, strict=True):
        _draw_column(axis, name, found, colors)
    axes[-1].legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _draw_column(axis: Any, name: str, records: Sequence[Record], colors: dict[str, str]) -> None:
    """Draw one column: the real rows as bars, the rows of each generator as a line or as dots."""
    columns = {record["model"]: record["judged"]["marginals"][name] for record in records}
    first = columns[records[0]["model"]]
    words = first.get("words")
    for model, column in columns.items():
        edges = column.get("edges") or [i - 0.5 for i in range(len(column["words"]) + 1)]
        widths = [high - low for low, high in pairwise(edges)]  # records may differ in their bins
        real, sampled = ([share / width for share, width in zip(column[rows], widths, strict=True)] for rows in ROWS)
        if column is first:
            axis.stairs(real, edges, fill=True, color="0.85", label="training rows")
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        style = {"marker": "o", "linestyle": "none", "markersize": 4} if words else {"linewidth": 1}
        axis.plot(middles, sampled, color=colors[model], label=MODELS[model], **style)
    axis.set(title=name, yticks=[])
    if words:
        axis.set_xticks(range(len(words)), words, rotation=90, fontsize="x-small")
