"""A flow in plain PyTorch that uses only the spline of cubicflow.

    python examples/own_flow.py             # prints its figures, writes own_flow.png
    python examples/own_flow.py --quick     # a short training: seconds, and worse figures

The data are points on two rings. Their density is known, so the flow's log likelihood can be compared with the truth.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from cubicflow.splines import cubic_spline, num_params

RADII, WIDTH = (1.0, 2.5), 0.15


class SplineCoupling(nn.Module):
    """A coupling layer: a network maps the first coordinate to a spline for the second; then the coordinates swap."""

    def __init__(self, hidden: int = 64, num_bins: int = 10) -> None:
        super().__init__()
        last = nn.Linear(hidden, num_params("cubic", num_bins, "steffen"))
        nn.init.zeros_(last.weight)  # zero parameters give the identity, a good initial map
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), last)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x[:, :1], x[:, 1:]
        second, log_slope = cubic_spline(second, self.network(first)[:, None])  # (N, 1), params (N, 1, P)
        return torch.cat([second, first], dim=1), log_slope.squeeze(1)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        second, first = z[:, :1], z[:, 1:]
        second, log_slope = cubic_spline(second, self.network(first)[:, None], inverse=True)
        return torch.cat([first, second], dim=1), log_slope.squeeze(1)


class OwnFlow(nn.Module):
    """A flow of coupling layers with a standard normal base."""

    def __init__(self, num_layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SplineCoupling() for _ in range(num_layers))
        self.base = torch.distributions.Normal(0.0, 1.0)

    def log_prob(self, x: Tensor) -> Tensor:
        log_det = torch.zeros(len(x))
        for layer in self.layers:
            x, log_slope = layer(x)
            log_det = log_det + log_slope
        return self.base.log_prob(x).sum(1) + log_det

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        x = self.base.sample((n, 2))
        for layer in reversed(self.layers):
            x, _ = layer.inverse(x)
        return x


def two_rings(n: int) -> Tensor:
    radius = torch.tensor(RADII)[torch.randint(2, (n,))] + WIDTH * torch.randn(n)
    angle = 2 * math.pi * torch.rand(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def true_log_prob(x: Tensor) -> Tensor:
    radius = x.norm(dim=1, keepdim=True)
    rings = torch.distributions.Normal(torch.tensor(RADII), WIDTH).log_prob(radius) - math.log(2)
    return rings.logsumexp(1) - (2 * math.pi * radius.squeeze(1)).log()


def main(*, quick: bool = False, picture: Path = Path("own_flow.png")) -> dict[str, float]:
    torch.manual_seed(0)
    flow, steps = OwnFlow(), 120 if quick else 6_000
    optimiser = torch.optim.Adam(flow.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        loss = -flow.log_prob(two_rings(512)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()

    x = two_rings(20_000)
    with torch.no_grad():
        below = true_log_prob(x) - flow.log_prob(x)  # the mean estimates KL(truth || flow)
    figures = {"nats below the truth": float(below.mean()), "standard error": float(below.std() / len(x) ** 0.5)}
    for name, value in figures.items():
        print(f"{name:<22}{value:8.4f}")

    figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True, layout="constrained")
    for panel, (title, points) in zip(
        axes, {"data": x, "samples of the flow": flow.sample(20_000)}.items(), strict=True
    ):
        panel.hist2d(*points.T.numpy(), bins=160, range=[[-3.5, 3.5]] * 2, cmap="gray_r")
        panel.set(title=title, aspect="equal", xticks=[], yticks=[])
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    return figures


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
