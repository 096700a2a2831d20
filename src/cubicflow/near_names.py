"""The error message for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def no_such(owner: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Return a message about an unknown name, with the closest known name, if any is close, and all known names.

    >>> no_such("rows.parquet", "column", "lable", ["x", "label"])
    "rows.parquet has no column 'lable'; did you mean 'label'? It has: x, label"
    >>> no_such("rows.parquet", "column", "z", ["x", "label"])
    "rows.parquet has no column 'z'. It has: x, label"
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{owner} has no {kind} {name!r}{hint} It has: {', '.join(names)}"
