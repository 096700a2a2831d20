"""Docstrings as Markdown.

Examples become code blocks. A role such as :func:`name` becomes the name alone. An entry for two arguments
("a, b: ...") becomes one entry for each.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.MULTILINE)  # up to the next empty line
ROLE = re.compile(r":(?:func|class|meth|mod):`~?(?:[\w.]*\.)?(\w+)`")
SHARED = re.compile(r"^( +)((?:\w+, )+\w+): (.*(?:\n\1 +.*)*)", re.MULTILINE)


class ReadableDocstrings(griffe.Extension):
    """Griffe extension that converts every docstring of the reference."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown that the reference can render."""
    fenced = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)
    return SHARED.sub(_one_for_each, ROLE.sub(r"`\1`", fenced))


def _one_for_each(found: re.Match[str]) -> str:
    indent, names, text = found.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))
