"""Write the figures that the pages quote, from the records of the runs.

    python -m benchmarks.quoted_figures            # update README.md and the pages under docs/
    python -m benchmarks.quoted_figures --check    # change nothing; exit with status 1 if a page differs

A page marks the place of a figure by a pair of comments, on lines of their own or within a sentence:

    <!-- figures: measured -->
    (a table)
    <!-- end -->

The name is a key of ``FIGURES``. Its function reads the records and returns the text between the comments.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic.records import MODELS

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- figures: (\w+) -->)(\n?)(.*?)(<!-- end -->)", re.DOTALL)
IMPUTERS = {
    "mode and median": "mode and median of the training rows",
    "IterativeImputer, codes": "scikit-learn's IterativeImputer, words as codes",
    "cubicflow impute --mode": "`cubicflow impute --mode`",
    "cubicflow impute": "`cubicflow impute`, one draw",
    "cubicflow impute, mean of 20 draws": "the mean of 20 draws",
}


def filled(page: str, root: Path = ROOT) -> str:
    """Return the text of a page with every marked figure replaced by the one in the records under ``root``."""

    def replacement(marked: re.Match[str]) -> str:
        begin, name, newline, _, end = marked.groups()
        if name not in FIGURES:
            raise SystemExit(f"unknown figure {name!r}; the known ones are {', '.join(sorted(FIGURES))}")
        return f"{begin}{newline}{FIGURES[name](root)}{newline}{end}"

    return MARKED.sub(replacement, page)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that may quote figures."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main() -> None:
    """Update the pages, or compare them with the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if a page differs")
    check = parser.parse_args().check
    different = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            different.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    for name in different:
        print(f"{name} differs from the records" if check else f"updated {name}")
    if check and different:
        sys.exit("update the pages: python -m benchmarks.quoted_figures")


def measured(root: Path) -> str:
    """Return the table of README: results beside those of others, those that others win included."""
    integrals = {
        "camel, D = 16": "two Gaussians in 16 dimensions",
        "camel, D = 4": "two Gaussians in 4 dimensions",
        "ring, D = 2": "a ring in 2 dimensions",
    }
    rows = [_inverses(root), _training_step(root), _patches_by_the_paper(root), _patches(root), _synthetic_rows(root)]
    rows += [_integral(root, case, text) for case, text in integrals.items()]
    return _table(["measured", "cubicflow", "compared with"], rows)


def _inverses(root: Path) -> list[str]:
    rows = [row for row in _csv(root, "results/spline_robustness.csv") if row["dtype"] == "float32"]

    def total(column: str, method: str) -> str:
        return f"{sum(int(row[column]) for row in rows if row['method'] == method):,}"

    ours, theirs = (
        f"{total('nonfinite', method)} and {total('outside', method)}" for method in ("cubic, steffen", "nflows cubic")
    )
    inputs = f"{total('inputs', 'cubic, steffen')} float32 inputs"
    return [
        f"[inverse](docs/results/index.md#inverses) of {inputs}: results not finite, and results out of the domain",
        ours,
        f"{theirs} (nflows, cubic)",
    ]


def _training_step(root: Path) -> list[str]:
    work = "training step, D = 63, batch 512"
    times = {machine: _times(root, machine) for machine in ("cpu", "gpu")}
    ours, theirs = (
        " and ".join(f"{times[machine][work, name]:.3g}" for machine in times) for name in ("cubicflow", "nflows cubic")
    )
    return [
        "[training step](docs/results/speed.md), D = 63, batch 512: ms on two CPU cores, and on one H200",
        ours,
        f"{theirs} (nflows, cubic)",
    ]


def _patches_by_the_paper(root: Path) -> list[str]:
    carried = "test log likelihood in nats, carried over from redrawn patches to the published ones"
    return [
        f"[BSDS300](results/README.md), by [the model of the paper](docs/paper.md): {carried}",
        _score(root, "bsds300", "cubic-paper-long", "carried"),
        f"{_published(root, 'bsds300')['cubic-paper']} (the paper)",
    ]


def _patches(root: Path) -> list[str]:
    published = _published(root, "bsds300")
    best = max(published, key=lambda model: float(published[model].split()[0]))
    names = {"trade": "TraDE", "tan": "TAN"}
    return [
        "the same, by our best model: attention, trained on all symmetries of a patch",
        _score(root, "bsds300", "cubic-attention-symmetries", "carried"),
        f"{published[best]} ({names[best]}, the best published)",
    ]


