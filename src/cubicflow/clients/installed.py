"""A check that another package is installed and new enough."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version


def demand(package: str, oldest: str) -> None:
    """Raise ImportError if ``package`` is missing or older than version ``oldest``.

    >>> demand("torch", "2.0")
    >>> demand("torch", "99.0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ImportError: cubicflow.clients.torch needs torch 99.0 or newer, found ...; pip install -U 'cubicflow[torch]'
    """
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(
            f"cubicflow.clients.{package} needs {package}, which is not installed; pip install 'cubicflow[{package}]'"
        ) from None
    if _numbers(found) < _numbers(oldest):
        raise ImportError(
            f"cubicflow.clients.{package} needs {package} {oldest} or newer, found {found}; "
            f"pip install -U 'cubicflow[{package}]'"
        )


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: (0, 27, 0) for 0.27.0rc1."""
    release = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
