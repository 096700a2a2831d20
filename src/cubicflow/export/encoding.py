"""The encoding of a table's columns as JSON, so that a program in any language can compute the inputs of a graph.

The documentation page on export describes every field. The fields are copied from the run's config.json, in the order
in which a program needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubicflow.tables.model.flow import offsets

if TYPE_CHECKING:
    from cubicflow.tables import FittedTable


def encoding_of(table: FittedTable) -> dict[str, Any]:
    """Return the encoding of a fitted table's columns, which a program needs beside the graph."""
    columns = [
        {**column.to_json(), "counts_mass": column.counts_mass}
        for column in table.schema.columns
        if column.role not in ("dropped", "weights")
    ]
    given = [column.name for column in table.schema.context]
    found: dict[str, Any] = {
        "model": table.model.name,
        "features": table.model.order,
        "context": given,
        "columns": columns,
    }
    if table.model.has_laws:
        encoder = table.model.laws().encoder
        described = encoder.to_json()
        cells = {name: described["cells"][name] for name in [*encoder.order, *given]}
        rules = [
            rule for rule in encoder.rules if encoder.cells[rule.dependent].only_masses(rule.values)
        ]  # rules apply only to columns with probability masses, not to densities
        return {**found, "cells": cells, "rules": [rule.to_json() for rule in rules]}
    if features := table.encoder.noise_features:
        found["offsets"] = offsets(features).tolist()
    return found
