"""The line of a running fit in terminals of every width, and in logs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cubicflow.progress import LiveLine, PieceProgress, PlainLines, line_writer, make_progress, texts_of

METRICS = {
    "step": 12_345,
    "loss": -123.4567,
    "validation_loss": -123.1234,
    "validation_loss_averaged": -123.2345,
    "rows_per_second": 81_234.0,
    "seconds": 3000.0,
}
EVERYTHING = "  ".join(texts_of(0.5, METRICS).values())


def drawn(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the line that a terminal of this many columns shows after half of a fit."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    line = LiveLine()
    line.update(0.5, METRICS)
    line.close()
    with console.capture() as captured:
        console.print(line.bar.get_renderable())
    return captured.get().rstrip("\n")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_the_bar_survives_narrow_terminals(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = drawn(width, monkeypatch)
    assert "\n" not in shown, "one line"
    assert len(shown) <= width
    assert shown.count("━") + shown.count("╸") + shown.count("╺") >= 8, shown
    assert "50%" in shown
    assert "50:00 left" in shown
    assert "…" not in shown, "shortened by leaving out whole figures, not by cutting one"


def test_what_a_narrow_terminal_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "loss -123.4567" in drawn(60, monkeypatch)
    at_80 = drawn(80, monkeypatch)
    assert "loss -123.4567" in at_80
    assert "validation -123.1234" in at_80
    assert EVERYTHING in drawn(160, monkeypatch), "a wide terminal shows everything"


def test_lines_of_a_log_have_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    PlainLines(line_writer(True), validates=True).update(0.5, METRICS)
    assert capsys.readouterr().err == EVERYTHING + "\n"


def test_lines_go_to_a_function() -> None:
    lines: list[str] = []
    display = make_progress(lines.append, validates=False)
    display.update(0.5, METRICS)
    display.close()
    assert lines == [EVERYTHING]
    with pytest.raises(TypeError, match="progress must be True, False or a function of a line, got 'loud'"):
        make_progress("loud", validates=False)


def test_lines_of_a_log_pause(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At the third piece, 12 seconds are over and seven pieces are left, of which each takes 4 seconds."""
    now = [0.0]
    monkeypatch.setattr("cubicflow.progress.time.monotonic", lambda: now[0])
    shown = PieceProgress(make_progress(True, pause=10.0), "block", 110, before=100)
    for done in range(101, 106):
        now[0] += 4.0
        shown.update(done)
    assert capsys.readouterr().err == "block 103 of 110  0:28 left\n"


def test_a_function_gets_every_line() -> None:
    lines: list[str] = []
    shown = PieceProgress(make_progress(lines.append, pause=10.0), "block", 2)
    for done in (1, 2):
        shown.update(done)
    assert [line.split("  ")[0] for line in lines] == ["block 1 of 2", "block 2 of 2"]
