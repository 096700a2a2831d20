"""The models of a table.

table_model the protocol of a model, and what a score holds
plain_rows  rows of a table as plain numbers, and back
flow        a flow of a complete table of numbers
columns     a model of the columns, each given the columns before it

unit_scale  the distribution function of a single column, learned from training rows
cells       how a model of columns receives one value; learning the cells of a column
independent the score of a row if its columns were independent
rules       columns that determine others
cell_encoder
            rows of a table as cells, and back
cores       networks between the cells of a row and the heads of its columns
network     embeddings, a core, a head for each column
masses      the spline of a column: densities, masses of intervals and places inside them, without cancellation
coder       sets of a column's values as cells
law         the distribution of a column given earlier columns, for each of N rows
"""

from __future__ import annotations

from cubicflow.tables.model.flow import FlowEncoder, FlowOfNumbers, first_not_number
from cubicflow.tables.model.plain_rows import Numbers, PlainRows

__all__ = ["FlowEncoder", "FlowOfNumbers", "Numbers", "PlainRows", "first_not_number"]
