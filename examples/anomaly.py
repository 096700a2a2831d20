"""Find anomalies in a real table: rows with a low density under a model of the normal rows.

    python examples/anomaly.py             # prints its figures, writes anomaly.png
    python examples/anomaly.py --quick     # a short training: seconds, and worse figures

The model is fitted to two thirds of the benign rows of scikit-learn's breast cancer data. It then has to find the
malignant rows among the other rows; it has never seen a malignant row. The score of a row is minus its log density. An
isolation forest on the same rows is the comparison.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from sklearn.model_selection import train_test_split

import cubicflow as cf

METHODS = ("cubicflow", "isolation forest")


def scores_of(method: str, train: np.ndarray, rows: np.ndarray, *, quick: bool, seed: int) -> np.ndarray:
    """Fit a model to the training rows, and return an anomaly score for each row."""
    if method == "isolation forest":
        return -IsolationForest(n_estimators=300, random_state=seed).fit(train).score_samples(rows)
    settings = {"n_members": 2, "max_steps": 10, "max_components": 2} if quick else {}
    return -cf.CubicFlowDensity(random_state=seed, **settings).fit(train).score_samples(rows)


def main(*, quick: bool = False, picture: Path = Path("anomaly.png")) -> dict[str, dict[str, list[float]]]:
    data = load_breast_cancer()
    benign, malignant = data.data[data.target == 1], data.data[data.target == 0]
    found: dict[str, dict[str, list[float]]] = {name: {"precision": [], "area": []} for name in METHODS}
    figure, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
    for seed in range(1 if quick else 3):
        train, kept = train_test_split(benign, test_size=1 / 3, random_state=seed)
        rows = np.concatenate([kept, malignant])
        is_malignant = np.arange(len(rows)) >= len(kept)
        for name, colour in zip(METHODS, ("C0", "C1"), strict=True):
            scores = scores_of(name, train, rows, quick=quick, seed=seed)
            found[name]["precision"].append(float(average_precision_score(is_malignant, scores)))
            found[name]["area"].append(float(roc_auc_score(is_malignant, scores)))
            precision, recall, _ = precision_recall_curve(is_malignant, scores)
            axes.plot(recall, precision, color=colour, linewidth=1, label=None if seed else name)

    share = len(malignant) / len(rows)
    print(f"learned from {len(train)} benign rows; {len(kept)} benign and {len(malignant)} malignant to tell apart")
    print(f"{'':<18}average precision (chance {share:.3f})   area under the ROC curve, of each split")
    for name, figures in found.items():
        print(f"{name:<18}{_listed(figures['precision']):<36}{_listed(figures['area'])}")
    axes.axhline(share, color="grey", linewidth=0.8, linestyle=":", label="chance")
    axes.set(xlabel="recall: share of the malignant rows found", ylabel="precision", ylim=(share - 0.05, 1.01))
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    return found


def _listed(values: list[float]) -> str:
    return "  ".join(f"{value:.3f}" for value in values)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
