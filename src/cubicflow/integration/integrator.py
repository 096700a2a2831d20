"""Adaptive integration: rounds of points, each drawn from what the rounds before have taught."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cubicflow.integration.adaptation import FLOW_STEPS, Adapter
from cubicflow.integration.blend import Blend
from cubicflow.integration.bounds import Bounds, Column
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.flow_sampler import LOSSES
from cubicflow.integration.integral import Integral, summarise
from cubicflow.integration.integrand import Function, Integrand, IntegrandError

# Parts of all evaluations in each round, and of few evaluations.
ROUNDS = (0.03, 0.03, 0.03, 0.03, 0.03, 0.08, 0.17, 0.6)
FEW_ROUNDS = (0.15, 0.2, 0.25, 0.4)
FEW = 20_000
FOLDS = 3
REPLICATES, FEW_REPLICATES = 12, 6
LEAST, LEAST_PER_COLUMN = 1_000, 100


class Pending(NamedTuple):
    """The points of a round that are drawn and not yet all evaluated, of all folds."""

    blends: list[Blend]
    u: Tensor  # (FOLDS n, D), fold after fold
    values: Tensor  # (FOLDS n,), as far as they are known
    done: list[int]  # how many are, in a list of one
    replicates: int


class Integrator:
    """Integrates f, and goes on where it stopped.

    Args:
        f: takes points (N, D), returns N real numbers of any sign.
        bounds: for each column a pair (low, high), (-inf, inf), a :class:`Circle` or a :class:`Line`.
        arrays: ``"numpy"`` or ``"torch"``: what f is given.
        batch_size: the most points of one call of f.
        flow: train a flow, or do not; by default where products of columns do not suit f, from 20,000 evaluations on.
        flow_steps: gradient steps of the flow's first training.
        loss: of the flow: ``"kl"``, or ``"variance"`` for the second half of its steps.
        progress: a line for each round on standard error; or a function that takes the line.
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
        self.bounds = Bounds(bounds)
        self.integrand = Integrand(f, arrays, batch_size)
        self.say: Callable[[str], object] = _say if progress is True else progress or _say_nothing
        circles = self.bounds.circles
        settings = {"flow": flow, "flow_steps": flow_steps, "loss": loss}
        self._adapters = [Adapter(circles, **settings, seed=FOLDS * seed + c) for c in range(FOLDS)]  # type: ignore[arg-type]
        self._generator = torch.Generator().manual_seed(seed)
        self._folds = [Fold(len(circles)) for _ in range(FOLDS)]
        self._pending: Pending | None = None
        self._flow = bool(flow)  # whatever the number of points
        self._target = 0  # evaluations in all, of every run so far

    @property
    def evaluations(self) -> int:
        """How many were made."""
        return sum(len(fold) for fold in self._folds) + (self._pending.done[0] if self._pending else 0)

    def run(self, evaluations: int = 0, *, f: Function | None = None) -> Integral:
        """Make so many more evaluations, and return the integral from all there are.

        After an error in f, ``run(f=repaired)`` takes up the interrupted run where it stopped; with nothing to repair,
        ``run()`` does.
        """
        if f is not None:
            self.integrand = Integrand(f, self.integrand.arrays, self.integrand.batch_size)
        self._check(evaluations)
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
                continue  # these points are there from a run before
            late = number > len(rounds) // 2  # early rounds search for the number of products, late ones train a flow
            train = late and (self._flow or total >= FEW)
            self._pending = self._draw(n, replicates, search=not late, train=train)
            self._finish(self._pending)
        return self.result()

    def result(self) -> Integral:
        """The integral from all whole rounds so far."""
        if not len(self._folds[0]):
            raise ValueError("nothing was evaluated yet; call run(evaluations=...) first")
        return summarise(self._folds, self.bounds)

    def _check(self, evaluations: int) -> None:
        if isinstance(evaluations, bool) or evaluations != int(evaluations) or evaluations < 0:
            raise ValueError(f"evaluations must be a whole number, 0 or more, got {evaluations!r}")
        least = max(LEAST, LEAST_PER_COLUMN * len(self.bounds))
        if self._target + evaluations < least:
            raise ValueError(
                f"evaluations={evaluations} is too few for {len(self.bounds)} columns; give at least {least:,}"
            )

    def _draw(self, n: int, replicates: int, *, search: bool, train: bool) -> Pending:
        """The points of a round: ``replicates`` nets of n points for each fold."""
        folds, already = self._folds, self.evaluations / self._target
        if not len(folds[0]):
            blends = [adapter.first() for adapter in self._adapters]
        else:
            blends = [
                adapter.next(folds[(c + 1) % FOLDS], already, search=search, train=train)
                for c, adapter in enumerate(self._adapters)
            ]
        u = torch.cat([blend.draw(self._noise(n, replicates)) for blend in blends])
        return Pending(blends, u, torch.zeros(len(u), dtype=torch.float64), [0], replicates)

    def _noise(self, n: int, replicates: int) -> Tensor:
        """(replicates x n, D + 1): scrambled Sobol nets, one after the other."""
        nets = []
        for _ in range(replicates):
            seed = int(torch.randint(2**31, (1,), generator=self._generator))
            engine = torch.quasirandom.SobolEngine(len(self.bounds) + 1, scramble=True, seed=seed)
            nets.append(engine.draw(n, dtype=torch.float64))
        return torch.cat(nets)

    def _finish(self, pending: Pending) -> None:
        """Evaluate what is left of a round, and add it to the folds. What f has answered is kept, whatever happens."""
        size, done = self.integrand.batch_size, pending.done
        while done[0] < len(pending.u):
            rows = slice(done[0], done[0] + size)
            x, log_volume = self.bounds.from_cube(pending.u[rows])
            try:
                values = self.integrand(x)
            except Exception as error:
                raise IntegrandError(self._interrupted(error), self) from error
            pending.values[rows] = values * log_volume.exp()
            done[0] += len(x)
        self._pending = None
        parts = zip(pending.u.chunk(FOLDS), pending.values.chunk(FOLDS), strict=True)
        for fold, blend, (u, values) in zip(self._folds, pending.blends, parts, strict=True):
            fold.add(blend, u, values, pending.replicates)
        found = self.result()
        made = f"{found.evaluations:>12,} evaluations worth {found.effective:,.0f}"
        self.say(f"{made}: {found.estimate:.8g} ± {found.error:.2g}")

    def _interrupted(self, error: Exception) -> str:
        reason = str(error) if isinstance(error, IntegrandError) else f"f raised {type(error).__name__}: {error}"
        return (
            f"{reason}. The {self.evaluations:,} evaluations made before are kept: call integrator.run(f=repaired), "
            "where integrator is that of this error or your own"
        )


def integrate(
    f: Function,
    bounds: Sequence[Column],
    evaluations: int = 100_000,
    *,
    arrays: str = "numpy",
    batch_size: int = 65_536,
    flow: bool | None = None,
    flow_steps: int = FLOW_STEPS,
    loss: str = "kl",
    progress: bool | Callable[[str], object] = False,
    seed: int = 0,
) -> Integral:
    """The integral of f over the bounds, from so many evaluations, adaptation counted. The arguments are those of
    :class:`~cubicflow.integration.Integrator`, which also goes on after a first result.

    >>> import math
    >>> import numpy as np
    >>> import cubicflow as cf
    >>> bell = lambda x: np.exp(-(x**2).sum(1) / 2)
    >>> found = cf.integrate(bell, [(-math.inf, math.inf)] * 2, evaluations=20_000)
    >>> abs(found.estimate - 2 * math.pi) < 5 * found.error < 0.1
    True
    """
    integrator = Integrator(
        f,
        bounds,
        arrays=arrays,
        batch_size=batch_size,
        flow=flow,
        flow_steps=flow_steps,
        loss=loss,
        progress=progress,
        seed=seed,
    )
    return integrator.run(evaluations)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _say_nothing(line: str) -> None:
    """Without progress."""
