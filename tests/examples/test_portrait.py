"""The demo on few points: what it prints while it fits, and what it writes."""

from __future__ import annotations

import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def portrait(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program, which fits fewer points in threads of this process."""
    monkeypatch.syspath_prepend(EXAMPLES)
    portrait = importlib.import_module("portrait")
    for name, value in {"POINTS": 2_000, "TEST_POINTS": 500, "SIZE": 16, "BATCH_SIZE": 64, "LINES": 10}.items():
        monkeypatch.setattr(portrait, name, value)
    monkeypatch.setattr(portrait, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    return portrait


def test_the_demo_shows_its_progress_in_a_log(
    portrait: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    portrait.main(tmp_path, 1)
    output, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert lines[0] == "drawing the points"
    assert len(lines) > 1
    for line in lines[1:]:
        assert re.fullmatch(r"step [\d,]+  Grace Hopper loss -?\d.*  225 Gaussians loss -?\d.*  \d:\d\d left", line), (
            line
        )
    assert re.findall(r"^(.*): log likelihood .* below the truth", output, re.MULTILINE) == list(portrait.RUNS)
    assert f"wrote {tmp_path / 'plane.png'}" in output
    assert (tmp_path / "plane.png").stat().st_size > 10_000
    for run in portrait.RUNS.values():
        assert (tmp_path / run / "model.safetensors").is_file()