def _synthetic_rows(root: Path) -> list[str]:
    records = [json.loads(path.read_text()) for path in sorted((root / "results/synthetic-tables").glob("adult-*"))]
    scores = {record["model"]: record["judged"]["detection"]["score"] for record in records if "judged" in record}
    ours = scores.pop("cubicflow")
    best = max(scores, key=lambda model: scores[model])
    return [
        "[synthetic rows](docs/results/synthetic_tables.md) of Adult: detection score, 1 is perfect",
        f"{ours:.3f}",
        f"{scores[best]:.3f} ({MODELS[best]}, the best of {len(scores)} peers)",
    ]


def _integral(root: Path, case: str, text: str) -> list[str]:
    rows = [row for row in _csv(root, "results/integrals/integrals.csv") if row["case"] == case]
    by_method = {row["method"]: row for row in rows if row["evaluations"] == "1000000"}
    vegas = min((name for name in by_method if name.startswith("vegas")), key=lambda n: float(by_method[n]["error"]))

    def cell(method: str) -> str:
        row = by_method[method]
        return f"{float(row['error']):.1e} in {float(row['seconds']):.1f} s"

    return [
        f"[integral](docs/results/integrals.md) of {text}, 10^6 evaluations: relative error",
        cell("cubicflow"),
        f"{cell(vegas)} (vegas), {cell('madnis')} (madnis)",
    ]


def paper(root: Path) -> str:
    """Return the table of the paper's experiments."""
    gaussians, images = _results(root, "figure-2")["densities"][0], _results(root, "figure-3")
    models = {
        "cubic-paper-long": "coupling layers, the paper's model",
        "cubic-decayed": "coupling layers, wider, more dropout, weight decay",
        "cubic-mirrored": "coupling layers, trained on mirrored patches too",
        "cubic-attention-long": "autoregressive layers with attention",
        "cubic-attention-symmetries": "autoregressive layers with attention, trained on all symmetries of a patch",
    }
    few = {
        "cubic-paper": "coupling layers, the paper's model",
        "cubic-autoregressive-few-bins": "wide autoregressive layers with weight decay",
    }
    gap = f"{gaussians['gap']:.3f} nats below the true density"
    bits = f"{images['bits_per_dim']:.3f} ± {images['error']:.3f} bits per dimension"
    rows = [
        ["225 Gaussians", "coupling layers", gap, ""],
        *_scored(root, "miniboone", "MINIBOONE, part of the training rows", "test", few),
        *_scored(root, "bsds300", "BSDS300, carried over to the published rows", "carried", models),
        ["Fashion-MNIST", "image flow", bits, ""],
    ]
    return _table(["data", "model", "on test rows", "published"], rows)


def _scored(root: Path, dataset: str, title: str, on: str, models: dict[str, str]) -> list[list[str]]:
    published = {"the paper's model": _published(root, dataset)["cubic-paper"]}
    return [
        [title, text, f"{_score(root, dataset, model, on)} nats", published.get(text.rpartition(", ")[2], "")]
        for model, text in models.items()
    ]


def paper_model(root: Path) -> str:
    """Return the score of the paper's model on BSDS300, beside the published score."""
    drawn = _score(root, "bsds300", "cubic-paper-long")
    over = _score(root, "bsds300", "cubic-paper-long", "carried")
    published = _published(root, "bsds300")["cubic-paper"]
    return f"{drawn} on the redrawn rows, {over} carried over to the published rows; the published score is {published}"


def speed(root: Path) -> str:
    """Return the list of memory, networks and cold starts."""
    cpu, gpu, slower = (_times(root, machine) for machine in ("cpu", "gpu", "slower-host"))
    works = [work for work, name in cpu if work.startswith("training step") and name == "cubicflow"]
    shares = sorted(cpu[work, "its networks alone"] / cpu[work, "cubicflow"] * 100 for work in works)
    (ours,) = {f"{_memory_ratio(root, machine):.2f}" for machine in ("cpu", "gpu")}
    cold, warm = (
        [f"{times['cold start, POWER model', f'cubicflow, {name}'] / 1e3:.1f} s" for times in (gpu, slower)]
        for name in ("nothing compiled yet", "second start")
    )
    return "\n".join(
        [
            f"- On the CPU the networks take {shares[0]:.0f} to {shares[-1]:.0f} % of a training step.",
            f"- Forward and backward of a spline need {ours} times the memory of params and their gradient, on the CPU",
            "  and on the GPU.",
            f"- A fresh process on the H200 finishes its first training steps {cold[0]} after Python starts.",
            f"  If the kernels are already compiled, the time is {warm[0]}. On a slower host, the two times",
            f"  are {cold[1]} and {warm[1]}.",
        ]
    )


