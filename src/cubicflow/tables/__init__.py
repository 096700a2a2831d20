"""Your own table: from a file to the density of its rows, and back to rows like the file's.

In the order in which they build on one another:

    table_error, arrow_types, maps          what is wrong, arrow's types, maps of numbers with their slopes
    kinds/                                  one class for each kind of column, one registry of them
    source                                  tables, in batches of complete rows, and which rows train
    text/                                   text as people write it: headers, remarks, formats of numbers and dates
    csv_file, columnar_file, files/         the files that tables come in, and the places where they lie
    time_order                              rows in the order of time, and a split by it
    schema, doubts, inference               the schema of a table, what the user says, and how a schema is found
    encoder, likelihood                     for a flow: rows to numbers and back, log likelihoods
    unit_scale, cells, dependencies, cell_encoder
                                            for a model of columns: rows to cells and back, what determines what
    interval_mass, columns_cores, columns_model, columns_likelihood
                                            the model: exact masses, networks, heads; scores and samples
    table_rows                              rows for training
    asking/                                 conditions on any columns, filled gaps, constraints
    independent, honest_score               what a score is worth: beside independent columns and training rows
    sampled_table, fitted, scored_parts, comparing
                                            a fitted table: samples, scores; the parts of a table; two runs compared
    copied_rows, resumed_table, started_run copies across the split; a run that goes on; a run that begins from another
    fitting, output                         from a file to a run folder; rows and scores to files
    dependencies                            columns that determine one another
    judging/                                how good sampled rows are
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubicflow.tables.asking.answer import Conditional
    from cubicflow.tables.encoder import TableEncoder
    from cubicflow.tables.fitted import FittedTable
    from cubicflow.tables.fitting import fit_table
    from cubicflow.tables.inference import TableOptions, infer
    from cubicflow.tables.judging.judgement import Judgement, judge
    from cubicflow.tables.schema import Schema
    from cubicflow.tables.source import Missing, Split, Table, open_table
    from cubicflow.tables.table_error import TableError
    from cubicflow.tables.text.reading import Reading

# Imported when they are first asked for: the command line names the kinds of columns without waiting for torch.
_HOMES = {
    "Conditional": "asking.answer",
    "FittedTable": "fitted",
    "Judgement": "judging.judgement",
    "Missing": "source",
    "Reading": "text.reading",
    "Schema": "schema",
    "Split": "source",
    "Table": "source",
    "TableEncoder": "encoder",
    "TableError": "table_error",
    "TableOptions": "inference",
    "fit_table": "fitting",
    "infer": "inference",
    "judge": "judging.judgement",
    "open_table": "source",
}
# A literal: the reference is made from it without running this file.
__all__ = [
    "Conditional",
    "FittedTable",
    "Judgement",
    "Missing",
    "Reading",
    "Schema",
    "Split",
    "Table",
    "TableEncoder",
    "TableError",
    "TableOptions",
    "fit_table",
    "infer",
    "judge",
    "open_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cubicflow.tables' has no attribute {name!r}")
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "tables are read with pyarrow, which is not installed; use: pip install 'cubicflow[cli]'"
        ) from error
    globals()[name] = getattr(importlib.import_module(f"cubicflow.tables.{_HOMES[name]}"), name)
    return globals()[name]
