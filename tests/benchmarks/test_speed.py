"""``python -m benchmarks.speed``: its measurements, and the CSV file, table and picture that it writes."""

from __future__ import annotations

import csv
import json
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from benchmarks.speed import first_step, report, run, start, two_versions, workloads
from benchmarks.speed.__main__ import main
from benchmarks.speed.timing import Measurement, measure, peak_of_run
from tests.helpers import processes
from tests.helpers.command_line import caller


@pytest.fixture
def speed(capfd, monkeypatch):
    """Runs ``python -m benchmarks.speed`` in this process and returns its exit status and what it wrote."""
    return caller("speed", main, capfd, monkeypatch)


@pytest.fixture
def no_collections(monkeypatch):
    """Skip garbage collection before each measurement: it takes 0.2 s in the process of the tests."""
    monkeypatch.setattr("benchmarks.speed.timing.gc.collect", lambda: 0)


@pytest.mark.usefixtures("no_collections")
def test_bench_measures_and_writes_its_report(speed, tmp_path):
    out = tmp_path / "bench"
    done = speed("-o", out, "--only", "splines", "--quick", "--seconds", 0.001, "--device", "cpu")
    assert done.status == 0, done.errors
    assert sorted(path.name for path in out.iterdir()) == ["bench.csv", "bench.md", "bench.png", "machine.json"]
    found = report.read(out / "bench.csv")
    assert {m.work.split(",")[0] for m in found} == {"spline forward", "spline inverse", "spline forward + backward"}
    assert all(0 < m.p10 <= m.median <= m.p90 for m in found)
    assert {"cubicflow reference", "cubicflow quadratic", "cubicflow rational-quadratic"} <= {
        m.implementation for m in found
    }
    for m in found:  # every implementation holds y and log_slope
        assert m.implementation == workloads.FLOOR or m.peak_memory >= 2 * 4 * 2**12
    about = json.loads((out / "machine.json").read_text())
    with (out / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found)
    for row in rows:
        assert row["hardware"] == f"{about['processor']} ({torch.get_num_threads()} threads)"
        assert f"torch {torch.__version__.partition('+')[0]}" in row["versions"]
    assert (out / "bench.md").read_text() == report.page(out)


@pytest.mark.usefixtures("no_collections")
def test_a_fit_is_measured_from_its_metrics():
    found = list(run.PART_RUNS["fit"](torch.device("cpu"), 0.1, True))
    times = {m.work.removeprefix("fit: ").partition(",")[0]: m.median for m in found}
    assert set(times) == {"step", "validation", "fit", "first step"}
    assert min(times.values()) > 0
    assert times["fit"] > times["validation"] / 6


def test_peak_memory_on_the_cpu():
    kept = []

    def run():
        first = torch.zeros(1_000)  # 4,000 bytes
        second = first + 1
        del first
        third = torch.cat([second, second])
        del second  # the peak is 12,000 bytes; the sum of all allocations is 20,000
        kept.append(third[:500] + 1)

    assert peak_of_run(run, torch.device("cpu")) == 12_000
    assert peak_of_run(kept.clear, torch.device("cpu")) == 0  # only frees memory


def print_peak():
    sys.stdout.write(str(peak_of_run(int, torch.device("cpu"))))


def test_the_profiler_prints_nothing(tmp_path):
    """In a new process: the profiler could print when it is first used."""
    done = processes.start(print_peak, log=tmp_path / "log")
    assert (done.wait(), done.log.read_text()) == (0, "0")


def test_help_says_what_to_install(speed):
    assert 'pip install "cubicflow[bench]"' in speed("--help").output  # rich takes brackets for markup


