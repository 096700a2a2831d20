"""Your own table: from a file to a matrix for a flow, and from a flow's samples back to rows like the file's.

In the order in which they build on one another:

    source, csv_file, parquet_file, numpy_file, memory, pieces     tables, in batches of complete rows
    arrow_types, text_types, facts, grid, row_sample       what a column holds, from one pass
    options, column, schema, kinds, order, shapes, infer   the schema: found, overridden, kept as JSON
    maps, histogram, statistics, tally                     numbers for a flow, estimated from training rows
    sample_range, values, encoder, fit_rows, recipe        values to numbers and back, batches, a flow that suits them
    offsets, scoring, summary, compare, scores_out         log likelihoods in the data's own units
    splits, fingerprint, fitted, writing                   which rows trained, what a run remembers, outputs
"""

try:
    import pyarrow as pa  # noqa: F401
except ImportError as error:
    raise ImportError(
        "tables are read with pyarrow, which is not installed; use: pip install 'cubicflow[cli]'"
    ) from error

from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.errors import TableError
from cubicflow.tables.infer import infer
from cubicflow.tables.options import TableOptions
from cubicflow.tables.schema import Schema
from cubicflow.tables.source import Table, open_table
from cubicflow.tables.splits import Split

__all__ = ["Schema", "Split", "Table", "TableEncoder", "TableError", "TableOptions", "infer", "open_table"]
