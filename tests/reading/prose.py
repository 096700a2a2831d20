"""The prose of the project: docstrings, comments and messages of its Python files, and its pages."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "tests", "benchmarks")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DIRECTIVES = ("# noqa", "# type:", "# pragma", "#!")


class Passage(NamedTuple):
    """A piece of prose, with the file and line where it starts."""

    file: Path
    line: int
    text: str


def docstrings() -> list[Passage]:
    """Return the docstrings of modules, classes and functions under ``src``, each with its signature."""
    found = []
    for file, source in _sources("src"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                head = "" if isinstance(node, ast.Module) else source.splitlines()[node.lineno - 1].strip() + "\n"
                found.append(Passage(file, getattr(node, "lineno", 1), head + text))
    return found


def comments() -> list[Passage]:
    """Return the comments of all Python files, consecutive lines joined, each with the line of code it explains."""
    found = []
    for file, source in _sources(*SOURCES):
        lines = source.splitlines()
        for first, last in _blocks(source):
            if lines[first - 1].lstrip().startswith("#"):  # a full-line comment: show the code below it
                text = "\n".join(line.strip() for line in lines[first - 1 : last + 1])
            else:
                text = lines[first - 1].strip()
            found.append(Passage(file, first, text))
    return found


def messages() -> list[Passage]:
    """Return the texts of raised errors and of warnings under ``src``, as expressions."""
    found = []
    for file, source in _sources("src"):
        for node in ast.walk(ast.parse(source)):
            call = node.exc if isinstance(node, ast.Raise) else node
            is_warning = isinstance(call, ast.Call) and ast.unparse(call.func) == "warnings.warn"
            if isinstance(call, ast.Call) and call.args and (is_warning or isinstance(node, ast.Raise)):
                found.append(Passage(file, call.lineno, ast.unparse(call)))
    return found


def pages() -> list[Path]:
    """Return the pages a person reads: those of the root and of ``docs``, without generated tables."""
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in written if page.name not in ("CHANGELOG.md", "bench.md"))


def _sources(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file, file.read_text(encoding="utf-8")


def _blocks(source: str) -> list[tuple[int, int]]:
    """Return the first and last line of every comment. Full-line comments on consecutive lines are one."""
    blocks: list[tuple[int, int]] = []
    previous_own = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(DIRECTIVES):
            continue
        line, own = token.start[0], token.line.lstrip().startswith("#")
        if own and previous_own and blocks[-1][1] == line - 1:
            blocks[-1] = (blocks[-1][0], line)
        else:
            blocks.append((line, line))
        previous_own = own
    return blocks
