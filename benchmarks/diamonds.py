"""Quality of a fit of a real table, by two measures: the diamonds table, 53,940 rows.

    python -m benchmarks.diamonds FOLDER/diamonds.csv [--model columns|flow]

Both fits use the default settings of `cubicflow fit diamonds.csv`. --model chooses the model of the second fit.

1. The seven numeric columns, dequantised once for both models: test log likelihood of a flow and of scikit-learn's
   full-covariance Gaussian mixture. The validation rows choose its number of components, 1 to 20.
2. All ten columns: the cross-validated AUC of a gradient-boosting classifier that separates real from sampled rows.
   0.5 is chance, 1 is perfect separation.

Writes docs/results/diamonds.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score

from cubicflow.data.rows import TensorRows
from cubicflow.tables import TableOptions, fit_table, infer, open_table
from cubicflow.tables.model.flow import SUITED_TRAINING, FlowEncoder, suited_flow
from cubicflow.training import TrainingConfig, fit

WORDS = ("cut", "color", "clarity")
COMPONENTS = range(1, 21)
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "diamonds.md"


def against_mixtures(path: Path) -> list[str]:
    """Return table lines with the test log likelihoods of the numeric columns, in nats and the data's units."""
    table = open_table(path)
    found = infer(table, TableOptions(drop=WORDS))
    encoder = FlowEncoder(found.schema)
    generator = np.random.default_rng(0)
    steps = np.array([column.axis_step for column in encoder.columns])
    x, values, log_dets = [], [], []
    for part in found.row_numbers:
        y = found.numbers[part]
        noise = encoder.noise(len(y), generator)
        assert noise is not None  # every column has steps
        encoded, log_det = encoder.to_flow(y, noise)
        x.append(encoded.astype(np.float32))
        values.append((y + noise) * steps)  # relative to each column's origin: a shift leaves the density unchanged
        log_dets.append(log_det - np.log(steps).sum())  # density per unit instead of per step

    best = best_mixture(values)
    flow = suited_flow(encoder, len(x[0]), 0, {})
    fit(flow, TensorRows(x[0]), TensorRows(x[1]), TrainingConfig(**SUITED_TRAINING), progress=False)
    device = next(flow.parameters()).device
    with torch.no_grad():
        log_prob = flow.log_prob(torch.from_numpy(x[2]).to(device), batch_size=4096)
    scores = log_prob.double().cpu().numpy() + log_dets[2]
    gain = scores - best[1]
    return [
        f"| Gaussian mixture, {best[0]} components | {with_error(best[1])} |",
        f"| cubic-spline flow | {with_error(scores)} |",
        f"| difference, paired | {with_error(gain)} |",
    ]


def best_mixture(values: list[NDArray[np.float64]]) -> tuple[int, NDArray[np.float64]]:
    """Return the number of components that is best on the validation rows, and the mixture's test log densities."""
    mean, std = values[0].mean(axis=0), values[0].std(axis=0)
    train, validation, test = ((rows - mean) / std for rows in values)
    scored = []
    for components in COMPONENTS:
        mixture = GaussianMixture(components, max_iter=300, random_state=0).fit(train)
        scored.append((mixture.score(validation), components, mixture))
        print(f"mixture of {components}: validation {scored[-1][0] - np.log(std).sum():.3f}", flush=True)
    _, components, mixture = max(scored, key=lambda entry: entry[0])
    return components, mixture.score_samples(test) - np.log(std).sum()


def real_or_sampled(path: Path, model: str) -> list[str]:
    """Return table lines with the AUC of a classifier between all real rows and as many sampled rows."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = fit_table(path, run, model=model, say=print)
        encoder = result.fitted.encoder
        table = open_table(path)
        real = np.concatenate([encoder.read(batch).y for batch in table.batches()])
        rows = result.fitted.sample(len(real), seed=0).combine_chunks().to_batches()[0]
        sampled = encoder.read(rows).y
    x = np.concatenate([real, sampled])
    is_real = np.repeat([1, 0], [len(real), len(sampled)])
    wordy = [column.is_list for column in encoder.columns]
    judge = HistGradientBoostingClassifier(
        max_iter=300, categorical_features=wordy, early_stopping=True, random_state=0
    )
    shuffled = np.random.default_rng(0).permutation(len(x))
    aucs = cross_val_score(judge, x[shuffled], is_real[shuffled], cv=5, scoring="roc_auc")
    return [
        f"| test log likelihood of all ten columns, as masses | {result.test} |",
        f"| AUC, real against sampled | {aucs.mean():.3f} ± {2 * aucs.std() / np.sqrt(len(aucs)):.3f} |",
    ]


def where() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"the CPU, {torch.get_num_threads()} of {os.cpu_count()} threads"


def with_error(scores: NDArray[np.float64]) -> str:
    return f"{scores.mean():.3f} ± {2 * scores.std() / np.sqrt(len(scores)):.3f} nats"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--model", choices=("columns", "flow"), default="columns")
    arguments = parser.parse_args()
    lines = [
        "# Diamonds",
        "",
        f"`python -m benchmarks.diamonds diamonds.csv --model {arguments.model}` ran on {where()}.",
        "The fits have the default settings of `cubicflow fit`. The first table compares a flow with scikit-learn's",
        "Gaussian mixture; validation rows choose 1 to 20 components. The AUC is that of a gradient-boosting",
        "classifier that separates real from sampled rows: 0.5 is chance, 1 is perfect separation.",
        "",
        "| seven numeric columns, dequantised once | test log likelihood |",
        "|---|---|",
        *against_mixtures(arguments.table),
        "",
        "| all ten columns | |",
        "|---|---|",
        *real_or_sampled(arguments.table, arguments.model),
    ]
    print("\n".join(lines))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
