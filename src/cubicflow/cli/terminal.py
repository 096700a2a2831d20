"""Output of commands. Control characters in names of columns and files are escaped: a terminal would execute them."""

from __future__ import annotations

import unicodedata

import typer

from cubicflow.cli.as_options import as_options

# Unicode categories of characters that control a terminal or the direction of text: controls, formats, surrogates, and
# line and paragraph separators.
ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def escaped(text: str) -> str:
    """Return the text with control characters replaced by Python's escape sequences.

    >>> escaped("size \x1b[31m(cm)\\u202e"), escaped("größe, 体重")
    ('size \\\\x1b[31m(cm)\\\\u202e', 'größe, 体重')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(one)[1:-1] if unicodedata.category(one) in ESCAPED else one for one in text)


def say(line: object, *, err: bool = False) -> None:
    """Write one line, which may be an advice, to standard output, or to standard error."""
    typer.echo(escaped(as_options(line)), err=err)