@pytest.mark.usefixtures("no_collections")
def test_scaling_curves_are_measured_and_drawn(speed, tmp_path):
    out = tmp_path / "bench"
    done = speed("-o", out, "--only", "scaling", "--quick", "--seconds", 0.001, "--device", "cpu")
    assert done.status == 0, done.errors
    found = report.read(out / "bench.csv")
    assert {(m.curve, m.at) for m in found} == {("elements", 2**10), ("elements", 2**12)} | {
        ("bins", k) for k in (1, 4, 16)
    }
    assert {path.name for path in out.glob("*.png")} == {"elements.png", "bins.png"}


def test_the_first_steps_are_timed_by_parts(monkeypatch, capsys):
    settings = {"model": {"num_layers": 1, "hidden": 4, "num_bins": 4}, "features": 2, "batch": 64}
    monkeypatch.setattr(sys, "argv", ["first_step", "cubicflow", "cpu", json.dumps(settings)])
    first_step.main()
    parts = json.loads(capsys.readouterr().out)
    assert list(parts) == ["imports", "flow on the device", "first steps"]
    assert min(parts.values()) > 0


def test_a_start_lasts_from_the_start_of_the_process_to_its_report(speed, monkeypatch, tmp_path):
    """The process is a script that waits, reports parts of a shorter time, and ends when the clock was read again."""
    script, ended, late = (tmp_path / name for name in ("python", "ended", "late"))
    parts = json.dumps({"imports": 0.003, "flow on the device": 0.002, "first steps": 0.001})
    wait = f"for i in $(seq 600); do [ -e {ended} ] && rm {ended} && exit; sleep 0.1; done; touch {late}"
    script.write_text(f"#!/bin/sh\nsleep 0.1; echo '{parts}'; {wait}\n")
    script.chmod(0o755)
    read: list[float] = []

    def clock():
        read.append(time.perf_counter())
        if len(read) % 2 == 0:  # the second time of a start
            ended.touch()
        return read[-1]

    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr("benchmarks.speed.start.time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr("benchmarks.speed.peers.installed", list)
    out = tmp_path / "bench"
    done = speed("-o", out, "--only", "start", "--quick", "--device", "cpu")
    assert done.status == 0, done.errors
    found = {(m.work, m.implementation): m.median for m in report.read(out / "bench.csv")}
    for implementation in (start.COLD, start.WARM):
        assert found["cold start, POWER model", implementation] > 100
        assert found["cold start: imports", implementation] == 3
    assert not late.exists(), "the time was taken after the end of the process"


@pytest.mark.soak
def test_starts_are_timed_in_fresh_processes(speed, monkeypatch, tmp_path):
    """Soak only: two new interpreters import torch. The two tests above check the parts of this test."""
    monkeypatch.setattr("benchmarks.speed.peers.installed", list)  # a peer's start is another process
    out = tmp_path / "bench"
    done = speed("-o", out, "--only", "start", "--quick", "--device", "cpu")
    assert done.status == 0, done.errors
    found = {(m.work, m.implementation): m.median for m in report.read(out / "bench.csv")}
    for implementation in (start.COLD, start.WARM):
        parts = [
            found[f"cold start: {part}", implementation] for part in ("imports", "flow on the device", "first steps")
        ]
        assert min(parts) > 0
        assert sum(parts) < found["cold start, POWER model", implementation]  # the rest is the start of Python


def test_the_summary_compares_implementations_of_the_same_work():
    def row(work, implementation, median, peak_memory=None, at=None):
        curve = "" if at is None else "elements"
        return Measurement(work, implementation, "cuda", median, median, median, 1, peak_memory, curve, at)

    work = "spline forward + backward, 1,000 elements, K = 10"
    found = [
        row(work, "cubicflow triton, captured", 0.1),
        row(work, "cubicflow triton", 0.2, peak_memory=88_000 + 4_400),  # the gradient of params plus 5 %
        row(work, "cubicflow reference", 5.0),
        row(work, "cubicflow quadratic, captured", 0.08),
        row(work, "cubicflow rational-quadratic", 0.3, peak_memory=88_000),
        row(work, "nflows cubic", 20.0),
        row(work, "nflows rational-quadratic", 15.0),
        row(work, "a copy of as many bytes", 0.05),
        row("training step, D = 6, batch 512", "cubicflow", 2.0),
        row("training step, D = 6, batch 512", "its networks alone", 1.0),
        row(work, "cubicflow triton", 7.0, at=1000),  # a point of a curve is not part of the summary
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.glance(found).splitlines()]
    assert lines[2:] == [
        [work, "cubicflow triton, captured", "0.1", "200", "2.00", "", "1.25", ""],
        [work, "cubicflow triton", "0.2", "100", "4.00", "", "", "1.02"],
        [work, "cubicflow rational-quadratic", "0.3", "50", "", "", "", ""],  # compared with the same family
        ["training step, D = 6, batch 512", "cubicflow", "2", "", "", "2.00", "", ""],
    ]


def test_growth_is_the_slope_at_the_end_of_a_curve():
    points = ((4, 2.0), (8, 4.0), (16, 16.0))
    found = [
        Measurement(f"spline forward, K = {at}", "cubicflow native", "cpu", ms, ms, ms, 1, curve="bins", at=at)
        for at, ms in points
    ]
    assert report.growth(found).splitlines()[2:] == [
        "| spline forward, bins 4 → 16 | cubicflow native | 2 → 16 | 2.00 |"
    ]


def test_after_a_failed_part_the_other_parts_still_run(monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel for this")

    good = Measurement("work", "cubicflow", "cpu", 1.0, 1.0, 1.0, 1)
    monkeypatch.setattr(run, "PART_RUNS", {"bad": broken, "good": lambda *_: [good]})
    results = run.run(("bad", "good"), torch.device("cpu"), report=lambda _: None)
    assert next(results) == [good]
    with pytest.raises(RuntimeError, match="no kernel for this"):
        next(results)


def test_existing_folders_and_bad_options_are_refused(speed, tmp_path):
    (tmp_path / "kept").mkdir()
    for arguments, message in (
        (("-o", tmp_path / "kept"), "exists; choose another folder"),
        (("-o", tmp_path / "new", "--only", "speed"), "unknown part 'speed' in --only; the parts are splines"),
        (("-o", tmp_path / "new", "--only", ""), "unknown part '' in --only; the parts are splines"),
        (("-o", tmp_path / "new", "--seconds", 0), "seconds must be a number above 0, got 0"),
        (("-o", tmp_path / "new", "--seconds", "nan"), "seconds must be a number above 0, got nan"),
        (("-o", tmp_path / "new", "--device", "gpu"), "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'gpu'"),
    ):
        done = speed(*arguments)
        assert done.status == 2
        assert message in done.errors
        assert "Traceback" not in done.errors


def test_an_implementation_that_fails_is_left_out(capsys):
    def broken():
        raise RuntimeError("no kernel for this")

    found = measure("work", {"good": lambda: None, "bad": broken}, torch.device("cpu"), seconds=0.01)
    assert [m.implementation for m in found] == ["good"]
    assert "bad left out: RuntimeError" in capsys.readouterr().out


def test_two_versions_differ_by_more_than_the_spread_of_the_old_one():
    old = [{"a": 1.00, "b": 1.00, "c": 1.00}, {"a": 1.02, "b": 1.02, "c": 1.02}, {"a": 0.99, "b": 0.99, "c": 0.99}]
    new = [{"a": 1.01, "b": 1.05, "c": 0.95}] * 3
    lines = [line.split() for line in two_versions.table(old, new).splitlines()]
    assert [line[0] for line in lines] == ["a", "b", "c"]
    assert [line[-1] for line in lines] == ["0.020", "slower", "faster"]


def test_two_versions_need_two_folders(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["two_versions", "src"])
    with pytest.raises(SystemExit):
        two_versions.main()
    assert "give two src folders, of the old and of the new version; got 1" in capsys.readouterr().err
