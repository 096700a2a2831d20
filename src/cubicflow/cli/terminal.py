"""What commands say. Names of columns and files come from strangers, and a terminal obeys what it is sent."""

from __future__ import annotations

import unicodedata

import typer

# Characters that a terminal obeys, that turn the direction of text, or that are none: controls, formats, surrogates and
# separators of lines.
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def escaped(text: str) -> str:
    """The text with such characters written out, as Python writes them.

    >>> escaped("size \x1b[31m(cm)\\u202e"), escaped("größe, 体重")
    ('size \\\\x1b[31m(cm)\\\\u202e', 'größe, 体重')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(one)[1:-1] if unicodedata.category(one) in OBEYED else one for one in text)


def say(line: object, *, err: bool = False) -> None:
    """Write one line to standard output, or to standard error."""
    typer.echo(escaped(str(line)), err=err)
