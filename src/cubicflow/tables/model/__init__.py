"""The models of a table.

table_model the protocol of a model, and what a score holds
flow        a flow of a complete table of numbers
columns     a model of the columns, each given the columns before it

cell_encoder
            rows of a table as cells, and back
rules       columns that determine others
network     embeddings, a core, a head for each column
cores       networks between the cells of a row and the heads of its columns
"""

from __future__ import annotations

from cubicflow.tables.model.flow import FlowEncoder, FlowOfNumbers, first_not_number
from cubicflow.tables.schema.plain_rows import Numbers, PlainRows

__all__ = ["FlowEncoder", "FlowOfNumbers", "Numbers", "PlainRows", "first_not_number"]
