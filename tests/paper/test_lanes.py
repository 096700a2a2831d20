"""Experiments in parallel: files that other processes read, and the script that runs experiments in lanes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.cells import load_scores, read_cells, rounded, save_scores, table_settings
from paper.recipe_files import load_recipe
from tests.helpers.command_line import Command

SCRIPT = Path(__file__).parents[2] / "paper" / "gpu.sh"
# STUB replaces Python. It logs its arguments and the number of lanes, writes a record, and fails for some arguments.
# MPS replaces NVIDIA's daemon. It logs its start and its standard input.
STUB = """#!{python}
import os, pathlib, sys
arguments = " ".join(sys.argv[1:])
with open(os.environ["CALLS"], "a") as file:
    file.write(os.environ.get("CUBICFLOW_LANES", "alone") + " " + arguments + "\\n")
if "table-1" in arguments:
    run = pathlib.Path(sys.argv[sys.argv.index("-o") + 1]) / "cells" / "run"
    run.mkdir(parents=True, exist_ok=True)
    (run / "weights").touch()
    run.with_name("record.json").touch()
print("said by " + arguments)
for part, status in (("quadratic", 75), ("figure-3", 2), ("--seconds 0", 75), (os.environ.get("BREAK", "nothing"), 1)):
    if part in arguments:
        sys.exit(status)
"""

MPS = """#!/bin/sh
if [ "$1" = -d ]; then echo "started in $CUDA_MPS_PIPE_DIRECTORY" >>"$CALLS"; else echo "told $(cat)" >>"$CALLS"; fi
"""


def test_other_processes_never_see_half_a_record(
    paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before a file is moved to its final name, all existing records can be read."""
    out = tmp_path / "out"
    settings = table_settings(load_recipe("table-1", tiny_table))
    seen: list[int] = []
    replace = Path.replace

    def look_first(self: Path, target: Any) -> Path:
        seen.append(len(read_cells(out, settings)))
        if (out / "table-1.json").exists():
            json.loads((out / "table-1.json").read_text())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look_first)
    models = ("--model", "cubic", "--model", "affine", "--seed", 0)
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    for _ in range(2):
        seen.clear()
        done = paper("table-1", "-o", out, *common, *models, "--overwrite")
        assert done.status == 0, done.errors
        recorded = seen[seen.index(0) :]  # earlier records are removed first, one after the other
        assert recorded == sorted(recorded)
        assert set(seen) == {0, 1, 2}
    assert not list(out.glob("**/.*"))  # no temporary file remains


