"""``make demo``: the paper's Figure 1, a random monotone cubic spline and the density it implies."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from cubicflow.splines import cubic_spline, num_params
from cubicflow.splines.bins import floored_softmax

NUM_BINS = 10


def main(folder: Path = Path("demo"), seed: int = 1) -> Path:
    """Draw the figure into ``folder`` and return its path."""
    params = torch.randn(num_params("cubic", NUM_BINS, "steffen"), generator=torch.Generator().manual_seed(seed))
    x = torch.linspace(0, 1, 1001)
    y, log_slope = cubic_spline(x, params, domain="unit")
    back, _ = cubic_spline(y, params, domain="unit", inverse=True)
    knots = torch.cat([torch.zeros(1), floored_softmax(params[:NUM_BINS], 1e-3).cumsum(0)]).clamp(max=1)
    heights, _ = cubic_spline(knots, params, domain="unit")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.plot(x, y, color="tab:blue", label="spline")
    left.plot(back, y, "--", color="tab:orange", label="inverse of its values")
    left.plot(knots, heights, "o", color="black", markersize=4, label="knots")
    left.set(title=f"A monotone cubic spline, K = {NUM_BINS}", xlabel="x", ylabel="g(x)")
    left.legend(frameon=False)
    right.plot(x, log_slope.exp(), color="tab:blue")
    right.set(title="The density it implies", xlabel="x", ylabel="g'(x)", ylim=(0, None))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "figure-1.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


if __name__ == "__main__":
    print(f"wrote {main()}")  # noqa: T201
