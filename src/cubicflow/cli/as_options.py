"""Arguments of Python's functions as options of a command."""

from __future__ import annotations

import shlex
from typing import Any

from cubicflow.advice import Advice, alternatives

OTHERWISE_NAMED = {"kinds": "type", "transforms": "transform", "constraints": "constraint"}
VALUE = "VALUE"  # stands for a value that the user chooses


def as_options(line: object) -> str:
    """Return a line, with the arguments of an advice as options.

    >>> as_options(Advice("column 'id' is text; leave it out", drop=["id"]))
    "column 'id' is text; leave it out with --drop id"
    >>> as_options(Advice("the range is too small; widen it", bounds={"size": ("LOW", "HIGH")}))
    'the range is too small; widen it with --bounds size=LOW:HIGH'
    """
    if not isinstance(line, Advice) or not line.arguments:
        return str(line)
    options = [_option(name, one) for name, value in line.arguments.items() for one in alternatives(value)]
    return f"{line.message} with {' or '.join(options)}"


def _option(name: str, value: Any) -> str:
    option = f"--{OTHERWISE_NAMED.get(name, name).replace('_', '-')}"
    if value is True or value is ...:
        return option
    if isinstance(value, dict):
        value = [f"{column}={_text(one)}" for column, one in value.items()]
    return f"{option} {shlex.quote(','.join(value) if isinstance(value, list) else str(value))}"


def _text(value: Any) -> str:
    return VALUE if value is ... else ":".join(value) if isinstance(value, tuple) else str(value)
