"""The two threads of a page: what they share is made once, and no error is lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.explore.pages import TOKEN, ask, error_of, serving

from cubicflow.explore import app, explorer, opened_run, subject
from cubicflow.explore.cached_overview import CachedOverview
from cubicflow.explore.explorer import Explorer
from cubicflow.explore.opened_run import OpenedRun, open_run
from cubicflow.explore.threads import Worker
from cubicflow.tables import FittedTable
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.query.pool import Pool

TOGETHER = 0.3  # seconds that the first thread waits for a second thread in the same function


def met(function: Callable[..., Any], meetings: list[str]) -> Callable[..., Any]:
    """Return a function that waits for a second thread in it before it starts, and records every call."""
    barrier = threading.Barrier(2, timeout=TOGETHER)

    def waiting(*arguments: Any, **options: Any) -> Any:
        meetings.append(threading.current_thread().name)
        with suppress(threading.BrokenBarrierError):  # no second thread came
            barrier.wait()
        return function(*arguments, **options)

    return waiting


def both(function: Callable[[], Any]) -> list[Any]:
    """Call a function in two threads at the same time, and return both results."""
    with ThreadPoolExecutor(2) as threads:
        return [future.result() for future in [threads.submit(function), threads.submit(function)]]


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (FittedTable, "reopen", lambda run: run.table),
        (FittedTable, "some_rows", lambda run: run.data),
        (opened_run, "Subject", lambda run: run.subject),
        (subject, "axis_of", lambda run: run.subject.axes),
        (opened_run, "read_metrics", lambda run: run.history),
        (ModelOfColumns, "score", lambda run: run.reference),
    ],
)
def test_both_threads_get_the_same_value(
    place: Any, name: str, value: Callable[[OpenedRun], Any], lists_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, meetings = open_run(lists_run), list[str]()
    monkeypatch.setattr(place, name, met(getattr(place, name), meetings))
    first, second = both(lambda: value(run))
    assert first is second
    assert len(set(meetings)) == 1, "both threads made the value"


def test_both_threads_open_the_run_once(lists_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meetings: list[str] = []
    monkeypatch.setattr(explorer, "open_run", met(open_run, meetings))
    opened = Explorer(lists_run, CachedOverview(lists_run))
    first, second = both(opened.run)
    opened.close()
    assert first is second
    assert len(meetings) == 1


def test_a_pool_grows_in_one_thread_at_a_time(lists_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that two threads draw are the rows of one thread, each beside the distributions it was drawn from."""
    monkeypatch.setattr("cubicflow.tables.query.pool.CHUNK", 64)
    monkeypatch.setattr("cubicflow.explore.subject.FIRST_ROWS", 64)

    def pool() -> Pool:
        found = open_run(lists_run).subject.drawn()
        assert isinstance(found, Pool)
        return found

    alone, shared = pool(), pool()
    assert shared.size == 64
    alone.grow_to(192)
    monkeypatch.setattr(shared.walk, "law", met(shared.walk.law, []))
    both(shared.grow)
    assert shared.size == alone.size
    np.testing.assert_array_equal(shared.y, alone.y)
    for i in range(shared.y.shape[1]):
        law, other = (pool.law(i, slice(192)) for pool in (shared, alone))
        np.testing.assert_array_equal(law.log_outcomes.numpy(), other.log_outcomes.numpy())


def test_both_threads_see_the_same_rows_of_a_flow(flow_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.explore.subject.FIRST_ROWS", 8)
    flow, draws = open_run(flow_run).subject, itertools.count()
    shape = flow.rows(8).shape

    def draw(n: int, *_: Any, **__: Any) -> Any:
        return np.full((n, shape[1]), float(next(draws)))  # rows that no other call returns

    monkeypatch.setattr(flow.drawn(), "draw", met(draw, []))
    first, second = both(lambda: flow.rows(64))
    np.testing.assert_array_equal(first, second)


# --- errors ---


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that gives the logged errors, each with its traceback."""
    caplog.set_level(logging.ERROR)
    return lambda: [caplog.handler.format(record) for record in caplog.records]


def broken(*_: Any, **__: Any) -> Any:
    return 1 // 0


def test_the_browser_gets_a_sentence_and_the_terminal_the_traceback(
    lists_run: Path, logged: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_run, "read_metrics", broken)
    with serving(lists_run) as page:
        answer = ask(page, "/api/training")
        assert answer[0] == 500
        assert error_of(answer).startswith("unexpected error: ZeroDivisionError: ")
        (text,) = logged()
        assert "Traceback" in text
        assert "in broken" in text


def test_an_error_of_idle_work_is_logged_once(logged: Callable[[], list[str]]) -> None:
    done = threading.Semaphore(0)

    def idle() -> bool:
        done.release()
        return bool(broken())

    worker = Worker("a test", idle)
    for _ in range(3):
        worker.wake()
        assert done.acquire(timeout=60)
    worker.close()
    (text,) = logged()
    assert "Traceback" in text
    assert "in broken" in text


def test_a_page_that_cannot_start_says_why(
    lists_run: Path, tmp_path: Path, logged: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "Explorer", broken)
    monkeypatch.setenv("CUBICFLOW_CACHE", str(tmp_path))  # no overview of an earlier test is kept there

    async def ask_for(whole: Any, path: str) -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []

        async def receive() -> Any:
            await asyncio.Event().wait()  # a browser that stays and sends nothing more

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8470"), (b"cookie", f"cubicflow-8470={TOKEN}".encode())]
        about = {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
        await whole({"type": "http", "http_version": "1.1", "headers": headers, **about}, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)

    async def three() -> list[tuple[int, bytes]]:
        whole = app.make_app(app.Opening(lists_run), TOKEN, 8470)
        return [await ask_for(whole, path) for path in ("/api/run", "/", "/api/columns")]

    with ThreadPoolExecutor(1) as thread:  # a new thread, because browser tests may run an event loop in this thread
        answers = thread.submit(lambda: asyncio.run(three())).result()
    assert [status for status, _ in answers] == [500, 200, 500]
    assert b"the page cannot start: ZeroDivisionError" in answers[0][1]
    (text,) = logged()
    assert "in broken" in text
