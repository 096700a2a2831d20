"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table as Markdown.

    >>> print(markdown_table(["a", "b"], [[1, "2 | 3"]]))
    | a | b |
    |---|---|
    | 1 | 2 \\| 3 |
    """
    first, *others = ("| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])
