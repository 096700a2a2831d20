"""A reader of rows that raises for a value that its column cannot hold, for columns of any kind."""

from __future__ import annotations

import pyarrow as pa

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.schema.plain_rows import PlainRows


class StrictRows(PlainRows):
    """Rows of a table as plain numbers. A flow reads rows like this, but has no columns of words."""

    def numbers_of(self, column: Column, array: pa.Array) -> Floats:
        return column.encode(array)
