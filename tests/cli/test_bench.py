"""``cubicflow bench`` measures, and leaves a CSV, a table and a picture that agree."""

from __future__ import annotations

import json

from cubicflow.bench import report
from cubicflow.bench.timing import measure


def test_measures_and_reports(cubicflow, tmp_path):
    out = tmp_path / "bench"
    done = cubicflow("bench", "-o", out, "--only", "splines", "--quick", "--device", "cpu")
    assert done.status == 0, done.errors
    assert sorted(path.name for path in out.iterdir()) == ["bench.csv", "bench.md", "bench.png", "machine.json"]
    found = report.read(out / "bench.csv")
    assert {m.work.split(",")[0] for m in found} == {"spline forward", "spline inverse", "spline forward + backward"}
    assert all(0 < m.p10 <= m.median <= m.p90 for m in found)
    assert "cubicflow reference" in {m.implementation for m in found}
    about = json.loads((out / "machine.json").read_text())
    assert about["versions"]["torch"]
    assert (out / "bench.md").read_text() == report.table(found, about)


def test_curves_are_drawn_of_what_grows(cubicflow, tmp_path):
    out = tmp_path / "bench"
    done = cubicflow("bench", "-o", out, "--only", "scaling", "--quick", "--device", "cpu")
    assert done.status == 0, done.errors
    found = report.read(out / "bench.csv")
    assert {(m.curve, m.at) for m in found} == {("elements", 2**10), ("elements", 2**12)} | {
        ("bins", k) for k in (1, 4, 16)
    }
    assert {path.name for path in out.glob("*.png")} == {"elements.png", "bins.png"}


def test_refuses_to_overwrite_and_unknown_parts(cubicflow, tmp_path):
    (tmp_path / "kept").mkdir()
    for arguments, message in (
        (("-o", tmp_path / "kept"), "exists; choose another folder"),
        (("-o", tmp_path / "new", "--only", "speed"), "there is no part 'speed' to measure; there are splines"),
    ):
        done = cubicflow("bench", *arguments)
        assert done.status == 2
        assert message in done.errors
        assert "Traceback" not in done.errors


def test_a_contender_that_fails_is_left_out(capsys):
    import torch

    def broken():
        raise RuntimeError("no kernel for this")

    found = measure("work", {"good": lambda: None, "bad": broken}, torch.device("cpu"), seconds=0.01)
    assert [m.implementation for m in found] == ["good"]
    assert "bad left out: RuntimeError" in capsys.readouterr().out
