"""Packages that cubicflow uses: the purpose of each, the extra that installs it, and the oldest version that works."""

from __future__ import annotations

import importlib
import re
from importlib.metadata import version
from typing import Any, NamedTuple


class Package(NamedTuple):
    """Package that cubicflow imports where it is needed.

    Attributes:
        purpose: what it is used for.
        extra: the extra of cubicflow that installs it; empty for packages that come with cubicflow or torch.
        oldest: the oldest version that works; empty for any.
        module: the name to import, if it is not the package's name.
    """

    purpose: str
    extra: str = ""
    oldest: str = ""
    module: str = ""


PACKAGES = {
    "torch": Package("everything"),
    "safetensors": Package("saving and loading"),
    "pyarrow": Package("tables and Parquet files", "cli"),
    "matplotlib": Package("pictures", "cli"),
    "pillow": Package("reading pictures", "cli", module="PIL"),
    "typer": Package("the command line", "cli"),
    "rich": Package("progress in a terminal", "cli"),
    "scikit-learn": Package("the scikit-learn interface and judge", "sklearn", module="sklearn"),
    "starlette": Package("the page of explore", "explore"),
    "uvicorn": Package("the page of explore", "explore"),
    "openpyxl": Package("spreadsheets", "excel"),
    "duckdb": Package("DuckDB queries", "duckdb"),
    "fsspec": Package("URLs other than http, s3 and gs", "remote"),
    "ray": Package("the engine ray", "ray", oldest="2.50"),
    "onnx": Package("writing ONNX", "onnx"),
    "onnxscript": Package("writing ONNX", "onnx"),
    "sbi": Package("cubicflow.clients.sbi", "sbi", oldest="0.26"),
    "nessai": Package("cubicflow.clients.nessai", "nessai", oldest="0.13"),
    "triton": Package("the GPU backend"),
}


def need(name: str, user: str) -> Any:
    """Import one of PACKAGES, and return its module.

    Args:
        name: the name of the package.
        user: what needs the package, for the message.

    Raises:
        ImportError: the package is not installed, or too old. The message names the remedy.

    >>> need("scikit-learn", "the estimators").__name__
    'sklearn'
    """
    package = PACKAGES[name]
    module = package.module or name
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # an installed package that lacks one of its own dependencies
            raise
        raise ImportError(f"{user} needs {name}, which is not installed; use: {install(name)}") from None
    if package.oldest and _numbers(version(name)) < _numbers(package.oldest):
        wanted = f"{name} {package.oldest} or newer, found {version(name)}"
        raise ImportError(f"{user} needs {wanted}; use: {install(name)} --upgrade")
    return found


def install(name: str) -> str:
    """Return the command that installs a package.

    >>> install("openpyxl")
    "pip install 'cubicflow[excel]'"
    """
    return f"pip install 'cubicflow[{PACKAGES[name].extra}]'"


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: (0, 27, 0) for 0.27.0rc1."""
    release = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
