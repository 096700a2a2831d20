"""Prediction intervals from a conditional density: the progression of a disease after a year, given ten measurements.

    python examples/conditional.py             # prints its figures, writes conditional.png
    python examples/conditional.py --quick     # a short training: seconds, and worse figures

The data is scikit-learn's diabetes table, 442 rows, in five folds: every row is predicted once, by a model that has not
seen the row. Intervals are calibrated if the share of true values inside them equals their coverage. The comparison is
a linear regression with normal residuals; all its intervals have the same width.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

import cubicflow as cf

COVERAGES = (0.5, 0.8, 0.9)
LEVELS = [level for coverage in COVERAGES for level in ((1 - coverage) / 2, (1 + coverage) / 2)]
Predicted = tuple[np.ndarray, np.ndarray]  # log densities (N,); low and high ends of the intervals, alternating (N, 6)


def flow(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray, quick: bool) -> Predicted:
    """Predict with cubicflow. The intervals are calibrated on the rows that each member model did not train on."""
    settings = {"max_steps": 20} if quick else {}
    model = cf.CubicFlowConditional(random_state=0, **settings).fit(x, y)
    intervals = [model.predict_interval(x_new, coverage) for coverage in COVERAGES]
    return model.log_prob(x_new, y_new), np.concatenate(intervals, axis=1)


def regression(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray, _: bool) -> Predicted:
    """Predict with least squares and normal residuals."""
    model = LinearRegression().fit(x, y)
    freedom = len(x) - x.shape[1] - 1
    width = float(np.sqrt(np.square(y - model.predict(x)).sum() / freedom))
    middle = model.predict(x_new)
    return norm.logpdf(y_new, middle, width), middle[:, None] + width * norm.ppf(LEVELS)


def main(*, quick: bool = False, picture: Path = Path("conditional.png")) -> dict[str, dict[str, float]]:
    x, y = load_diabetes(return_X_y=True)
    folds = list(KFold(5, shuffle=True, random_state=0).split(x))[: 1 if quick else 5]
    held_out = np.concatenate([test for _, test in folds])
    found: dict[str, dict[str, float]] = {}
    bands = {}
    for name, predict in (("cubicflow", flow), ("linear regression", regression)):
        parts = [predict(x[train], y[train], x[test], y[test], quick) for train, test in folds]
        log_density, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
        bands[name] = ends
        inside = (ends[:, ::2] <= y[held_out, None]) & (y[held_out, None] <= ends[:, 1::2])
        found[name] = {f"{c:.0%}": float(share) for c, share in zip(COVERAGES, inside.mean(axis=0), strict=True)}
        found[name]["width"] = float(np.diff(ends[:, 4:6]).mean())
        found[name]["log likelihood"] = float(log_density.mean())
        found[name]["error"] = float(log_density.std() / len(log_density) ** 0.5)

    promised = ", ".join(f"{coverage:.0%}" for coverage in COVERAGES)
    print(f"{len(held_out)} held-out rows; the share of them inside intervals of {promised}")
    for name, row in found.items():
        shares = "  ".join(f"{row[f'{c:.0%}']:.1%}" for c in COVERAGES)
        print(
            f"{name:<18}{shares}   mean width of the last {row['width']:.0f}   log likelihood "
            f"{row['log likelihood']:.3f} ± {2 * row['error']:.3f}"
        )

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    for axes, (name, band) in zip(panels, bands.items(), strict=True):
        order = np.argsort(band[:, :2].mean(axis=1))
        place = np.arange(len(order))
        for low, alpha in ((4, 0.2), (0, 0.4)):
            axes.fill_between(place, band[order, low], band[order, low + 1], color="C0", alpha=alpha, linewidth=0)
        axes.plot(place, y[held_out][order], "k.", markersize=2)
        axes.set(title=f"{name}: 50% and 90% intervals", xlabel="held-out rows, by prediction")
    panels[0].set_ylabel("progression after a year")
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    return found


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
