"""Tables: read a file, fit the density of its rows, score rows and sample new ones.

ARCHITECTURE.md lists the rooms in here, each of which builds on those above it, and the words that they use.
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
_NAMES = {
    "fitted": ("FittedTable", "MODELS", "SCORE_COLUMN", "SECTION", "Scores", "checked_device"),
    "fitting": ("fit_rows", "fit_table", "suited_model"),
    "judging.judgement": ("Judgement", "judge"),
    "kinds": ("KIND_NAMES",),
    "kinds.column": ("Column",),
    "model.network": ("ColumnsModel",),
    "query.answer": ("Conditional",),
    "read.places": ("open_table",),
    "read.table": ("Table",),
    "read.text.reading": ("Reading",),
    "schema": ("Schema",),
    "schema.inference": ("FEWEST_ROWS", "Inferred", "TableOptions", "infer", "real_schema"),
    "schema.split": ("Split", "Undivided"),
    "schema.usable_rows": ("Missing",),
    "table_error": ("TableError", "some"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
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
