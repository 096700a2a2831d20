"""The demo on few points: what it prints while it fits, and what it writes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cubicflow import demo


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit fewer points in threads of this process."""
    for name, value in {"POINTS": 2_000, "TEST_POINTS": 500, "SIZE": 16, "BATCH_SIZE": 64, "LINES": 10}.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(demo, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)


@pytest.mark.usefixtures("small")
def test_the_demo_shows_its_progress_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(tmp_path, 1)
    output, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert lines[0] == "drawing the points"
    assert len(lines) > 1
    for line in lines[1:]:
        assert re.fullmatch(r"step [\d,]+  Grace Hopper loss -?\d.*  225 Gaussians loss -?\d.*  \d:\d\d left", line), (
            line
        )
    assert re.findall(r"^(.*): log likelihood .* below the truth", output, re.MULTILINE) == list(demo.DENSITIES)
    assert f"wrote {tmp_path / 'plane.png'}" in output
    assert (tmp_path / "plane.png").stat().st_size > 10_000
    for run in demo.RUNS.values():
        assert (tmp_path / run / "model.safetensors").is_file()
