"""Conditional queries to a fitted table: a column given others, the probability of conditions, rows that meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from cubicflow.arguments import unknown_name
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.query.answer import Conditional, Estimates
from cubicflow.tables.query.conditions import Given
from cubicflow.tables.query.constraints import (
    Constraint,
    FixedCombination,
    LinearConstraint,
    check_together,
    read_constraint,
)
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import USUAL, ask, probability_of, weighed
from cubicflow.tables.query.sums import computed_columns
from cubicflow.tables.query.walk import Walk, resample
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some

if TYPE_CHECKING:
    from cubicflow.tables.model.cell_encoder import CellEncoder

SIZE = 10_000.0  # effective size of the particles of an answer
SPARE = 1.0  # effective size of the particles per sampled row
MOST_ROWS = 1 << 14  # rows sampled from one set of particles
LEAST_KEPT = 1e-3  # if a smaller share of the drawn rows keeps the constraints, drawing stops with an error
FEWEST_DRAWN = 1 << 11  # rows drawn before the share is checked


class AskedTable:
    """The methods of :class:`~cubicflow.tables.FittedTable` for conditional queries. They need a model of columns."""

    flow: Any
    schema: Schema
    cells: CellEncoder | None
    constraints: tuple[Constraint, ...]

    def conditional(
        self, column: str, given: Given = None, *, effective_size: float = SIZE, seed: int = 0
    ) -> Conditional:
        """Return the distribution of one column given conditions on any columns.

        Args:
            column: the name of a modelled column.
            given: texts such as ``["cut=Ideal", "price>5000"]``, or a mapping such as
                ``{"cut": "Ideal", "price": (5000, None)}``.
            effective_size: the effective size of the weighted rows behind an answer that is not exact. Errors fall as
                one over its square root.
            seed: the seed of the weighted rows.
        """
        question = self._question(given, self.constraints)
        order = question.walk.encoder.order
        if column not in order:
            raise TableError(unknown_name("the model", "column", column, order))
        return Conditional(question, column, _checked_size(effective_size), self._seeded(seed))

    def probability(self, given: Given, *, effective_size: float = SIZE, seed: int = 0) -> Estimates:
        """Return the probability that a row meets conditions, and its standard error. The arguments are as in
        :meth:`conditional`.

        With constraints of the fit, the probability is that of rows which keep the constraints. The error of an exact
        probability is 0. The probability is a density if a condition is a single real number.
        """
        question = self._question(given, self.constraints)
        size, generator = _checked_size(effective_size), self._seeded(seed)
        found = weighed(question, size, generator)
        kept = weighed(question.unconditioned(), size, generator) if question.walk.checks else None
        value, error = probability_of(question, found, kept)
        return Estimates(np.array(value), np.array(error))

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
        """Yield ``n`` rows that meet conditions, in batches.

        Columns that are sums under ``constraints`` are computed where possible; the rows may break other constraints.
        ``say`` is called with a line on the quality of the rows.
        """
        question = self._question(given, constraints, complete=complete, drops=True)
        generator = self._seeded(seed)
        chooser = np.random.default_rng(generator.initial_seed())
        walk = question.walk
        stop, columns = walk.last + 1, len(walk.columns)
        for start in range(0, max(n, 1), MOST_ROWS):
            count = min(MOST_ROWS, n - start)
            if stop and count:
                begun = ask(question, USUAL, stop, SPARE * count, generator)
                chosen = resample(begun.particles.log_weight, count, chooser)
                rows = begun.particles.take(chooser.permutation(chosen))
                if not start:
                    repeated = 0 if begun.is_exact else count - len(np.unique(chosen))
                    say(_quality(begun.effective_size, len(begun.particles), repeated))
            else:
                rows = walk.start(count)
            for i in range(stop, columns):
                walk.step(rows, i, generator)
            _, given_columns = walk.encoder.context_from(question.context_values, count)
            yield walk.encoder.decode(walk.to_table(rows.y), given_columns)

    def rows_given(self, context: Floats, generator: torch.Generator) -> Floats:
        """Return plain numbers (N, D) of one row for each row of the context's plain numbers (N, C).

        Columns that are sums under the constraints of the fit are computed; the rows may break other constraints.
        """
        walk = Walk(*self._asked_model(), {}, context)
        walk.computed = computed_columns(walk, self.constraints)
        rows = walk.start(len(context))
        for i in range(len(walk.columns)):
            walk.step(rows, i, generator)
        return walk.to_table(rows.y)

    def constrained_batches(
        self,
        n: int,
        constraints: Sequence[Constraint],
        seed: int | None,
        draw: Callable[[int, int], Iterator[pa.RecordBatch]],
        say: Callable[[str], None],
    ) -> Iterator[pa.RecordBatch]:
        """Yield ``n`` rows that keep constraints, in batches.

        ``draw(count, seed)`` draws rows. Rows that break a constraint are dropped, and others are drawn instead.
        ``say`` is called with the number of dropped rows.
        """
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
                    f"constraints {some([each.text for each in constraints])} are kept by only {kept:,} of {drawn:,} "
                    "sampled rows, too few to continue; fit the model with the constraints, or leave some out"
                )
        if drawn > kept:
            say(f"{drawn - kept:,} of {drawn:,} rows broke a constraint and were drawn again")

    def all_constraints(self, texts: Sequence[str] = ()) -> tuple[Constraint, ...]:
        """Return the constraints that the model was fitted with, and those of ``texts``."""
        more = [read_constraint(text, self.schema) for text in texts]
        for each in more:
            if isinstance(each, FixedCombination):
                raise TableError(
                    f"constraint {each.text!r}: combinations are learned when the model is fitted; fit again and add "
                    "the constraint",
                    constraints=[each.text],
                )
        found = (*self.constraints, *more)
        check_together(found)
        sums = [each for each in found if isinstance(each, LinearConstraint) and each.relation == "="]
        if sums and self.cells is None:
            raise TableError(
                f"constraint {sums[0].text!r}: a flow cannot keep sums; fit a model of columns", model="columns"
            )
        return found

    def impute(
        self, rows: pa.Table | pa.RecordBatch, *, draws: int = 1, most_likely: bool = False, seed: int | None = None
    ) -> list[pa.Table]:
        """Return the rows with their missing values filled, one table per draw.

        Missing values are drawn given all other values of their row. Other values do not change. The column ``filled``
        lists the filled columns of each row, separated by commas. ``most_likely`` fills a missing value with the most
        probable word or with the median instead of a draw.
        """
        from cubicflow.tables.query.filled_table import impute_rows

        how: dict[str, Any] = {"draws": draws, "most_likely": most_likely, "seed": seed}
        return impute_rows(self, rows, **how)  # type: ignore[arg-type] # this is the base of FittedTable

    def _question(
        self, given: Given, constraints: Sequence[Constraint], *, complete: bool = False, drops: bool = False
    ) -> Question:
        model, encoder = self._asked_model()
        return Question(model, encoder, given, constraints, complete=complete, drops=drops)

    def _asked_model(self) -> tuple[ColumnsModel, CellEncoder]:
        """Return the model and its encoder. Raises TableError for a flow, which answers no conditions."""
        if self.cells is None or not isinstance(self.flow, ColumnsModel):
            raise TableError(
                "this run is a flow, so conditions can be values of its context columns only; for conditions on any "
                "column, fit a model of columns",
                model="columns",
            )
        return self.flow, self.cells

    def _seeded(self, seed: int | None) -> torch.Generator:
        generator = torch.Generator(next(self.flow.parameters()).device)
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return generator


def _quality(size: float, particles: int, repeated: int) -> str:
    if size == float("inf"):
        return f"rows are drawn from all {particles:,} ways to meet the conditions, with their exact probabilities"
    found = f"rows are drawn from {particles:,} weighted rows with an effective size of {size:,.0f}"
    return f"{found}; {repeated:,} of them repeat up to the last column with a condition" if repeated else found


def _checked_size(size: float) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 1 <= size < float("inf"):
        raise TableError(f"effective_size should be a number, 1 or more, got {size!r}")
    return float(size)
