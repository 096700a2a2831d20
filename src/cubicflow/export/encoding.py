"""The encoding of a table's columns as JSON, so that a program in any language can make the inputs of a graph.

The page on export documents every field; what is here is what the run's own config has, put in the order of use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.encoder import TableEncoder
from cubicflow.tables.likelihood import offsets

if TYPE_CHECKING:
    from cubicflow.tables import FittedTable


def encoding_of(table: FittedTable) -> dict[str, Any]:
    """What a service needs beside the graph."""
    encoder = table.encoder
    columns = [
        {**column.to_json(), "counts_mass": column.counts_mass}
        for column in table.schema.columns
        if column.role not in ("dropped", "weights")
    ]
    given = [column.name for column in table.schema.context]
    if isinstance(encoder, CellEncoder):
        described = encoder.to_json()
        cells = {name: described["cells"][name] for name in [*encoder.order, *given]}
        rules = [
            rule for rule in encoder.rules if encoder.cells[rule.dependent].only_masses(rule.values)
        ]  # a density has no part in a rule
        found: dict[str, Any] = {"model": "columns", "features": encoder.order, "context": given, "columns": columns}
        return {**found, "cells": cells, "rules": [rule.to_json() for rule in rules]}
    return _of_flow(encoder, columns, given)


def _of_flow(encoder: TableEncoder, columns: list[dict[str, Any]], given: list[str]) -> dict[str, Any]:
    features = [column.name for column in encoder.columns]
    found: dict[str, Any] = {"model": "flow", "features": features, "context": given, "columns": columns}
    if encoder.mass_features:
        found["offsets"] = offsets(encoder.mass_features).tolist()
    return found
