"""Your own table: from a file to the density of its rows, and back to rows like the file's.

In the order in which they build on one another:

    table_error, arrow_types, maps          what is wrong, arrow's types, maps of numbers with their slopes
    kinds/                                  one class for each kind of column, one registry of them
    options, source                         what the user says; tables, in batches of complete rows
    csv_file, parquet_file, numpy_file      the files that tables come in
    splits, schema, infer                   which rows train, what a column holds, the schema of the table
    encoder, likelihood, table_rows         rows to numbers for a flow and back, log likelihoods, rows for training
    fitted, comparison                      a fitted table: scores, samples, two of them compared
    fit_table, output                       from a file to a run folder; rows and scores to files
"""

try:
    import pyarrow as pa  # noqa: F401
except ImportError as error:
    raise ImportError(
        "tables are read with pyarrow, which is not installed; use: pip install 'cubicflow[cli]'"
    ) from error

from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.fit_table import fit_table
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.infer import infer
from cubicflow.tables.options import Missing, TableOptions
from cubicflow.tables.schema import Schema
from cubicflow.tables.source import Table, open_table
from cubicflow.tables.splits import Split
from cubicflow.tables.table_error import TableError

__all__ = [
    "FittedTable",
    "Missing",
    "Schema",
    "Split",
    "Table",
    "TableEncoder",
    "TableError",
    "TableOptions",
    "fit_table",
    "infer",
    "open_table",
]