def _memory_ratio(root: Path, machine: str) -> float:
    """Return the peak of forward and backward at K = 10, in units of params and their gradient."""
    name = {"cpu": "cubicflow native", "gpu": "cubicflow triton"}[machine]
    (row,) = (
        row
        for row in _csv(root, f"results/speed/{machine}/bench.csv")
        if row["work"].startswith("spline forward + backward") and row["work"].endswith("K = 10")
        if row["implementation"] == name and not row["curve"]
    )
    elements = int(row["work"].split(", ", 1)[1].split(" elements")[0].replace(",", ""))
    params = elements * 22 * 4  # bytes: 2 K + 2 params in float32. They exist before the run, their gradient does not.
    return (params + float(row["peak_memory"])) / (2 * params)


def mirrored_gain(root: Path) -> str:
    """Return the gain of mirrored patches and twice the steps, in nats."""
    pairs = _results(root, "table-1")["ablations"]
    (pair,) = (pair for pair in pairs if pair["first"] == "cubic-mirrored")
    return f"{pair['mean']:.2f}"


def attention_gain(root: Path) -> str:
    """Return the gain of attention over coupling layers on BSDS300, with both scores."""
    attention, coupling = (_mean(root, "bsds300", model) for model in ("cubic-attention-long", "cubic"))
    return f"{attention - coupling:.2f} nats: {attention:.2f} instead of {coupling:.2f}"


def attention_gain_over_best(root: Path) -> str:
    """Return the gain of attention over the best coupling layers on BSDS300, with their score."""
    attention, coupling = (_mean(root, "bsds300", model) for model in ("cubic-attention-long", "cubic-decayed"))
    return f"{attention - coupling:.2f} nats more than the best coupling layers without added rows, {coupling:.2f}"


def attention_fit(root: Path) -> str:
    """Return the time and the score of the fit with attention that had the GPU to itself."""
    rows = _results(root, "table-1")["rows"]
    (row,) = (row for row in rows if (row["dataset"], row["model"]) == ("bsds300", "cubic-attention"))
    if row["lanes"] != 1 or len(row["seeds"]) != 1:
        raise SystemExit("the fit of cubic-attention shared its GPU, or there are several; quote another fit")
    score = _score(root, "bsds300", "cubic-attention")
    return f"{row['steps']:,} steps took {row['seconds'] / 60:.1f} minutes and scores {score} nats"


def few_rows(root: Path) -> str:
    """Return the scores on MINIBOONE of wide autoregressive flows with weight decay, and of coupling layers."""
    rows = {row["model"]: row for row in _results(root, "table-1")["rows"] if row["dataset"] == "miniboone"}
    wide, coupling = rows["cubic-autoregressive-few-bins"], rows["cubic"]
    return (
        f"{wide['test']['mean']:.2f}, the mixture of {len(wide['seeds'])} fits {wide['mixture']['mean']:.2f}, coupling "
        f"layers {coupling['test']['mean']:.2f}"
    )


def weight_decay(root: Path) -> str:
    """Return the validation scores of fits that differ in weight decay alone."""
    table = _results(root, "table-1")["rows"]
    scores = {row["model"]: row["validation"] for row in table if row["dataset"] == "bsds300"}
    wide = "10 coupling layers, 512 wide, dropout 0.5"
    rows = [
        ["BSDS300, 1,000,000", wide, decay, f"{scores[model]:.3f}"]
        for decay, model in (("0", "cubic-wide"), ("0.1", "cubic-decayed"), ("0.3", "cubic-decayed-more"))
    ]
    tried = {row["settings"]: row["validation"] for row in _csv(root, "results/table-1/miniboone_settings.csv")}
    common, deep = "hidden_features=384 dropout=0.6", "hidden_features=384 dropout=0.6 num_layers=8"
    for layers, decay, settings in (
        (5, "0.01", common),
        (5, "0.05", f"{common} weight_decay=0.05"),
        (5, "0.2", f"{common} weight_decay=0.2"),
        (8, "0.1", f"{deep} weight_decay=0.1"),
        (8, "0.3", f"{deep} weight_decay=0.3"),
    ):
        flow = f"{layers} autoregressive layers, 384 wide, dropout 0.6"
        rows.append(["MINIBOONE, 15,940", flow, decay, f"{float(tried[settings]):.3f}"])
    return _table(["table, training rows", "flow", "`weight_decay`", "validation, nats"], rows)


