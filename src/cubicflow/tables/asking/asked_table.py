"""What a fitted table can be asked: one column given others, the probability of conditions, rows that meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from cubicflow.near_names import no_such
from cubicflow.tables.asking.answer import Conditional, Estimates
from cubicflow.tables.asking.conditions import Given
from cubicflow.tables.asking.constraints import (
    Constraint,
    FixedCombination,
    LinearConstraint,
    check_together,
    read_constraint,
)
from cubicflow.tables.asking.particles import resample
from cubicflow.tables.asking.question import Question
from cubicflow.tables.asking.sums import computed_columns
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some

if TYPE_CHECKING:
    from cubicflow.tables.cell_encoder import CellEncoder

SIZE = 10_000.0  # the effective size of an answer
SPARE = 1.0  # the effective size of rows, for each of them
MOST_ROWS = 1 << 14  # drawn from one set of particles
LEAST_KEPT = 1e-3  # of the rows drawn keep the constraints
FEWEST_DRAWN = 1 << 11  # before that is judged


class AskedTable:
    """The part of :class:`~cubicflow.tables.FittedTable` that answers questions; only a model of columns can."""

    flow: Any
    schema: Schema
    cells: CellEncoder | None
    constraints: tuple[Constraint, ...]

    def conditional(
        self, column: str, given: Given = None, *, effective_size: float = SIZE, seed: int = 0
    ) -> Conditional:
        """The distribution of one column given conditions on any others.

        Args:
            column: the name of a column that is modelled.
            given: texts such as ``["cut=Ideal", "price>5000"]``, or a mapping such as
                ``{"cut": "Ideal", "price": (5000, None)}``.
            effective_size: of the weighted rows that answer, where the answer is not exact. Errors fall with its root.
            seed: of the rows that are drawn.
        """
        question = self._question(given)
        order = question.walk.encoder.order
        if column not in order:
            raise TableError(no_such("the model", "column", column, order))
        return Conditional(question, column, _checked_size(effective_size), self._seeded(seed))

    def probability(self, given: Given, *, effective_size: float = SIZE, seed: int = 0) -> Estimates:
        """The probability that a row meets conditions, and its standard error, 0 where it is exact; a density where a
        condition is a single real number."""
        question = self._question(given)
        found = question.exact_probability()
        if found is None:
            found = question.weighed(question.walk.last + 1, _checked_size(effective_size), self._seeded(seed))
        value = np.exp(found.log_probability)
        return Estimates(np.array(value), np.array(value * found.relative_error))

    def conditioned_batches(
        self,
        n: int,
        given: Given,
        seed: int | None = None,
        *,
        complete: bool = False,
        constraints: Sequence[Constraint] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:
        """``n`` rows that meet conditions, piece by piece, and keep the sums among constraints where they can. ``say``
        is told how good they are."""
        question = self._question(given, complete=complete)
        question.walk.computed = computed_columns(question.walk, constraints)
        generator = self._seeded(seed)
        chooser = np.random.default_rng(generator.initial_seed())
        walk = question.walk
        stop, columns = walk.last + 1, len(walk.columns)
        for start in range(0, max(n, 1), MOST_ROWS):
            count = min(MOST_ROWS, n - start)
            if stop and count:
                weighed = question.weighed(stop, SPARE * count, generator)
                chosen = resample(weighed.particles.log_weight, count, chooser)
                rows = weighed.particles.take(chooser.permutation(chosen))
                if not start:
                    repeated = 0 if weighed.is_exact else count - len(np.unique(chosen))
                    say(_said(weighed.effective_size, len(weighed.particles), repeated))
            else:
                rows = walk.start(count)
            for i in range(stop, columns):
                walk.step(rows, i, generator)
            _, given_columns = walk.encoder.context_from(question.context_values, count)
            yield walk.encoder.decode(walk.to_table(rows.y), given_columns)

    def constrained_batches(
        self,
        n: int,
        constraints: Sequence[Constraint],
        seed: int | None,
        draw: Callable[[int, int], Iterator[pa.RecordBatch]],
        say: Callable[[str], None],
    ) -> Iterator[pa.RecordBatch]:
        """``n`` rows that keep constraints: ``draw(count, seed)`` gives rows, of which those that break one are drawn
        again."""
        seeds = np.random.default_rng(seed)
        drawn = kept = 0
        while kept < n or not drawn:
            rate = max(kept / drawn, LEAST_KEPT) if drawn else 1.0
            count = min(max(int(1.1 * (n - kept) / rate), min(n, FEWEST_DRAWN)), MOST_ROWS)
            for batch in draw(count, int(seeds.integers(1 << 62))):
                rows = dict(zip(batch.schema.names, batch.columns, strict=True))
                broken = np.zeros(len(batch), np.bool_)
                for constraint in constraints:
                    broken |= constraint.broken(rows, self.schema)
                fine = batch.filter(pa.array(~broken))[: n - kept]
                drawn, kept = drawn + len(batch), kept + int((~broken).sum())
                yield fine
            if not n:
                return
            if drawn >= FEWEST_DRAWN and kept < LEAST_KEPT * drawn:
                raise TableError(
                    f"constraints {some([each.text for each in constraints])} are kept by {kept:,} of {drawn:,} rows "
                    "drawn, too few to go on; fit the model with them, or leave some out"
                )
        if drawn > kept:
            say(f"{drawn - kept:,} of {drawn:,} rows broke a constraint and were drawn again")

    def all_constraints(self, texts: Sequence[str] = ()) -> tuple[Constraint, ...]:
        """The constraints that the model was fitted with, and more of them."""
        more = [read_constraint(text, self.schema) for text in texts]
        for each in more:
            if isinstance(each, FixedCombination):
                raise TableError(
                    f"constraint {each.text!r}: which combinations there are is learned with the model; fit it again"
                    f" and give the constraint there",
                    f"--constraint {each.text!r}",
                )
        found = (*self.constraints, *more)
        check_together(found)
        sums = [each for each in found if isinstance(each, LinearConstraint) and each.relation == "="]
        if sums and self.cells is None:
            raise TableError(
                f"constraint {sums[0].text!r}: a flow keeps no sums; fit a model of columns", "--model columns"
            )
        return found

    def impute(
        self, rows: pa.Table | pa.RecordBatch, *, draws: int = 1, most_likely: bool = False, seed: int | None = None
    ) -> list[pa.Table]:
        """The rows with their gaps filled, once for each draw, given all that each row holds. Only gaps change; the
        column ``filled`` names those of every row, with commas between.

        ``most_likely`` fills each with its most probable word, or the median of its numbers, in place of a draw."""
        from cubicflow.tables.asking.filled_table import impute_rows

        how: dict[str, Any] = {"draws": draws, "most_likely": most_likely, "seed": seed}
        return impute_rows(self, rows, **how)  # type: ignore[arg-type] # this is the base of FittedTable

    def _question(self, given: Given, *, complete: bool = False) -> Question:
        if self.cells is None or not isinstance(self.flow, ColumnsModel):
            raise TableError(
                "this run is a flow, which can be given its context columns alone; to ask about any column, fit a "
                "model of columns",
                "--model columns",
            )
        return Question(self.flow, self.cells, given, complete=complete)

    def _seeded(self, seed: int | None) -> torch.Generator:
        generator = torch.Generator(next(self.flow.parameters()).device)
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return generator


def _said(size: float, particles: int, repeated: int) -> str:
    if size == float("inf"):
        return f"rows are drawn from all {particles:,} ways to meet the conditions, with their exact probabilities"
    found = f"rows are drawn from {particles:,} weighted ones of effective size {size:,.0f}"
    return f"{found}; {repeated:,} repeat another one up to the last column with a condition" if repeated else found


def _checked_size(size: float) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 1 <= size < float("inf"):
        raise TableError(f"effective_size should be a number, 1 or more, got {size!r}")
    return float(size)
