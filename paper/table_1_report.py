"""The page of table 1 in Markdown: the table beside the published scores, then every score and comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.markdown import markdown_table

from paper.scores import ENOUGH_SEEDS
from paper.table_1_summary import CONTROL, number

Summary = Mapping[str, Any]
NOT_RUN = "–"
NO_BREAK = "\u00a0"  # a space at which a browser does not break the line
REDRAWN = "redrawn, so its rows are not the published rows"


def table_markdown(summary: Summary) -> str:
    """Return the page: the table, then every score, comparisons of models, and details of the fits."""
    sections = [
        ("", f"# Table 1: density estimation\n\n{main_table(summary)}"),
        ("Redrawn rows", _redrawn_rows(summary)),
        ("Every score", _every_score(summary)),
        ("The paper's models and their published scores", _as_published(summary)),
        ("Cubic and quadratic splines", _comparisons(summary)),
        ("Ablations", _against_base(summary, "ablations")),
        ("Other layers", _against_base(summary, "relatives")),
        ("Other packages", _others(summary)),
        ("Mixtures of fits", _mixtures(summary)),
        ("The fits", _fits(summary)),
        ("Commands", _commands(summary)),
    ]
    return "\n\n".join(f"## {title}\n\n{text}" if title else text for title, text in sections if text) + "\n"


def main_table(summary: Summary) -> str:
    """Return the paper's table with our scores beside the published ones, and a line about the rows of each dataset."""
    scores = {(row["dataset"], row["model"]): row for row in summary["rows"]}
    columns = [
        (dataset, on_published)
        for dataset, about in summary["datasets"].items()
        for on_published in ((False, True) if about["provenance"] == "redrawn" else (True,))
    ]
    titles = {False: "{}, redrawn rows", True: "{}, published rows"}
    header = [
        titles[on_published].format(dataset.upper()) if (dataset, False) in columns else dataset.upper()
        for dataset, on_published in columns
    ]
    lines = []
    for line in summary["lines"]:
        if line["published"]:
            values = [_published(summary, *column, line["published"]) for column in columns]
            lines.append([line["title"], "published", *values])
        if line["models"]:
            values = [_rerun(scores.get((d, line["models"].get(d))), (d, False) in columns, p) for d, p in columns]
            lines.append(["" if line["published"] else line["title"], "**rerun**", *values])
    heading = (
        "Test log likelihood in nats, ± two standard errors over the test rows; higher is better. "
        f"{NOT_RUN} means not run. Of several settings, a rerun has the one with the best validation score."
    )
    lines = [[title, kind, *(value.replace(" ", NO_BREAK) for value in values)] for title, kind, *values in lines]
    return f"{heading}\n\n{markdown_table(['model', '', *header], lines)}\n\n{_data(summary)}"


def _published(summary: Summary, dataset: str, on_published: bool, name: str) -> str:
    return summary["datasets"][dataset]["published"].get(name, "") if on_published else ""


def _rerun(row: Mapping[str, Any] | None, redrawn: bool, on_published: bool) -> str:
    found = row and row["carried" if redrawn and on_published else "test"]
    return _nats(found) if found else "" if row else NOT_RUN


def _data(summary: Summary) -> str:
    lines = []
    for dataset, about in summary["datasets"].items():
        if about["note"]:
            lines.append(f"- {dataset.upper()}: {described_provenance(about['provenance'])}. {about['note']}")
        elif about["left_out"]:
            why = about["left_out"].partition(";")[0]  # the rest is the origin of the data
            lines.append(f"- {dataset.upper()}: not rerun, {why.rstrip('.')}.")
        else:
            lines.append(f"- {dataset.upper()}: not yet run.")
        if any(row["carried"] for row in summary["rows"] if row["dataset"] == dataset):
            lines[-1] += " The column of the published rows is an estimate from the scores on the redrawn rows."
    return "\n".join(lines)


