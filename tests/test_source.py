"""Rules on the source code that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import cubicflow
from cubicflow import distributions, transforms

SOURCE = Path(cubicflow.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHER_PROGRAMS = {"--head", "--upgrade", "--force-reinstall", "--no-cache-dir", "--no-binary", "--no-deps"}
# of named tuples, of the os module, and of distributions in torch
PUBLIC_DESPITE_THEIR_NAMES = {"_asdict", "_fields", "_replace", "_exit", "_extended_shape"}
CONTRACTS = {"Base", "Transform"}
CONTAINERS = {"Compose", "Inverse", "MultiScale"}  # other code walks through them
Trees = dict[Path, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """Return the syntax tree of every module. The garbage collector walks through them as long as they are kept."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_every_class_has_a_name_of_its_own(trees: Trees) -> None:
    places = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_nobody_asks_for_the_class_of_a_layer_or_of_a_base(trees: Trees) -> None:
    """Layers and bases say of themselves what others need to know. A question for one class would leave out classes
    of users."""
    public = [getattr(package, name) for package in (distributions, transforms) for name in package.__all__]
    parts = {cls.__name__ for cls in public if issubclass(cls, distributions.Base | transforms.Transform)}
    parts -= CONTAINERS | CONTRACTS
    found = [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path, tree in trees.items()
        for line, names in asked_classes(tree)
        for name in sorted(names & (parts - defined_in(tree)))
    ]
    assert found == []


def test_only_the_command_line_knows_its_options(trees: Trees) -> None:
    """Messages carry the arguments of functions, and the command line shows them as options."""
    found = [
        f"{path.relative_to(SOURCE)}:{line} {option}"
        for path, tree in trees.items()
        if path.parent.name != "cli"
        for line, text in texts_in(tree)
        for option in OPTION.findall(text)
        if option not in OF_OTHER_PROGRAMS
    ]
    assert found == []
    assert [*texts_in(ast.parse('"""a --b"""\ndef f():\n  """--c"""\n  return f"--dd {1}"'))] == [(4, "--dd ")]


def test_no_package_uses_private_names_of_another(trees: Trees) -> None:
    """A name that begins with _ is used only in the package that defines it. ``accel`` holds those of torch."""
    defined = defaultdict(set)
    for path, tree in trees.items():
        defined[package_of(path)] |= private_names(tree)
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.attr}"
        for path, tree in trees.items()
        if package_of(path) != "accel"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)
        if node.attr not in defined[package_of(path)] | PUBLIC_DESPITE_THEIR_NAMES
    ]
    assert found == []
    source = "class _A:\n  _b: int\n  def _c(self): self._d, _e = 1, 2"
    assert private_names(ast.parse(source)) == {"_A", "_b", "_c", "_d", "_e"}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def private_names(tree: ast.Module) -> set[str]:
    """Return the names beginning with _ that a module defines: functions, classes, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return {name for name in names if name.startswith("_")}


def texts_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the value of every string but docstrings."""
    docstrings = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.lineno, node.value


def asked_classes(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Yield the line and the names of every ``isinstance(x, names)`` and every comparison with ``type(x)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_name(node.func, "isinstance", "issubclass"):
            yield node.lineno, names_in(node.args[1])
        elif isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Call) and is_name(side.func, "type") for side in (node.left, *node.comparators)
        ):
            yield node.lineno, names_in(node)


def is_name(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def names_in(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def defined_in(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