def test_scores_are_kept_to_a_64th_of_a_nat_in_half_the_space(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(150, 60, 250_000).astype(np.float32)
    scores[:3] = np.nan, -np.inf, -1e6
    save_scores(tmp_path / "scores.npz", rounded(scores))
    again = load_scores(tmp_path / "scores.npz")
    assert again.dtype == np.float32
    np.testing.assert_array_equal(again, rounded(scores))
    np.testing.assert_allclose(again, scores, rtol=0, atol=1 / 128)
    assert again[3:].mean(dtype=float) == pytest.approx(scores[3:].mean(dtype=float), abs=1e-4)
    assert (tmp_path / "scores.npz").stat().st_size < scores.nbytes / 1.8
    (tmp_path / "scores.npz").write_bytes((tmp_path / "scores.npz").read_bytes()[:1000])
    with pytest.raises(ValueError, match="is damaged"):
        load_scores(tmp_path / "scores.npz")


def test_times_of_parallel_runs_are_marked(
    paper: Command, table_data: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results" / "table-1"
    common = ("--data", table_data, "--recipe", tiny_table, "--dataset", "miniboone", "--device", "cpu")
    command = ("table-1", "-o", folder, *common, "--seed", 0)
    assert paper(*command, "--model", "cubic").status == 0
    assert "longer than they would have alone" not in (folder / "table-1.md").read_text()
    monkeypatch.setenv("CUBICFLOW_LANES", "7")
    assert paper(*command, "--model", "affine", "--seconds", 900).status == 0
    record = json.loads((folder / "cells" / "miniboone" / "affine" / "seed-0" / "record.json").read_text())
    assert record["machine"]["lanes"] == 7
    monkeypatch.delenv("CUBICFLOW_LANES")
    assert paper("table-1", "-o", folder, *common, "--seconds", 0).status == 75
    page = (folder / "table-1.md").read_text()
    header, _, *lines = page[page.index("| dataset | model | seeds | parameters") :].split("\n\n")[0].splitlines()
    columns = [name.strip() for name in header.split("|")]
    rows = [dict(zip(columns, map(str.strip, line.split("|")), strict=True)) for line in lines]
    assert [(row["model"], row["on"], row["processes at once"]) for row in rows] == [
        ("cubic coupling, ours", "CPU", "1"),
        ("affine coupling", "CPU", "7"),
    ]
    assert "longer than they would have alone" in page
    assert ", shared by up to 7 processes" in page
    assert "--seconds 900" not in page  # the time limit of a call is not part of the recorded command
    monkeypatch.setenv("CUBICFLOW_LANES", "many")
    done = paper("figure-1", "--quick", "-o", tmp_path / "figure-1")
    assert done.status == 2
    assert "CUBICFLOW_LANES must be a whole number" in done.errors


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Return a function that runs the script on lanes with a stub for Python, and returns its result and the calls."""
    stub = tmp_path / "python"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    (tmp_path / "results").mkdir()

    def run(*lanes: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        calls = tmp_path / "calls"
        calls.write_text("")
        places = {"PYTHON": stub, "RESULTS": tmp_path / "results", "CALLS": calls, "DEVICE": "cpu"}
        done = subprocess.run(
            ["bash", str(SCRIPT), str(tmp_path / "out"), *lanes],
            env={**os.environ, **{name: str(value) for name, value in places.items()}, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done, calls.read_text().splitlines()

    return run


def test_lanes_run_their_pieces_and_the_table_is_made_once_at_the_end(script: Any, tmp_path: Path) -> None:
    done, calls = script("miniboone:cubic,affine@0,3+figure-1", "peers-bsds300:zuko-maf", "figure-3+appendix")
    table = f"3 -m paper table-1 -o {tmp_path}/results/table-1 --dataset miniboone"
    lane = [call for call in calls if "miniboone" in call or "figure-1" in call]
    assert [call.split(" --seconds")[0] for call in lane] == [
        f"{table} --model cubic --model affine --seed 0 --device cpu",
        f"{table} --model cubic --model affine --seed 3 --device cpu",
        f"3 -m paper figure-1 -o {tmp_path}/results/figure-1 --device cpu",
    ]
    (peer,) = [call for call in calls if "-m paper peers" in call]
    assert "--dataset bsds300 --model zuko-maf --seed 0 --device cpu --seconds 5" in peer
    assert any("load_benchmark" in call for call in calls[:1])  # the patches are drawn before the lanes start
    assert any("appendix" in call for call in calls)  # runs although figure-3 failed before
    assert calls[-2].startswith("alone -m paper table-1")
    assert calls[-2].endswith("--seconds 0")
    assert calls[-1].startswith("alone -m paper page")
    assert done.returncode == 2, done.stderr  # the status of figure-3
    assert "--- lane 3, figure-3+appendix: status 2" in done.stdout
    assert "--- lane 1, miniboone:cubic,affine@0,3+figure-1: status 0" in done.stdout
    log = (tmp_path / "out" / "lanes.log").read_text()
    assert "[2] said by -m paper peers" in log
    with tarfile.open(tmp_path / "out" / "results.tar.gz") as archive:
        names = archive.getnames()
    assert "./table-1/cells/record.json" in names
    assert not any("run" in name for name in names)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["lanes.log", "results.tar.gz"]


def test_an_unfinished_lane_is_no_failure(script: Any) -> None:
    done, _ = script("miniboone:quadratic", "figure-1")
    assert done.returncode == 75
    done, calls = script("miniboone:cubic", "figure-1", BUDGET="15")  # the start of Python may take that long
    assert done.returncode == 75
    assert "no time is left for" in done.stdout
    assert calls
    assert all(call.startswith("alone") for call in calls)  # only the table and the page


@pytest.mark.parametrize("works", [True, False])
def test_the_gpu_is_shared_through_mps_if_mps_works(script: Any, tmp_path: Path, works: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-cuda-mps-control").write_text(MPS)
    (tmp_path / "bin" / "nvidia-cuda-mps-control").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done, calls = script("figure-1", "appendix", DEVICE="cuda", PATH=path, BREAK="none" if works else "torch.ones")
    assert done.returncode == 0, done.stderr
    assert f"2 lanes on cuda, {'through' if works else 'without'} MPS" in done.stdout
    started, told = (next(i for i, call in enumerate(calls) if call.startswith(word)) for word in ("started", "told"))
    lanes = [i for i, call in enumerate(calls) if "figure-1" in call or "appendix" in call]
    assert started < told
    assert calls[told] == "told quit -t 5"
    assert len(lanes) == 2
    assert all((started < lane < told) is works for lane in lanes)
    assert not Path(calls[started].removeprefix("started in ")).exists()
    assert len([call for call in calls if call.startswith(("started", "told"))]) == 2
    assert not any("started" in call for call in script("figure-1", PATH=path)[1])  # the CPU needs no MPS


@pytest.mark.parametrize(
    ("lane", "message"),
    [
        ("minibone", "there is no piece 'minibone'"),
        ("figure-1+miniboone:cubik", "there is no model 'cubik' for miniboone"),
        ("peers-miniboone:cubic", "there is no model 'cubic' for peers-miniboone"),
        ("figure-2@3", "figure-2 has no models or seeds to choose"),
        ("miniboone@one", "'miniboone@one' is no piece"),
        ("miniboone:,@,", "'miniboone:,@,' is no piece"),
        ("", "'' is no lane"),
    ],
)
def test_a_wrong_lane_is_refused_before_anything_runs(script: Any, lane: str, message: str) -> None:
    done, calls = script("figure-1", lane)
    assert done.returncode == 2
    assert message in done.stderr
    assert calls == []
