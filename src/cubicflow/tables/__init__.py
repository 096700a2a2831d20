"""Tables: read a file, fit the density of its rows, score rows and sample new ones.

The main modules, each of which builds on those above it:

    table_error, arrow_types, maps          errors; Arrow types; maps between numbers, with their log slopes
    kinds/                                  one class for each kind of column, and their registry
    read/                                   readers of file formats, of URLs and of queries; the record of a table
    usable_rows, split, time_order          rows that lack a value; training, validation and test rows; splits by time
    schema/, doubts, inference              the schema of a table, sets of values, and how a schema is inferred
    encoder, likelihood                     for a flow: rows to numbers and back, log likelihoods
    unit_scale, cells, dependencies, cell_encoder
                                            for a model of columns: rows to cells and back, dependent columns
    model/                                  masses of intervals, the cells of sets, and the law of a column
    columns_cores, columns_model, columns_likelihood
                                            the model of columns: networks, heads; scores and samples
    table_rows                              rows for training
    query/                                  conditions on any columns, imputation, constraints
    independent, honest_score               baselines of a score: independent columns, and the training rows
    sampled_table, fitted, scored_parts, comparing
                                            a fitted table: samples, scores, scores of each part, two runs compared
    copied_rows, resumed_table, started_run copies across the split; resumed runs; runs that start from another run
    fitting, output                         from a file to a run folder; rows and scores to files
    judging/                                the quality of sampled rows
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cubicflow.extras import need

if TYPE_CHECKING:
    from cubicflow.tables.encoder import TableEncoder
    from cubicflow.tables.fitted import FittedTable
    from cubicflow.tables.fitting import fit_table
    from cubicflow.tables.inference import TableOptions, infer
    from cubicflow.tables.judging.judgement import Judgement, judge
    from cubicflow.tables.query.answer import Conditional
    from cubicflow.tables.read.places import open_table
    from cubicflow.tables.read.reading import Reading
    from cubicflow.tables.read.table import Table
    from cubicflow.tables.schema import Schema
    from cubicflow.tables.split import Split
    from cubicflow.tables.table_error import TableError
    from cubicflow.tables.usable_rows import Missing

# Names are imported on first access: the command line lists the kinds of columns without importing torch.
_MODULES = {
    "Conditional": "query.answer",
    "FittedTable": "fitted",
    "Judgement": "judging.judgement",
    "Missing": "usable_rows",
    "Reading": "read.reading",
    "Schema": "schema",
    "Split": "split",
    "Table": "read.table",
    "TableEncoder": "encoder",
    "TableError": "table_error",
    "TableOptions": "inference",
    "fit_table": "fitting",
    "infer": "inference",
    "judge": "judging.judgement",
    "open_table": "read.places",
}
# __all__ is a literal because the API reference is built from it without running this file.
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
    if name not in _MODULES:
        raise AttributeError(f"module 'cubicflow.tables' has no attribute {name!r}")
    need("pyarrow", "cubicflow.tables")
    globals()[name] = getattr(importlib.import_module(f"cubicflow.tables.{_MODULES[name]}"), name)
    return globals()[name]
