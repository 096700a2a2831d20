"""Every example on every page runs: Python blocks unchanged, commands on a small table. Training takes few steps."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from benchmarks.speed.__main__ import main as speed
from paper.__main__ import main as paper
from paper.experiment import EXPERIMENTS

from cubicflow.cli import main
from cubicflow.training import TrainingConfig

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A comment above a block names the package that it needs, or says that it needs a network or data.
PYTHON = re.compile(r"(?:<!-- needs: (\w+) -->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (cubicflow .*?)(?:\s+#.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(cubicflow [a-z].*?)`", re.DOTALL)
TOO_LONG = ("export", "explore")  # the server of explore runs until it is stopped
ELSEWHERE = ("network", "data")


class Example(NamedTuple):
    needs: str
    code: str
    line: int


def examples(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    return [Example(found[1] or "", found[2], text[: found.start(2)].count("\n")) for found in PYTHON.finditer(text)]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder; training stops after a few steps."""
    resolve = TrainingConfig.resolve

    def shortened(config: TrainingConfig, *args: object, **settings: bool) -> TrainingConfig:
        found = resolve(config, *args, **settings)  # type: ignore[arg-type]
        every = None if found.validate_every is None else 2
        return replace(found, steps=4, time_budget=None, warmup_steps=0, validate_every=every, log_every=1)

    monkeypatch.setattr(TrainingConfig, "resolve", shortened)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLOW = pytest.mark.soak  # torch traces two graphs for half a minute; tests/export writes and reads the same files
RUN = [pytest.param(page, marks=SLOW if page.name == "export.md" else ()) for page in PAGES if examples(page)]


def test_slow_pages_import_names_that_exist() -> None:
    """The small form of the pages that run in ``make soak`` only."""
    for example in examples(ROOT / "docs" / "export.md"):
        tree = ast.parse(example.code)
        tree.body = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
        exec(compile(tree, "export.md", "exec"), {})


@pytest.mark.parametrize("page", RUN, ids=page_name)
def test_python_runs(page: Path, workplace: Path) -> None:
    """The blocks of a page run one after the other, in one namespace."""
    import matplotlib.image

    matplotlib.image.imsave("portrait.jpg", np.random.default_rng(0).random((64, 64)))
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples(page):
        if example.needs and example.needs not in ELSEWHERE and find_spec(example.needs) is None:
            continue
        tree = ast.parse(example.code, str(page))
        if example.needs in ELSEWHERE:  # only the imports can be checked
            tree.body = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
        ast.increment_lineno(tree, example.line)
        with warnings.catch_warnings():
            if example.needs:  # ignore warnings raised in the code of a peer
                warnings.simplefilter("ignore")
            exec(compile(tree, str(page), "exec"), names)


def test_commands_run(workplace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Each command runs once, in the order of the pages and in one folder."""
    rng = np.random.default_rng(0)
    for name in ("table.csv", "new.csv"):
        size, kind = rng.normal(3, 1, 120), rng.choice(["a", "b"], 120)
        pd.DataFrame({"size": size, "weight": size + rng.gamma(2, 1, 120), "kind": kind}).to_csv(name, index=False)

    def run(command: str) -> None:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code in (0, None), f"{command}\n{capfd.readouterr().err}"

    commands = list(dict.fromkeys(c for page in PAGES for c in COMMAND.findall(page.read_text(encoding="utf-8"))))
    assert any(command.startswith("cubicflow fit") for command in commands)
    for command in commands:
        if command.split()[1] in TOO_LONG:
            continue
        if command.startswith("cubicflow compare"):
            shutil.copytree("run", "other-run")
        run(command)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Return a function that returns the help text of a command."""

    def help_of(name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cubicflow", name, "--help"])
        monkeypatch.setenv("COLUMNS", "300")
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    return help_of


def test_commands_exist(options: Callable[[str], str]) -> None:
    """Commands that are too long to run, and commands within a sentence, use commands and options that exist."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    used: dict[str, set[str]] = {}
    for command in {*COMMAND.findall(text), *INLINE.findall(text)}:
        _, name, *arguments = command.split()
        used.setdefault(name, set()).update(a for a in arguments if re.fullmatch(r"--[a-z-]+|-[a-z]", a))
    assert {"fit", "export"} <= used.keys()
    for name, given in used.items():
        known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", options(name)))
        assert known, f"there is no command cubicflow {name}"
        assert not given - known, f"cubicflow {name} has no {given - known}"


@pytest.mark.parametrize(("module", "run"), [("paper", paper), ("benchmarks.speed", speed)])
def test_commands_of_the_repository_exist(
    module: str, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages, and the page of the rerun with its recorded commands, use options that exist."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "results" / "README.md"])
    commands = re.findall(rf"python -m {re.escape(module)} ([^`\n]*)", text)
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        run()
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", capsys.readouterr().out))
    used = {word for command in commands for word in command.split() if re.fullmatch(r"--[a-z-]+|-[a-z]", word)}
    assert "-o" in used <= known
    if module == "paper":
        assert {command.split()[0] for command in commands} == {*EXPERIMENTS, "peers", "page"}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"(?<!`)\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    here = [target.split("#")[0] for target in targets if not target.startswith(("http", "#"))]
    missing = [target for target in here if not (page.parent / target).exists()]
    assert not missing
