"""All conditions and constraints of a query, resolved to sets of values, computed columns and checks of rows.

Both kinds count alike. The last column of a sum is computed, with weight 1, or 0 if the value is not in its set. A row
that breaks another constraint, or whose sum the last column cannot hold, has weight 0. Queries do not change the
training of the model. :mod:`cubicflow.tables.query.strategies` answers questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from cubicflow.tables.laws.cells import WordCells
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.query.condition_sets import sets_of
from cubicflow.tables.query.conditions import Condition, Given, context_values, read_conditions, texts_of
from cubicflow.tables.query.constraints import Constraint
from cubicflow.tables.query.walk import Walk
from cubicflow.tables.schema.sets import Set
from cubicflow.tables.table_error import TableError, some


class Question:
    """Conditions and constraints on the columns of a fitted model.

    Args:
        model: the model of a :class:`~cubicflow.tables.fitted.FittedTable`.
        given: texts, or a mapping from columns to values (see :mod:`cubicflow.tables.query.conditions`). Every context
            column needs an equality.
        constraints: constraints that rows keep. Sums are computed.
        complete: whether every value is drawn given that it is present.
    """

    def __init__(
        self,
        model: ModelOfColumns,
        given: Given,
        constraints: Sequence[Constraint] = (),
        *,
        complete: bool = False,
    ) -> None:
        self.constraints, encoder = constraints, model.encoder
        self.conditions = read_conditions(given, encoder.schema)
        self.context_values = context_values(self.conditions, encoder.schema)
        context, _ = encoder.context_from(self.context_values, 1)
        gaps = [name for name, cells in encoder.cells.items() if cells.gaps]
        named = sets_of(self.conditions, encoder.schema, gaps, complete=complete)
        sets = {encoder.order.index(name): each for name, each in named.items()}
        sets = _with_determinants(encoder, sets, self.conditions)
        one = None if context is None else context[0]
        self.walk = Walk(model, sets, one, present=complete, constraints=constraints)
        for i in self.walk.sets:
            if self.walk.cells(i).is_impossible:
                name = self.walk.columns[i].name
                about = [condition for condition in self.conditions if condition.column == name] or self.conditions
                raise TableError(
                    f"{texts_of(about)} is impossible: the probability is 0 or below 1e-300, since column {name!r} "
                    "does not reach that far; choose values that the column holds"
                )

    def with_sets(self, sets: Mapping[int, Set]) -> Question:
        """Return the question with the same constraints and other sets, by the index of the model's column."""
        other = copy(self)
        other.walk = replace(self.walk, sets=sets, tilts={})
        return other

    @property
    def has_density(self) -> bool:
        """Whether the probability is a density, because a condition is a single real number."""
        return any(self.walk.cells(i).is_density for i in self.walk.sets)

    # --- errors ---

    @property
    def asked(self) -> str:
        """The conditions and constraints as text for messages."""
        limits = f"constraints {some([each.text for each in self.constraints])}" if self.constraints else ""
        return " with ".join(part for part in (texts_of(self.conditions), limits) if part)

    def impossible(self) -> TableError:
        """Return the error for a question that no row meets."""
        return TableError(f"{self.asked}: no row meets all of them; their probability is 0")

    def none_drawn(self) -> TableError:
        """Return the error for a question that no row of a sample meets."""
        also = " and keeps the constraints of the fit" if self.constraints else ""
        return TableError(f"none of the drawn rows meets these conditions{also}; widen the conditions")


def _with_determinants(encoder: CellEncoder, sets: dict[int, Set], conditions: Sequence[Condition]) -> dict[int, Set]:
    """Return the sets, with smaller sets for columns that determine a conditioned column.

    For example, a condition on the county leaves only the towns of that county.
    """
    order = encoder.order
    for rule in sorted(encoder.rules, key=lambda rule: -order.index(rule.dependent)):
        within = sets.get(order.index(rule.dependent))
        cells = encoder.cells[rule.determinant]
        if within is None or not isinstance(cells, WordCells):
            continue
        i, keys = order.index(rule.determinant), np.asarray(rule.keys)
        kept = np.ones(len(cells.kinds) + 1, np.bool_)  # words, then the missing value; a rule may lack some of them
        kept[np.where(np.isnan(keys), -1, keys).astype(np.int64)] = within.contains(np.asarray(rule.values))
        allowed = Set.codes(kept[:-1], gap=cells.gaps and bool(kept[-1]))
        sets[i] = sets[i] & allowed if i in sets else allowed
        if sets[i].is_empty:
            raise TableError(
                f"{texts_of(conditions)} contradict one another: {rule.determinant!r} determines {rule.dependent!r}, "
                "and no row of the fitted table has both; leave one out"
            )
    return sets
