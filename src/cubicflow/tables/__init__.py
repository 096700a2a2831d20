"""Tables: read a file, fit the density of its rows, score rows and sample new ones.

The main modules, each of which builds on those above it:

    table_error, arrow_types                errors; Arrow types
    unit_scale, maps                        the distribution function of a column; maps to a flow's numbers
    kinds/                                  codecs of columns, and a record for each kind
    read/                                   readers of file formats, of URLs and of queries; the record of a table
    schema/                                 the schema of a table and its inference, sets, used rows, the split
    laws/                                   one column: cells, sets as cells, the spline, the law
    model/                                  the two models of a table: a flow of numbers, and the model of columns
    axes                                    the bins of a column, for histograms and conditional distributions
    table_rows                              rows for training
    query/                                  conditions on any columns, imputation, constraints
    fitted, fitting                         a fitted table: samples and scores; from a file to a run folder
    run/                                    how a fit begins, the verdict on its scores, two runs compared, output files
    judging/                                the quality of sampled rows
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cubicflow.extras import need

if TYPE_CHECKING:
    from cubicflow.tables.fitted import MODELS as MODELS
    from cubicflow.tables.fitted import SCORE_COLUMN as SCORE_COLUMN
    from cubicflow.tables.fitted import SECTION as SECTION
    from cubicflow.tables.fitted import FittedTable
    from cubicflow.tables.fitted import Scores as Scores
    from cubicflow.tables.fitted import checked_device as checked_device
    from cubicflow.tables.fitting import fit_rows as fit_rows
    from cubicflow.tables.fitting import fit_table
    from cubicflow.tables.fitting import suited_model as suited_model
    from cubicflow.tables.judging.judgement import Judgement, judge
    from cubicflow.tables.kinds import KIND_NAMES as KIND_NAMES
    from cubicflow.tables.kinds.column import Column as Column
    from cubicflow.tables.model.network import ColumnsModel as ColumnsModel
    from cubicflow.tables.query.answer import Conditional
    from cubicflow.tables.read.places import open_table
    from cubicflow.tables.read.table import Table
    from cubicflow.tables.read.text.reading import Reading
    from cubicflow.tables.schema import Schema
    from cubicflow.tables.schema.inference import FEWEST_ROWS as FEWEST_ROWS
    from cubicflow.tables.schema.inference import Inferred as Inferred
    from cubicflow.tables.schema.inference import TableOptions, infer
    from cubicflow.tables.schema.inference import real_schema as real_schema
    from cubicflow.tables.schema.split import Split
    from cubicflow.tables.schema.split import Undivided as Undivided
    from cubicflow.tables.schema.usable_rows import Missing
    from cubicflow.tables.table_error import TableError
    from cubicflow.tables.table_error import some as some

# Names in __all__ are for users, the others for packages above. They are imported on first access: the command line
# lists the kinds of columns without importing torch.
_MODULES = {
    "Column": "kinds.column",
    "ColumnsModel": "model.network",
    "Conditional": "query.answer",
    "FEWEST_ROWS": "schema.inference",
    "FittedTable": "fitted",
    "Inferred": "schema.inference",
    "Judgement": "judging.judgement",
    "KIND_NAMES": "kinds",
    "MODELS": "fitted",
    "Missing": "schema.usable_rows",
    "Reading": "read.text.reading",
    "SCORE_COLUMN": "fitted",
    "SECTION": "fitted",
    "Schema": "schema",
    "Scores": "fitted",
    "Split": "schema.split",
    "Table": "read.table",
    "TableError": "table_error",
    "TableOptions": "schema.inference",
    "Undivided": "schema.split",
    "checked_device": "fitted",
    "fit_rows": "fitting",
    "fit_table": "fitting",
    "infer": "schema.inference",
    "judge": "judging.judgement",
    "open_table": "read.places",
    "real_schema": "schema.inference",
    "some": "table_error",
    "suited_model": "fitting",
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
    if name in __all__:
        need("pyarrow", "cubicflow.tables")
    globals()[name] = getattr(importlib.import_module(f"cubicflow.tables.{_MODULES[name]}"), name)
    return globals()[name]
