"""Every command of the first pages, on a run of either model: it works, or one line names the remedy."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from cubicflow.cli import main
from cubicflow.tables.judging import measures

from .test_pages import COMMAND, INLINE, ROOT, TOO_LONG

PAGES = ("README.md", "docs/tables.md")
FIT = "cubicflow fit table.csv -o run"
CONDITIONAL = "--given a=3 --given b=yes"  # of the command for a run with the context columns a and b
TINY = " --steps 20 --hidden-features 8 --device cpu"
REMEDY = re.compile(r"(?<= )--[a-z][a-z-]+|cubicflow [a-z]+")
OPTION = re.compile(r"(?<=cubicflow) (sample|score) (?=--[a-z-]+$)")  # a page may name only the command and its option
ARGUMENTS = {"sample": "run -n 3 -o -", "score": "run new.csv -o -"}
ROWS = 60


def commands() -> list[str]:
    """Return the commands of the pages that use the run or its tables, each once, in the order of the pages."""
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    found = [command for text in texts for command in (*COMMAND.findall(text), *INLINE.findall(text))]
    found = [OPTION.sub(lambda named: f" {named[1]} {ARGUMENTS[named[1]]} ", command) for command in found]
    shown = {re.sub(r"\s+", " ", command): None for command in found}
    used = re.compile(r"cubicflow \w+ (run|new\.csv)( |$)|cubicflow doctor$")
    return [command for command in shown if used.match(command) and command.split()[1] not in TOO_LONG]


class Outcome(NamedTuple):
    status: int
    errors: str


def run_command(command: str) -> Outcome:
    """Run a command in this process, with a classifier of ``judge`` that is trained twice instead of five times."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(errors):
        patch.setattr(sys, "argv", shlex.split(command))
        patch.setattr(measures, "FOLDS", 2)
        with pytest.raises(SystemExit) as stopped:
            main()
    return Outcome(0 if stopped.value.code is None else int(stopped.value.code), errors.getvalue())


@pytest.fixture(scope="module", params=["flow", "columns"])
def workplace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tables and runs, for which ``fit`` chooses the model: complete real numbers get a flow."""
    folder = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(0)
    for name in ("table", "new", "big", "conditional"):
        size = rng.normal(3, 1, ROWS)
        frame = pd.DataFrame({"size": size, "weight": size + rng.gamma(2, 1, ROWS)})
        if request.param == "columns":
            frame = frame.round(2).assign(kind=rng.choice(["oak", "elm"], ROWS))
            frame.loc[::9, "weight"] = np.nan
        if name == "conditional":
            frame = frame.assign(a=rng.integers(1, 5, ROWS), b=rng.choice(["yes", "no"], ROWS))
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        fitted = run_command(f"{FIT}{TINY}")
        assert fitted.status == 0, fitted.errors
        chose_flow = "so the model is a flow" in fitted.errors
        assert chose_flow == (request.param == "flow")
        assert ("--model columns" in fitted.errors) == chose_flow
        assert run_command(f"cubicflow fit conditional.csv -o conditional --context a,b{TINY}").status == 0
        shutil.copytree("run", "other-run")
        assert run_command(f"cubicflow sample run -n {ROWS} -o judged.csv --seed 0").status == 0
    return folder


def test_the_pages_have_the_commands_of_a_first_hour() -> None:
    assert {command.split()[1] for command in commands()} >= {"score", "sample", "impute", "judge", "plot", "evaluate"}
    assert {"--complete", "--observed-only", "--protect-formulas"} <= {command.split()[-1] for command in commands()}
    assert FIT in COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", commands())
def test_a_command_works_or_one_line_names_the_remedy(
    command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    shutil.rmtree(workplace / "run" / "plots", ignore_errors=True)
    if command.startswith("cubicflow judge new.csv samples.csv"):
        shutil.copy("judged.csv", "samples.csv")
    if command.endswith(CONDITIONAL):
        command = command.replace(" run ", " conditional ")
    status, errors = run_command(command)
    if status:
        assert status == 2, errors
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
        assert set(REMEDY.findall(errors)) - set(command.split()), errors


@pytest.mark.parametrize("workplace", ["flow"], indirect=True)
@pytest.mark.parametrize("condition", ["size>3", "size=3", "size in 1..3", "size is missing", "size!=3"])
def test_every_condition_on_a_flow_names_the_same_remedy(
    condition: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    status, errors = run_command(f"cubicflow sample run -n 3 -o - --given '{condition}'")
    assert status == 2
    assert errors.endswith("for conditions on any column, fit a model of columns with --model columns\n")
