"""Adaptive integration: rounds of points, each drawn from samplers fitted to the rounds before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cubicflow.arguments import whole_number
from cubicflow.integration.adaptation import FLOW_STEPS, Adapter
from cubicflow.integration.blend import Blend
from cubicflow.integration.bounds import Bounds, Column
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.flow_sampler import LOSSES
from cubicflow.integration.integral import Integral, summarise
from cubicflow.integration.integrand import Function, Integrand, IntegrandError
from cubicflow.progress import line_writer

ROUNDS = (0.03, 0.03, 0.03, 0.03, 0.03, 0.08, 0.17, 0.6)  # fraction of all evaluations in each round
FEW_ROUNDS = (0.15, 0.2, 0.25, 0.4)  # the same fractions for runs with fewer than FEW evaluations
FEW = 20_000  # evaluations
FOLDS = 3
REPLICATES, FEW_REPLICATES = 12, 6
LEAST, LEAST_PER_COLUMN = 1_000, 100
LARGEST_SEED = 2**62  # torch takes seeds of 64 bits, and each fold has its own seed


@dataclass
class Pending:
    """The points of a round in all folds, drawn and partly evaluated."""

    blends: list[Blend]
    u: Tensor  # (FOLDS n, D), fold after fold
    values: Tensor  # (FOLDS n,); the first ``done`` values are known
    replicates: int
    done: int = 0


class Integrator:
    """An adaptive integrator of f. Each call of :meth:`run` adds evaluations to the earlier ones.

    Args:
        f: takes points (N, D), returns N real numbers of any sign.
        bounds: for each column a pair (low, high), (-inf, inf), a :class:`Circle` or a :class:`Line`.
        arrays: ``"numpy"`` or ``"torch"``, the type of the points given to f.
        batch_size: the largest number of points in one call of f.
        flow: whether to train a flow. By default a flow is trained if products of one-dimensional densities fit f
            badly and there are 20,000 evaluations or more.
        flow_steps: gradient steps of the flow's first training.
        loss: the flow's training loss: ``"kl"``, or ``"variance"`` in the second half of the steps.
        progress: True prints a line for each round on standard error; a function is called with the line instead.
        seed: the same seed gives the same points.

    >>> integrator = Integrator(lambda x: (x**2).sum(1), [(0, 1)] * 3)
    >>> rough = integrator.run(5_000)
    >>> fine = integrator.run(20_000)
    >>> fine.evaluations > 24_000, fine.error < rough.error, abs(fine.estimate - 1) < 5 * fine.error
    (True, True, True)
    """

    def __init__(
        self,
        f: Function,
        bounds: Sequence[Column],
        *,
        arrays: str = "numpy",
        batch_size: int = 65_536,
        flow: bool | None = None,
        flow_steps: int = FLOW_STEPS,
        loss: str = "kl",
        progress: bool | Callable[[str], object] = False,
        seed: int = 0,
    ) -> None:
        if loss not in LOSSES:
            raise ValueError(f"loss must be 'kl' or 'variance', got {loss!r}")
        if flow_steps < 2:
            raise ValueError(f"flow_steps must be at least 2, got {flow_steps}; flow=False trains no flow")
        seed = whole_number("seed", seed, 0)
        if seed >= LARGEST_SEED:
            raise ValueError(f"seed must be below 2^62, got {seed}")
        self.bounds = Bounds(bounds)
        self.integrand = Integrand(f, arrays, batch_size)
        self.report = line_writer(progress)
        circles = self.bounds.circles
        settings = {"flow": flow, "flow_steps": flow_steps, "loss": loss}
        self._adapters = [Adapter(circles, **settings, seed=FOLDS * seed + c) for c in range(FOLDS)]  # type: ignore[arg-type]
        self._generator = torch.Generator().manual_seed(seed)
        self._folds = [Fold(len(circles)) for _ in range(FOLDS)]
        self._pending: Pending | None = None
        self._flow = bool(flow)  # True: train a flow for any number of points
        self._target = 0  # evaluations requested by all runs so far

    @property
    def evaluations(self) -> int:
        """The number of evaluations made so far."""
        return sum(len(fold) for fold in self._folds) + (self._pending.done if self._pending else 0)

    def run(self, evaluations: int = 0, *, f: Function | None = None) -> Integral:
        """Make ``evaluations`` more evaluations, and return the integral from all evaluations.

        After an error in f, ``run(f=repaired)`` continues the interrupted run with a repaired f, and ``run()`` with the
        same f.
        """
        if f is not None:
            self.integrand = Integrand(f, self.integrand.arrays, self.integrand.batch_size)
        evaluations = whole_number("evaluations", evaluations, 0)
        least = max(LEAST, LEAST_PER_COLUMN * len(self.bounds))
        if self._target + evaluations < least:
            raise ValueError(
                f"evaluations={evaluations} is too few for {len(self.bounds)} columns; give at least {least:,}"
            )
        self._target += evaluations
        if self._pending is not None:
            self._finish(self._pending)
        total = self._target
        rounds, replicates = (ROUNDS, REPLICATES) if total >= FEW else (FEW_ROUNDS, FEW_REPLICATES)
        begun = 0.0
        for number, part in enumerate(rounds):
            begun += part
            last = number == len(rounds) - 1
            wanted = total - self.evaluations if last else int(begun * total) - self.evaluations
            if (n := wanted // (FOLDS * replicates)) < 1 or (not last and wanted < 0.3 * part * total):
                continue  # an earlier run made the evaluations of this round
            # Early rounds choose the number of products in the mixture. Late rounds train the flow.
            late = number > len(rounds) // 2
            train = late and (self._flow or total >= FEW)
            self._pending = self._draw(n, replicates, search=not late, train=train)
            self._finish(self._pending)
        return self.result()

    def result(self) -> Integral:
        """Return the integral from all whole rounds so far."""
        if not len(self._folds[0]):
            raise ValueError("nothing was evaluated yet; call run(evaluations=...) first")
        return summarise(self._folds, self.bounds)

    def _draw(self, n: int, replicates: int, *, search: bool, train: bool) -> Pending:
        """Draw the points of a round: ``replicates`` nets of n points for each fold."""
        already = self.evaluations / self._target
        others = [*self._folds[1:], self._folds[0]]
        blends = [
            adapter.next(other, already, search=search, train=train) if len(other) else adapter.first()
            for adapter, other in zip(self._adapters, others, strict=True)
        ]
        u = torch.cat([blend.draw(self._noise(n, replicates)) for blend in blends])
        return Pending(blends, u, torch.zeros(len(u), dtype=torch.float64), replicates)

    def _noise(self, n: int, replicates: int) -> Tensor:
        """Return scrambled Sobol nets, one after the other: (replicates x n, D + 1)."""
        nets = []
        for _ in range(replicates):
            seed = int(torch.randint(2**31, (1,), generator=self._generator))
            engine = torch.quasirandom.SobolEngine(len(self.bounds) + 1, scramble=True, seed=seed)
            nets.append(engine.draw(n, dtype=torch.float64))
        return torch.cat(nets)

    def _finish(self, pending: Pending) -> None:
        """Evaluate the remaining points of a round, and add the round to the folds. Values survive an error in f."""
        while pending.done < len(pending.u):
            rows = slice(pending.done, pending.done + self.integrand.batch_size)
            x, log_volume = self.bounds.from_cube(pending.u[rows])
            try:
                values = self.integrand(x)
            except IntegrandError as error:
                raise IntegrandError(self._interrupted(str(error)), self) from error.__cause__
            pending.values[rows] = values * log_volume.exp()
            pending.done += len(x)
        self._pending = None
        parts = zip(pending.u.chunk(FOLDS), pending.values.chunk(FOLDS), strict=True)
        for fold, blend, (u, values) in zip(self._folds, pending.blends, parts, strict=True):
            fold.add(blend, u, values, pending.replicates)
        found = self.result()
        made = f"{found.evaluations:>12,} evaluations worth {found.effective:,.0f}"
        self.report(f"{made}: {found.estimate:.8g} ± {found.error:.2g}")

    def _interrupted(self, reason: str) -> str:
        if not self.evaluations:
            return reason
        return (
            f"{reason}. The {self.evaluations:,} evaluations made before are kept: call integrator.run(f=repaired), "
            "where integrator is your own or the attribute of this error"
        )


def integrate(f: Function, bounds: Sequence[Column], evaluations: int = 100_000, **settings: Any) -> Integral:
    """Return the integral of f over the bounds.

    Args:
        evaluations: the number of evaluations of f, including adaptation.
        settings: further arguments of :class:`~cubicflow.integration.Integrator`. Use that class to add evaluations
            after a first result.

    >>> import math
    >>> import numpy as np
    >>> import cubicflow as cf
    >>> bell = lambda x: np.exp(-(x**2).sum(1) / 2)
    >>> found = cf.integrate(bell, [(-math.inf, math.inf)] * 2, evaluations=20_000)
    >>> abs(found.estimate - 2 * math.pi) < 5 * found.error < 0.1
    True
    """
    return Integrator(f, bounds, **settings).run(evaluations)
