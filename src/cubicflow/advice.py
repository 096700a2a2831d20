"""Messages that end with an argument: Python shows ``drop=['id']``, and the command line shows ``--drop id``."""

from __future__ import annotations

from typing import Any


class Advice(str):
    """A message whose last advice is an argument, or one of several arguments.

    Attributes:
        message: the text without the arguments.
        arguments: the arguments by name. ``...`` stands for a value that the user chooses, a tuple for alternatives.

    >>> print(Advice("column 'id' is text; leave it out", drop=["id"]))
    column 'id' is text; leave it out with drop=['id']
    >>> print(Advice("there is a run; continue it, or start over", resume=True, overwrite=True))
    there is a run; continue it, or start over with resume=True or overwrite=True
    """

    message: str
    arguments: dict[str, Any]

    def __new__(cls, message: str, **arguments: Any) -> Advice:
        pairs = [(name, one) for name, value in arguments.items() for one in alternatives(value)]
        shown = " or ".join(f"{name}={value!r}".replace("Ellipsis", "...") for name, value in pairs)
        advice = super().__new__(cls, f"{message} with {shown}" if shown else message)
        advice.message, advice.arguments = message, arguments
        return advice

    @classmethod
    def after(cls, start: str, text: str) -> Advice:
        """Return a message, which may be an advice, with some text before it."""
        return cls(f"{start}{text.message}", **text.arguments) if isinstance(text, Advice) else cls(f"{start}{text}")


def alternatives(value: Any) -> tuple[Any, ...]:
    """Return the values of an argument: those of a tuple, or the only one."""
    return value if isinstance(value, tuple) else (value,)


class AdvisedError(Exception):
    """An error whose message is an :class:`Advice`.

    >>> error = AdvisedError("row 7 lacks a value; leave such rows out", missing="drop")
    >>> str(error), error.advice.arguments
    ("row 7 lacks a value; leave such rows out with missing='drop'", {'missing': 'drop'})
    """

    def __init__(self, message: str, **arguments: Any) -> None:
        is_advice = isinstance(message, Advice) and not arguments  # when the error is unpickled
        super().__init__(message if is_advice else Advice(message, **arguments))

    @property
    def advice(self) -> Advice:
        """The message with its arguments."""
        advice: Advice = self.args[0]
        return advice


def message_of(error: BaseException) -> str:
    """Return the message of an error without arguments, for readers who call no function."""
    found = error.args[0] if error.args else ""
    return found.message if isinstance(found, Advice) else str(error)
