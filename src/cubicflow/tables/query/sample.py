"""Rows drawn from a fitted table: given context, under conditions, and within constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.table_model import TableModel
from cubicflow.tables.query.conditions import Given, context_values, read_conditions
from cubicflow.tables.query.constraints import (
    Constraint,
    FixedCombination,
    LinearConstraint,
    kept_rows,
    read_constraint,
)
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import weighted_rows
from cubicflow.tables.query.walk import Walk, resample
from cubicflow.tables.table_error import TableError, some

if TYPE_CHECKING:
    from cubicflow.tables.fitted import FittedTable

SAMPLE_ROWS = 1 << 14  # rows drawn at once
SPARE = 1.0  # effective size of the particles per sampled row
LEAST_KEPT = 1e-3  # if a smaller share of the drawn rows keeps the constraints, drawing stops with an error
FEWEST_DRAWN = 1 << 11  # rows drawn before the share is checked

Say = Callable[[str], None]
Batches = Iterator[pa.RecordBatch]


def draw_rows(
    model: TableModel,
    n: int,
    context: Floats | None,
    generator: torch.Generator,
    temperature: float = 1.0,
    *,
    constraints: Sequence[Constraint] = (),
    complete: bool = False,
) -> Floats:
    """Return plain numbers (n, D) of rows without conditions, in the table's order.

    Args:
        context: plain numbers of the context columns, (C,) or (n, C); None without context.
        constraints: columns that are sums are computed; the rows may break other constraints.
        complete: whether every value is drawn given that it is present.
    """
    if not model.has_laws:
        return model.draw(n, context, generator, temperature)
    walk = Walk(model.laws(), {}, context, present=complete, constraints=constraints)
    return walk.completed(walk.start(n), 0, generator)


def sample_batches(
    fitted: FittedTable,
    n: int,
    given: Given,
    temperature: float,
    seed: int | None,
    *,
    complete: bool,
    constraints: Sequence[Constraint],
    say: Say,
) -> Batches:
    """Yield ``n`` rows that meet conditions and keep constraints, in batches; a single empty batch for ``n = 0``.

    ``say`` is called with a line on the quality of rows under conditions and on the rows that broke a constraint.
    """
    conditions = read_conditions(given, fitted.schema)
    values, generator = context_values(conditions, fitted.schema), fitted.generator(seed)
    if len(values) < len(conditions):  # raises for a flow
        yield from _under(fitted.question(given, constraints, complete=complete), n, generator, say)
        return

    drawn = kept = 0
    while kept < n or not drawn:
        rate = max(kept / drawn, LEAST_KEPT) if drawn else 1.0
        spare = max(int(1.1 * (n - kept) / rate), min(n, FEWEST_DRAWN))
        count = min(spare if constraints else n - kept, SAMPLE_ROWS)
        context, columns = fitted.encoder.context_from(values, count)
        how = fitted.model, count, context, generator, temperature
        batch = fitted.encoder.decode(draw_rows(*how, constraints=constraints, complete=complete), columns)
        fine = kept_rows(constraints, batch, fitted.schema)
        yield batch.filter(pa.array(fine))[: n - kept]
        drawn, kept = drawn + count, kept + int(fine.sum())
        if not n:
            return
        if drawn >= FEWEST_DRAWN and kept < LEAST_KEPT * drawn:
            raise TableError(
                f"constraints {some([each.text for each in constraints])} are kept by only {kept:,} of {drawn:,} "
                "sampled rows, too few to continue; fit the model with the constraints, or leave some out"
            )
    if drawn > kept:
        say(f"{drawn - kept:,} of {drawn:,} rows broke a constraint and were drawn again")


def _under(question: Question, n: int, generator: torch.Generator, say: Say) -> Batches:
    """Yield ``n`` rows that meet a question."""
    chooser = np.random.default_rng(generator.initial_seed())
    walk = question.walk
    stop, encoder = walk.last + 1, walk.encoder
    for start in range(0, max(n, 1), SAMPLE_ROWS):
        count = min(SAMPLE_ROWS, n - start)
        rows = walk.start(count)
        if stop and count:
            begun = weighted_rows(question, stop, SPARE * count, generator)
            chosen = resample(begun.particles.log_weight, count, chooser)
            rows = begun.particles.take(chooser.permutation(chosen))
            if not start:
                repeated = 0 if begun.is_exact else count - len(np.unique(chosen))
                say(_quality(begun.effective_size, len(begun.particles), repeated))
        _, columns = encoder.context_from(question.context_values, count)
        yield encoder.decode(walk.completed(rows, stop, generator), columns)


def _quality(size: float, particles: int, repeated: int) -> str:
    if size == float("inf"):
        return f"rows are drawn from all {particles:,} ways to meet the conditions, with their exact probabilities"
    found = f"rows are drawn from {particles:,} weighted rows with an effective size of {size:,.0f}"
    return f"{found}; {repeated:,} of them repeat up to the last column with a condition" if repeated else found


def all_constraints(fitted: FittedTable, texts: Sequence[str] = ()) -> tuple[Constraint, ...]:
    """Return the constraints that the model was fitted with, and those of ``texts``."""
    more = [read_constraint(text, fitted.schema) for text in texts]
    for each in more:
        if isinstance(each, FixedCombination):
            raise TableError(
                f"constraint {each.text!r}: combinations are learned when the model is fitted; fit again and add the "
                "constraint",
                constraints=[each.text],
            )
    found = (*fitted.constraints, *more)
    sums = [each for each in found if isinstance(each, LinearConstraint) and each.relation == "="]
    if sums and not fitted.model.has_laws:
        raise TableError(
            f"constraint {sums[0].text!r}: {fitted.model.phrase} cannot keep sums; fit a model of columns",
            model="columns",
        )
    return found