def described_provenance(provenance: str) -> str:
    """Return the provenance of a dataset's rows, with a warning if the rows are not the published ones.

    >>> described_provenance("redrawn"), described_provenance("partial")
    ('redrawn, so its rows are not the published rows', 'partial')
    """
    return REDRAWN if provenance == "redrawn" else provenance


def _section(text: str, header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return a paragraph and a Markdown table; an empty string for a table without lines."""
    return f"{text}\n\n{markdown_table(header, lines)}".strip() if lines else ""


def _dataset_and_model(summary: Summary, row: Mapping[str, Any]) -> list[str]:
    return [row["dataset"].upper(), summary["titles"][row["model"]]]


def _nats(found: Mapping[str, float]) -> str:
    return f"{found['mean']:.2f} ± {found['error']:.2f}"


def _difference(pair: Mapping[str, float]) -> str:
    return f"{pair['mean']:+.3f} ± {pair['error']:.3f}"


def _redrawn_rows(summary: Summary) -> str:
    """Explain how scores on redrawn rows are carried over to the published rows."""
    lines = []
    for row in (row for row in summary["rows"] if row["model"] == CONTROL):
        about = summary["datasets"][row["dataset"]]
        provenance = described_provenance(about["provenance"])
        lines.append([row["dataset"].upper(), _nats(row["test"]), about["published"].get(CONTROL, ""), provenance])
    text = (
        "The score of a Gaussian with full covariance has no randomness but that of the rows. So the difference of our "
        "score and the published one shows how far our rows differ from the published ones. For redrawn rows, the "
        "Gaussian is a control variate: with the slope b of the regression of a model's scores on the Gaussian's, over "
        "test rows, the model's score is carried over to the published rows by adding b times this difference. The "
        "error is that of a difference of two means, over the published rows and over ours, of what the regression "
        "leaves. It belongs to the score of our fit on the published rows, so the error over rows of a published score "
        "does not add to it. We assume that the published rows are independent draws from the same images by the same "
        "recipe, and that the published Gaussian, fitted to its own draw of training rows, is ours."
    )
    return _section(text, ["dataset", "Gaussian, ours", "Gaussian, published", "our rows"], lines)


def _every_score(summary: Summary) -> str:
    lines = []
    for row in summary["rows"]:
        carried = row["carried"]
        relation = [_nats(carried), f"{carried['correlation']:.2f}"] if carried else ["", ""]
        validation = f"{row['validation']:.3f}"
        lines.append([*_dataset_and_model(summary, row), len(row["seeds"]), validation, _nats(row["test"]), *relation])
    text = "Means over the seeds. The correlation is that of the scores of test rows with the Gaussian's."
    header = ["dataset", "model", "seeds", "validation", "test", "test, carried over", "correlation"]
    return _section(text, header, lines)


def _as_published(summary: Summary) -> str:
    """Compare models with their published scores, on datasets with comparable test rows."""
    lines = []
    for row in summary["rows"]:
        about = summary["datasets"][row["dataset"]]
        published = about["published"].get(_published_name(summary, row["model"]))
        if published and about["comparable"] and row["model"] != CONTROL:
            ours = row["carried"] or row["test"]
            error = f" ± {ours['error']:.2f}" if row["carried"] else ""
            difference = f"{ours['mean'] - number(published):+.2f}{error}"
            steps = [f"{row[name]:,}" for name in ("steps", "best_step")]
            lines.append([*_dataset_and_model(summary, row), _nats(ours), published, difference, *steps])
    text = (
        "Scores on redrawn rows are carried over to the published rows. An error of a difference is that of carrying "
        "over. It does not contain the spread of refits."
    )
    return _section(text, ["dataset", "model", "ours", "published", "difference", "steps", "best step"], lines)


def _published_name(summary: Summary, model: str) -> str | None:
    """Return the name of the published scores with which a model's scores compare."""
    return next((line["published"] for line in summary["lines"] if model in line["candidates"]), None)


def _comparisons(summary: Summary) -> str:
    lines = []
    for pair in summary["comparisons"]:
        dataset, models = pair["dataset"], f"{pair['first']} - {pair['second']}"
        comparable = summary["datasets"][dataset]["comparable"]
        paper = pair["paper"] if comparable else "not comparable: not its test rows"
        lines.append([dataset.upper(), models, _difference(pair), pair["seeds"], pair["verdict"], paper])
    text = (
        "Cubic minus quadratic, paired over test rows, ± two standard errors. The error includes the spread of refits. "
        f"With {ENOUGH_SEEDS} seeds or more, this spread is estimated from the pair. With fewer seeds, it is at least "
        f"the spread of all models with several seeds on the same dataset ({_refits(summary)})."
    )
    header = ["dataset", "paired difference of", "nats", "seeds", "our verdict on the first", "the paper's verdict"]
    return _section(text, header, lines)


def _refits(summary: Summary) -> str:
    known = {dataset: about["refits"] for dataset, about in summary["datasets"].items() if about["refits"] is not None}
    if not known:
        return "no model has several seeds"
    return "standard deviation " + ", ".join(f"{spread:.2f} on {name.upper()}" for name, spread in known.items())


def _against_base(summary: Summary, kind: str) -> str:
    lines = [
        [
            *_dataset_and_model(summary, {**pair, "model": pair["first"]}),
            _difference(pair),
            pair["seeds"],
            pair["verdict"],
        ]
        for pair in summary[kind]
    ]
    header = ["dataset", "model", "minus our default cubic coupling, nats", "seeds", "the model is"]
    return _section("Paired differences, with errors as above.", header, lines)


def _others(summary: Summary) -> str:
    text = "Other packages on the same arrays, with each package's own initialisation."
    lines = [
        [
            *_dataset_and_model(summary, row),
            f"{row['steps']:,} of {row['planned']:,}",
            f"{row['seconds'] / 60:.1f}",
            f"{1000 * row['seconds'] / row['steps']:.0f}",
            row["hardware"],
        ]
        for row in summary["stopped"]
    ]
    unfinished = (
        "A time limit ended these fits before the steps of the recipe. They have not converged, so their scores do not "
        "compare with those of trained models, and are left out."
    )
    header = ["dataset", "model", "stopped after steps", "minutes", "ms a step, with validation", "on"]
    parts = (_against_base(summary, "rivals"), _section(unfinished, header, lines))
    return "\n\n".join([text, *filter(None, parts)]) if any(parts) else ""


def _mixtures(summary: Summary) -> str:
    lines = [
        [*_dataset_and_model(summary, row), len(row["seeds"]), f"{row['test']['spread']:.2f}", _nats(row["mixture"])]
        for row in summary["rows"]
        if row["mixture"]
    ]
    text = "Models with several seeds: the spread of refits, and the equal mixture of all fits, on our test rows."
    return _section(text, ["dataset", "model", "seeds", "standard deviation over seeds", "their mixture"], lines)


def _fits(summary: Summary) -> str:
    lines = [
        [
            *_dataset_and_model(summary, row),
            ", ".join(map(str, row["seeds"])),
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
    shared = any(row["lanes"] > 1 for row in summary["rows"])
    text = "Fits that shared a machine with other processes took longer than they would have alone." if shared else ""
    minutes = ["minutes, all seeds", "on", "processes at once"]
    return _section(text, ["dataset", "model", "seeds", "parameters", "steps", *minutes, "ended by", "weights"], lines)


def _commands(summary: Summary) -> str:
    commands = sorted({command for row in summary["rows"] for command in row["commands"]})
    hardware = "; ".join(sorted({name for row in summary["rows"] for name in row["hardware"]}))
    return f"Hardware: {hardware}.\n\n" + "\n".join(f"    {command}" for command in commands) if commands else ""
