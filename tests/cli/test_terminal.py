"""Control characters are escaped in the output, and formulas can be protected from spreadsheets."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from tests.helpers.command_line import Command

from cubicflow.cli.terminal import escaped

from .pets import make_frame

RED, TITLE, BACK = "\x1b[31m", "\x9b2J", "\u202e"
ODD = {"size": f"si{RED}ze", "kind": f"ki{BACK}nd", "legs": f"le\x07gs{TITLE}"}
FAST = ("--steps", 2, "--hidden-features", 4)


def control_characters(text: str) -> list[str]:
    """Return the control characters in a text, except line ends."""
    return [one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"]


def test_every_control_character_is_escaped() -> None:
    for number in range(0x110000):
        one = chr(number)
        if control_characters(one) or one == "\n":
            assert escaped(one).isascii()
            assert escaped(one).startswith("\\")
        else:
            assert escaped(one) == one


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / f"t{RED}able.csv"
    make_frame(60).rename(columns=ODD).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("model", [("columns",), ("flow", "--drop", ODD["kind"], "--drop", "tame")], ids=lambda m: m[0])
def test_names_are_shown_escaped(cubicflow: Command, odd: Path, tmp_path: Path, model: tuple[str, ...]) -> None:
    run = tmp_path / f"r{TITLE}un"
    fitted = cubicflow("fit", odd, "-o", run, "--model", *model, *FAST)
    assert fitted.status == 0, fitted.errors
    assert "si\\x1b[31mze" in fitted.output
    said = [fitted, cubicflow("evaluate", run, odd), cubicflow("compare", run, run, odd)]
    said += [
        cubicflow("fit", odd, "-o", run, "--drop", f"no{RED}"),
        cubicflow("score", run, tmp_path / f"{RED}", "-o", "-"),
    ]
    said += [cubicflow("fit", odd, "-o", tmp_path / "other", "--drop", f"no{RED}")]
    for outcome in said:
        assert control_characters(outcome.output) + control_characters(outcome.errors) == []
    config = json.loads((run / "config.json").read_text())
    config[f"s{RED}ection"] = config["flow"][f"k{TITLE}ey"] = 1
    config["flow"]["type"] = f"F{RED}low"
    (run / "config.json").write_text(json.dumps(config))
    status, output, errors = cubicflow("sample", run, "-n", 3, "-o", "-")
    assert status == 2
    assert "F\\x1b[31mlow" in errors
    assert control_characters(output) + control_characters(errors) == []


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "plain", "a=b", "＝1"]


@pytest.fixture
def formulas(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"=word": FORMULAS * 12, "n": [-1.5, 2.0, 3.25, -4.5] * 21})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_formulas(cubicflow: Command, formulas: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cubicflow("fit", formulas, "-o", run, *FAST).status == 0
    for name, options in (("plain.csv", ()), ("protected.csv", ("--protect-formulas",))):
        done = cubicflow("sample", run, "-n", 60, "--seed", 0, "-o", tmp_path / name, *options)
        assert done.status == 0, done.errors
    plain, safe = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("plain", "protected"))
    assert set(plain["=word"]) == set(FORMULAS)  # the default leaves values unchanged
    kept = {"plain", "a=b"}
    expected = [word if word in kept else f"'{word}" for word in plain["=word"]]
    assert safe["'=word"].tolist() == expected
    assert safe["n"].tolist() == plain["n"].tolist()
    shown = cubicflow("sample", run, "-n", 60, "--seed", 0, "-o", "-", "--protect-formulas")
    assert shown.output == (tmp_path / "protected.csv").read_text()
    refused = cubicflow("sample", run, "-n", 6, "-o", tmp_path / "t.parquet", "--protect-formulas")
    assert refused.status == 2
    assert "--protect-formulas needs a .csv file or standard output" in refused.errors