def decay_on_test_rows(root: Path) -> str:
    """Return the test scores on BSDS300 of coupling layers with weight decay and without."""
    some, none = (_mean(root, "bsds300", model) for model in ("cubic-decayed", "cubic-wide"))
    return f"{some:.2f} instead of {none:.2f}"


def imputation(root: Path) -> str:
    """Return the table of imputers."""
    found = {row["method"]: row for row in _csv(root, "results/imputation.csv")}
    rows = []
    for method, label in IMPUTERS.items():
        # The file has four decimals; three are shown, half rounded up.
        accuracy, rmse, mae = (
            str(Decimal(found[method][name]).quantize(Decimal("0.001"), ROUND_HALF_UP))
            for name in ("accuracy", "rmse", "mae")
        )
        rows.append([label, "" if "draws" in method else accuracy, rmse, mae])
    return _table(["", "words restored", "root mean square error", "mean absolute error"], rows)


def both_models(root: Path) -> str:
    """Return how far the models that ``fit`` keeps are below the better ones."""
    losses: dict[str, list[float]] = {}
    for row in _csv(root, "results/both_models.csv"):
        losses.setdefault(row["table"], []).append(float(row["loss"]))
    return f"{max(sum(each) / len(each) for each in losses.values()):.2f}"


def explore(root: Path) -> str:
    """Return the table of times of the page that explores a fit."""
    lines = _csv(root, "results/explore.csv")
    pictures, redraws = ([line for line in lines if (line["columns"] == "0") == first] for first in (True, False))
    rows = [
        [
            f"{line['conditions']}, best of three",
            *(f"{float(line[key]):.2f}" for key in ("seconds", "processor_seconds")),
        ]
        for line in pictures
    ]
    for label, level in (("redraw, median", 0.5), ("redraw, 95th percentile", 0.95)):
        values = [
            np.quantile([float(row[name]) for row in redraws], level) for name in ("seconds", "processor_seconds")
        ]
        rows.append([label, *(f"{value:.3f}" for value in values)])
    return _table(["", "seconds of the clock", "seconds of the server's processor"], rows)


FIGURES: dict[str, Callable[[Path], str]] = {
    figure.__name__: figure
    for figure in (
        *(attention_fit, attention_gain, attention_gain_over_best, both_models, decay_on_test_rows, explore, few_rows),
        *(imputation, measured, mirrored_gain, paper, paper_model, speed, weight_decay),
    )
}


def _csv(root: Path, name: str) -> list[dict[str, str]]:
    with (root / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _results(root: Path, experiment: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((root / f"results/{experiment}/{experiment}.json").read_text(encoding="utf-8"))
    results: dict[str, Any] = record["results"]
    return results


def _published(root: Path, dataset: str) -> dict[str, str]:
    return dict(_results(root, "table-1")["datasets"][dataset]["published"])


def _test(root: Path, dataset: str, model: str, on: str = "test") -> dict[str, float]:
    """Return the score on our test rows, or the one that is carried over to the published rows."""
    rows = _results(root, "table-1")["rows"]
    (test,) = (row[on] for row in rows if (row["dataset"], row["model"]) == (dataset, model))
    return dict(test)


def _mean(root: Path, dataset: str, model: str) -> float:
    return _test(root, dataset, model)["mean"]


def _score(root: Path, dataset: str, model: str, on: str = "test") -> str:
    test = _test(root, dataset, model, on)
    return f"{test['mean']:.2f} ± {test['error']:.2f}"


def _times(root: Path, machine: str) -> dict[tuple[str, str], float]:
    """Return the medians in milliseconds by work and implementation, without the points of curves."""
    rows = _csv(root, f"results/speed/{machine}/bench.csv")
    return {(row["work"], row["implementation"]): float(row["median"]) for row in rows if not row["curve"]}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
