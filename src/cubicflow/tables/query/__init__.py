"""Conditional queries to a fitted model of columns: conditions on any columns, imputation, constraints.

conditions      conditions as a user writes them, such as "price > 5000"
condition_sets  the set of a column's values that meets a condition
walk            weighted rows, drawn column by column inside the sets
tilts           proposals that prefer rows which meet the conditions
question        all conditions and constraints together: sets, computed columns, checks
strategies      rows that meet a question: all paths, weighted particles, or the rows of a sample
pool            the same from rows that were drawn before
answer          one column given conditions: masses, density, quantiles, each with its error
all_columns     the distributions of all columns given a question, in the bins of their axes
impute          filling the missing values of rows
constraints     relations that hold in every row
sample          rows that meet a question, keep constraints, or are drawn for given context
"""

from __future__ import annotations

from cubicflow.tables.axes import DAY, Axis, axis_of
from cubicflow.tables.query.all_columns import Marginals
from cubicflow.tables.query.conditions import Given, second_condition
from cubicflow.tables.query.filled_table import FILLED, FilledTable, names_of_draws
from cubicflow.tables.query.pool import Pool

__all__ = [
    "DAY",
    "FILLED",
    "Axis",
    "FilledTable",
    "Given",
    "Marginals",
    "Pool",
    "axis_of",
    "names_of_draws",
    "second_condition",
]
