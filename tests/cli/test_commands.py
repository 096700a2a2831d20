"""Every command on a table with every kind of column: its output, its files and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as metadata_version
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.command_line import Command

import cubicflow as cf
from cubicflow.tables.kinds import KIND_NAMES

from .pets import ROWS, make_frame

NO_CONDITIONS = "for conditions on any column, fit a model of columns with --model columns"


def refused(outcome: tuple[int, str, str], said: str) -> None:
    status, _, errors = outcome
    assert status == 2, errors
    assert errors.count("error: ") == 1
    assert said in errors
    assert "Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_version_is_printed_without_torch() -> None:
    code = (
        "import sys\nfrom cubicflow.cli import main\nsys.argv = ['cubicflow', '--version']\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cubicflow {cf.__version__}, torch {metadata_version('torch')}, Python 3.")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_fit_prints_the_columns_and_the_next_commands(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ("--steps", 5, "--model", "flow", "--drop", "kind,tame", "--num-layers", 1, "--hidden-features", 8)
    status, output, errors = cubicflow("fit", table, "-o", run, *small)
    assert status == 0, errors
    for said in ("test log likelihood", "over 20 rows", "mass per step of 0.01", "density per unit", "always 'earth'"):
        assert said in output
    assert "cubicflow sample" in output
    assert "'planet' is always 'earth'" in errors
    config = json.loads((run / "config.json").read_text())
    assert [column["name"] for column in config["table"]["schema"]] == list(make_frame().columns)
    assert config["table"]["split"]["seed"] == 0
    refused(cubicflow("fit", table, "-o", run, *small), "already holds a run")
    assert cubicflow("fit", table, "-o", run, *small, "--resume").status == 0
    assert cubicflow("fit", table, "-o", run, *small, "--overwrite", "--seed", 3).status == 0
    assert json.loads((run / "config.json").read_text())["table"]["split"]["seed"] == 3


def test_evaluate_recognises_the_file_it_was_trained_on(
    cubicflow: Command, run: Path, table: Path, tmp_path: Path
) -> None:
    status, output, _ = cubicflow("evaluate", run, table)
    assert status == 0
    assert "this is the file that the model was fitted to" in output
    assert "over 160 rows" in output
    other = tmp_path / "other.csv"
    make_frame(50).to_csv(other, index=False)
    status, output, _ = cubicflow("evaluate", run, other)
    assert status == 0
    assert "the file that the model" not in output
    assert "over 50 rows" in output


def test_compare(cubicflow: Command, run: Path, columns_run: Path, conditional_run: Path, table: Path) -> None:
    status, output, _ = cubicflow("compare", run, run, table)
    assert status == 0
    assert "difference, second minus first: 0.000 ± 0.000 nats over 20 rows" in output
    assert "neither is better" in output
    refused(cubicflow("compare", columns_run, conditional_run, table), "cannot be compared: column 'kind' counts mass")


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_scores_agree_in_every_format(cubicflow: Command, run: Path, table: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"scores.{ending}"
    assert cubicflow("score", run, table, "-o", path).status == 0
    if ending == "npy":
        scores = np.load(path)
    else:
        scores = (pd.read_csv if ending == "csv" else pd.read_parquet)(path)["log_likelihood"].to_numpy()
    printed = cubicflow("score", run, table, "-o", "-").output.splitlines()
    assert len(scores) == ROWS == len(printed) - 1
    np.testing.assert_array_equal(scores, np.array(printed[1:], dtype=float))
    # A Parquet file of the same rows has the same scores.
    pq.write_table(
        pa.Table.from_pandas(make_frame().assign(born=lambda f: pd.to_datetime(f.born))), tmp_path / "t.parquet"
    )
    again = cubicflow("score", run, tmp_path / "t.parquet", "-o", "-").output.splitlines()
    np.testing.assert_array_equal(scores, np.array(again[1:], dtype=float))
    before = path.read_bytes()
    refused(cubicflow("score", run, table, "-o", path), "--overwrite")
    assert path.read_bytes() == before
    assert cubicflow("score", run, table, "-o", path, "--overwrite").status == 0


def test_scores_stay_aligned_where_values_are_missing(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    frame = make_frame(30)
    frame.loc[[3, 17], "size"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    refused(
        cubicflow("score", run, tmp_path / "gaps.csv", "-o", tmp_path / "s.csv"), "2 rows lack a value, in 'size' (2)"
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "gaps.csv"]
    assert cubicflow("score", run, tmp_path / "gaps.csv", "-o", tmp_path / "s.npy", "--missing", "drop").status == 0
    assert np.flatnonzero(np.isnan(np.load(tmp_path / "s.npy"))).tolist() == [3, 17]


def test_samples_load_like_the_table(cubicflow: Command, run: Path, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    assert cubicflow("sample", run, "-n", 300, "-o", path, "--seed", 1).status == 0
    real, samples = pd.read_csv(table).drop(columns=["kind", "tame"]), pd.read_csv(path)
    assert len(samples) == 300
    pd.testing.assert_series_equal(samples.dtypes, real.dtypes)
    assert set(samples["planet"]) == {"earth"}
    assert samples["legs"].min() >= 0
    np.testing.assert_array_equal(samples["size"], samples["size"].round(2))
    pd.to_datetime(samples["born"], format="%Y-%m-%d")
    printed = cubicflow("sample", run, "-n", 300, "-o", "-", "--seed", 1).output
    assert printed == path.read_text()
    assert cubicflow("evaluate", run, path).status == 0
    refused(cubicflow("sample", run, "-n", 3, "-o", tmp_path / "s.npy"), "a .npy file holds numbers")
    refused(cubicflow("sample", run, "-n", 3, "-o", tmp_path / "s.xlsx"), "should end in .csv, .parquet or .npy")
    refused(cubicflow("sample", run, "-n", 3, "-o", tmp_path / "no" / "s.csv"), "there is no folder")
    refused(cubicflow("sample", run, "-n", 3, "-o", "-", "--temperature", 0), "--temperature must be a number above 0")
    refused(cubicflow("sample", run, "-n", 3, "-o", "-", "--given", "kind=cat"), NO_CONDITIONS)
    refused(cubicflow("sample", run, "-n", 3, "-o", "-", "--given", "size>3"), NO_CONDITIONS)


def test_conditional_samples(cubicflow: Command, conditional_run: Path, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    given = ("--given", "kind=a, b", "--given", "size=3.25")
    assert cubicflow("sample", conditional_run, "-n", 20, "-o", path, *given).status == 0
    samples = pd.read_parquet(path)
    assert set(samples["kind"]) == {"a, b"}
    assert set(samples["size"]) == {3.25}
    assert "weight" not in samples
    assert cubicflow("evaluate", conditional_run, path).status == 0
    assert cubicflow("evaluate", conditional_run, table).status == 0
    refused(cubicflow("sample", conditional_run, "-n", 2, "-o", "-"), "give a value for 'kind', 'size'")
    refused(
        cubicflow("sample", conditional_run, "-n", 2, "-o", "-", "--given", "kind"),
        "a condition should be column=value",
    )
    twice = ("--given", "kind=cat", "--given", "kind=dog", "--given", "size=3")
    refused(cubicflow("sample", conditional_run, "-n", 2, "-o", "-", *twice), "given two values, 'cat' and 'dog'")


def test_bad_input_at_score_time(
    cubicflow: Command, run: Path, conditional_run: Path, table: Path, tmp_path: Path
) -> None:
    frame = make_frame(30)
    frame.assign(kind="fish").to_csv(tmp_path / "new.csv", index=False)
    unseen = "'kind' holds 'fish', which the fitted table did not"
    refused(cubicflow("score", conditional_run, tmp_path / "new.csv", "-o", tmp_path / "s.csv"), unseen)
    for changed, said in (
        (frame.drop(columns="size"), "column 'size' is missing"),
        (frame.assign(legs=-1), "outside of its fitted range, the first is -1"),
        (frame.assign(size=0.123), "not multiples of 0.01"),
        (frame.assign(planet="mars"), "was always 'earth'"),
        (frame.assign(weight=np.inf), "infinite"),
        (frame.assign(weight=1e300), "holds 1e+300, absurdly far from the fitted values"),
        (frame.assign(weight="heavy"), "'weight' should hold numbers, found 'heavy'"),
    ):
        path = tmp_path / "new.csv"
        changed.to_csv(path, index=False)
        refused(cubicflow("score", run, path, "-o", tmp_path / "s.csv"), said)
        assert [file.name for file in tmp_path.iterdir()] == ["new.csv"]
    for folder, said in (
        (tmp_path / "none", "no such folder"),
        (table, "not a folder"),
        (tmp_path, "does not hold a saved flow"),
    ):
        refused(cubicflow("evaluate", folder, table), said)
        refused(cubicflow("sample", folder, "-n", 3, "-o", "-"), said)
        refused(cubicflow("plot", folder), said)
    refused(cubicflow("evaluate", run, table, "--missing", "fill"), "one of error, drop, model")
    refused(cubicflow("evaluate", run, table, "--device", "abacus"), "the device 'abacus' cannot be used")


def test_bad_input_at_fit_time(cubicflow: Command, table: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ((tmp_path / "none.csv",), "no such file"),
        ((tmp_path,), "this folder holds no .parquet file"),
        ((table, "--type", "kind=real"), "cannot be real"),
        ((table, "--transform", "weight"), "takes column=value"),
        ((table, "--bounds", "weight=0"), "takes column=low:high"),
        ((table, "--drop", "legz"), "no column 'legz'"),
        ((table, "--steps", "-3"), "steps must be"),
        ((table, "--missing", "fill"), "one of error, drop, model"),
    ):
        refused(cubicflow("fit", *arguments, "-o", tmp_path / "run"), said)
        assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("mine")
    refused(cubicflow("fit", table, "-o", tmp_path / "file"), "is a file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    refused(cubicflow("fit", table, "-o", tmp_path / "mine"), "holds other files and no run")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


def test_doctor_in_a_source_tree_that_is_not_installed(cubicflow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("cubicflow.cli.doctor.version", version)
    status, output, _ = cubicflow("doctor")
    assert status == 0
    assert output.startswith(f"cubicflow {cf.__version__}, Python ")


def test_doctor(cubicflow: Command) -> None:
    status, output, _ = cubicflow("doctor")
    assert "yes  shortcuts" in output
    assert status == 0
    assert "yes  backend reference" in output
    assert "pyarrow" in output


@pytest.mark.parametrize("command", ["fit", "evaluate", "compare", "score", "sample", "plot", "doctor"])
def test_help_shows_an_example(cubicflow: Command, command: str) -> None:
    status, output, _ = cubicflow(command, "--help")
    assert status == 0
    assert f"Example: cubicflow {command}" in output


def test_help_names_every_kind_of_column(cubicflow: Command) -> None:
    output = cubicflow("fit", "--help").output
    assert [kind for kind in KIND_NAMES if kind not in output] == []


def test_an_error_names_the_option_that_solves_it(cubicflow: Command, run: Path, tmp_path: Path) -> None:
    """In Python, the message names no option. On the command line, it names the option that solves the problem."""
    frame, path = make_frame(30), tmp_path / "new.csv"
    for changed, options, said in (
        (
            frame.assign(id=[f"name {i}" for i in range(30)]),
            ("--context", "id"),
            "to learn from it; leave it out with --drop id",
        ),
        (
            frame.assign(size=[None, *range(29)]),
            ("--missing", "error"),
            "fit a model of columns, or leave such rows out with --missing drop",
        ),
        (frame.assign(size=-frame["size"]), ("--transform", "size=log"), "transform asinh with --transform size=asinh"),
        (frame, ("--bounds", "kind=0:1"), "bounds apply to numbers, but column 'kind' is categorical"),
        (frame, ("--drop", "size", "--context", "size"), "named in both drop and context"),
    ):
        changed.to_csv(path, index=False)
        refused(cubicflow("fit", path, "-o", tmp_path / "run", *options), said)
    frame.assign(legs=-1).to_csv(path, index=False)
    refused(cubicflow("score", run, path, "-o", "-"), "widen the bounds with --bounds legs=LOW:HIGH")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['cubicflow', '--help']\n"
        "from cubicflow.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pyarrow', 'matplotlib', 'pandas', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_error(run: Path) -> None:
    command = f"{sys.executable} -m cubicflow sample {run} -n 5000 -o - | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
