"""Synthetic rows for a table, and their use: a classifier is trained on synthetic rows and tested on real rows.

    python examples/synthetic_rows.py             # prints its figures, writes synthetic_rows.png
    python examples/synthetic_rows.py --quick     # a short training: seconds, and worse figures

The table is scikit-learn's breast cancer data: ten measurements of cell nuclei, and a diagnosis in words. Input and
output are pandas frames.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

import cubicflow as cf

DIAGNOSIS = "diagnosis"


def table() -> pd.DataFrame:
    """Return the means and the diagnosis. The other columns are standard errors and extremes of these measurements."""
    data = load_breast_cancer(as_frame=True)
    return data.data.iloc[:, :10].assign(**{DIAGNOSIS: data.target_names[data.target]})


def usefulness(rows: pd.DataFrame, test: pd.DataFrame) -> float:
    """Train a classifier on ``rows``, and return the area under its ROC curve on real held-out rows."""
    classifier = HistGradientBoostingClassifier(random_state=0)
    classifier.fit(rows.drop(columns=DIAGNOSIS), rows[DIAGNOSIS] == "malignant")
    malignant = classifier.predict_proba(test.drop(columns=DIAGNOSIS))[:, 1]
    return float(roc_auc_score(test[DIAGNOSIS] == "malignant", malignant))


def main(*, quick: bool = False, picture: Path = Path("synthetic_rows.png")) -> dict[str, list[float]]:
    rows = table()
    settings = {"max_steps": 20, "max_components": 4} if quick else {}
    found: dict[str, list[float]] = {"real": [], "synthetic": [], "shuffled": [], "distance": [], "distance_real": []}
    for seed in range(1 if quick else 5):
        train, test = train_test_split(rows, test_size=0.3, stratify=rows[DIAGNOSIS], random_state=seed)
        new = cf.CubicFlowDensity(random_state=seed, **settings).fit(train).sample(2_000, random_state=seed)
        alone = train.copy()  # right marginals, but independent columns
        for number, column in enumerate(train):
            alone[column] = train[column].sample(frac=1, random_state=100 * seed + number).to_numpy()
        for name, candidate in (("real", train), ("synthetic", new), ("shuffled", alone)):
            found[name].append(usefulness(candidate, test))
        numbers = train.drop(columns=DIAGNOSIS)
        nearest = NearestNeighbors(n_neighbors=1).fit((numbers / numbers.std()).to_numpy())
        for name, candidate in (("distance", new), ("distance_real", test)):
            scaled = (candidate[numbers.columns] / numbers.std()).to_numpy()
            found[name].append(float(np.median(nearest.kneighbors(scaled)[0])))

    print(f"area under the ROC curve on real held-out rows, {len(found['real'])} splits (mean, lowest, highest)")
    for name, label in (("real", "real rows"), ("synthetic", "synthetic rows"), ("shuffled", "shuffled columns")):
        print(f"  trained on {label:<17} {np.mean(found[name]):.3f}  {min(found[name]):.3f}  {max(found[name]):.3f}")
    print("median distance to the nearest training row (near 0 would be copies)")
    print(f"  synthetic {np.mean(found['distance']):.2f}, held-out real {np.mean(found['distance_real']):.2f}")

    figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharex=True, sharey=True, layout="constrained")
    for axes, title, shown in zip(panels, ("real", "synthetic"), (train, new[: len(train)]), strict=True):
        for diagnosis, colour in (("benign", "C0"), ("malignant", "C3")):
            chosen = shown[shown[DIAGNOSIS] == diagnosis]
            x, y = chosen["mean radius"], chosen["mean concave points"]
            axes.plot(x, y, ".", color=colour, markersize=3, label=diagnosis)
        axes.set(title=title, xlabel="mean radius")
    panels[0].set_ylabel("mean concave points")
    panels[0].legend(frameon=False)
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    return found


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
