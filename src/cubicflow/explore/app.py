"""The routes of the page. Every answer is computed in a worker thread and sent as one frame."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cubicflow.explore import overview
from cubicflow.explore.early_app import page_routes
from cubicflow.explore.first_picture import FirstPicture, signature
from cubicflow.explore.flow_layers import layers_answer
from cubicflow.explore.framed import framed
from cubicflow.explore.guard import Guard
from cubicflow.explore.opened_run import OpenedRun, open_run, without_paths
from cubicflow.explore.pictures import MOST_IMAGES, MOST_STEPS, images_answer, path_answer
from cubicflow.explore.row_scores import MOST_BYTES, score_rows
from cubicflow.explore.subject import ArraySubject, FlowSubject
from cubicflow.explore.workers import Worker
from cubicflow.tables import TableError
from cubicflow.tables.asking.conditions import Given
from cubicflow.tables.output import csv_text
from cubicflow.training import TrainingError

MOST_QUESTION = 1 << 16  # largest JSON request, in bytes
MOST_SAMPLES = 100_000  # largest number of rows of a sample
SHOWN_ROWS = 12  # sampled rows shown on the page
EXPECTED = (ValueError, OSError, TrainingError)  # errors whose message is for the user
LOG = logging.getLogger(__name__)

Answer = Callable[[Request], Awaitable[Response]]


class Explorer:
    """One run with its worker threads, and the answers to the page's requests."""

    def __init__(self, path: Path, picture: FirstPicture | None = None) -> None:
        self.path = path
        self.picture = picture
        self._run: OpenedRun | None = None
        self._lock = threading.Lock()  # both threads open the run
        # Whether the first picture was sent; preparations start only after that.
        self._is_drawn = picture is not None and bool(picture.answers)
        self.fast = Worker("cubicflow-explore", self._prepare)
        self.slow = Worker("cubicflow-explore-slow")

    # --- the run ---

    def run(self) -> OpenedRun:
        """Return the opened run; reopen it if its folder has changed."""
        with self._lock:
            if self._run is None or (self._run.signature != signature(self.path)):
                self._run = open_run(self.path)
            return self._run

    def warm_up(self) -> None:
        """Start opening the run before the first request."""
        self.fast.wake()

    def close(self) -> None:
        """End both threads."""
        self.fast.close()
        self.slow.close()

    def _prepare(self) -> bool:
        try:
            run = self.run()
        except EXPECTED:
            return False  # the next request opens the run and gives the error to the user
        if run.kind == "images":
            return False
        _ = run.subject.columns
        return self._is_drawn and run.subject.prepare()

    # --- answers ---

    def about(self, run: OpenedRun) -> bytes:
        return self._kept("run", framed({**run.about(), "version": list(map(str, run.signature))}))

    def columns(self, run: OpenedRun) -> bytes:
        return self._kept("columns", overview.columns_answer(run))

    def data(self, run: OpenedRun) -> bytes:
        self._is_drawn = True
        return self._kept("data", overview.data_answer(run))

    def _kept(self, route: str, answer: bytes) -> bytes:
        if self.picture is not None:
            self.picture.keep(route, answer)
        return answer

    def what_if(self, question: Mapping[str, Any]) -> bytes:
        conditions = read_question(question.get("conditions"))
        self._is_drawn = True
        return overview.answer_of(self.run().subject.answer(conditions, refine=bool(question.get("refine"))))

    def sampled(self, question: Mapping[str, Any]) -> bytes:
        """Return drawn rows that meet conditions: the CSV file that ``cubicflow sample`` writes, and notes."""
        conditions = read_question(question.get("conditions"))
        n, seed = (_whole(question.get(key), key, most) for key, most in (("n", MOST_SAMPLES), ("seed", 2**31)))
        run, notes = self.run(), list[str]()
        subject, fitted = run.subject, run.fitted
        if isinstance(subject, ArraySubject) or fitted is None:
            found, note = subject.meeting(n, conditions)  # type: ignore[attr-defined] # a run without a table is an array
            text = _csv_of(found, [column.name for column in subject.columns])
            return _rows_frame(text, [note] if conditions else [])
        given: Given = {**subject.usual, **conditions}  # type: ignore[attr-defined] # subjects of tables have it
        if isinstance(subject, FlowSubject) and set(conditions) - set(subject.usual):
            batch, note = subject.table_meeting(n, conditions)
            return _rows_frame(csv_text(iter([batch]), fitted.decimals(), fitted.reading.notations), [note])
        batches = fitted.sample_batches(n, given, 1.0, seed, say=notes.append)
        return _rows_frame(csv_text(batches, fitted.decimals(given), fitted.reading.notations), notes)


def read_question(value: Any) -> dict[str, object]:
    """Convert the page's JSON conditions to a mapping for :mod:`cubicflow.tables.asking.conditions`.

    >>> read_question({"cut": {"in": ["Ideal"]}, "price": {"from": "10", "to": None}, "age": {"missing": True}})
    {'cut': ['Ideal'], 'price': ('10', None), 'age': None}
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TableError(f"conditions must be a JSON object with column names as keys, got {str(value)[:40]!r}")
    found: dict[str, object] = {}
    for name, condition in value.items():
        match condition:
            case {"is": str(text)}:
                found[name] = text
            case {"in": [*words]} if words and all(isinstance(word, str) for word in words):
                found[name] = list(words)
            case {"from": str() | None as low, "to": str() | None as high}:
                found[name] = (low or None, high or None)
            case {"missing": True}:
                found[name] = None
            case _:
                raise TableError(
                    f"the condition on column {name!r} should have the key 'is', 'in' or 'missing', or the keys "
                    "'from' and 'to'"
                )
    return found


def make_app(explorer: Explorer, token: str, port: int) -> Guard:
    """Return the ASGI application: all routes behind the access control."""

    def framed_by(make: Callable[..., bytes], worker: Worker | None = None) -> Answer:
        async def answer(_: Request) -> Response:
            return await _framed(explorer, worker or explorer.fast, lambda: make(explorer.run()))

        return answer

    def asked_by(make: Callable[[Mapping[str, Any]], bytes], slow: Callable[[Mapping[str, Any]], bool]) -> Answer:
        async def answer(request: Request) -> Response:
            try:
                body = await _body(request, MOST_QUESTION)
            except TooLargeError as error:
                return JSONResponse({"error": str(error)}, 413)
            try:
                question = json.loads(body)
            except (ValueError, RecursionError):
                question = None
            if not isinstance(question, dict):
                return JSONResponse({"error": "the request must be a JSON object"}, 400)
            worker = explorer.slow if slow(question) else explorer.fast
            if await request.is_disconnected():
                return Response(status_code=204)
            return await _framed(explorer, worker, lambda: make(question))

        return answer

    async def density(request: Request) -> Response:
        def make() -> bytes:
            columns = len(explorer.run().subject.columns)
            x, y = (_whole(request.query_params.get(key), key, columns - 1) for key in ("x", "y"))
            return overview.density_answer(explorer.run(), x, y)

        return await _framed(explorer, explorer.fast, make)

    async def upload(request: Request) -> Response:
        try:
            body = await _body(request, MOST_BYTES)
        except TooLargeError as error:
            return JSONResponse({"error": str(error)}, 413)
        name = Path(request.query_params.get("name", "rows.csv").replace("\\", "/")).name[:100]
        pasted = request.query_params.get("pasted") == "1"
        return await _framed(
            explorer, explorer.slow, lambda: score_rows(explorer.run(), body, name or "rows.csv", pasted=pasted)
        )

    def images(question: Mapping[str, Any]) -> bytes:
        n = max(1, _whole(question.get("n"), "n", MOST_IMAGES))
        seed = _whole(question.get("seed"), "seed", 2**31)
        return images_answer(explorer.run(), temperature=_temperature(question), seed=seed, n=n)

    def path(question: Mapping[str, Any]) -> bytes:
        limits = {"first": MOST_IMAGES - 1, "last": MOST_IMAGES - 1, "seed": 2**31, "steps": MOST_STEPS}
        whole = {key: _whole(question.get(key), key, most) for key, most in limits.items()}
        return path_answer(explorer.run(), temperature=_temperature(question), **whole)

    quick = lambda _: False  # noqa: E731
    routes = [
        *page_routes(),
        Route("/api/run", framed_by(explorer.about)),
        Route("/api/columns", framed_by(explorer.columns)),
        Route("/api/data", framed_by(explorer.data)),
        Route("/api/points", framed_by(overview.points_answer)),
        Route("/api/training", framed_by(overview.training_answer)),
        Route("/api/score", framed_by(overview.score_answer, explorer.slow)),
        Route("/api/layers", framed_by(layers_answer)),
        Route("/api/density", density),
        Route("/api/what-if", asked_by(explorer.what_if, lambda q: bool(q.get("refine"))), methods=["POST"]),
        Route("/api/sample", asked_by(explorer.sampled, lambda _: True), methods=["POST"]),
        Route("/api/score-rows", upload, methods=["POST"]),
        Route("/api/images", asked_by(images, quick), methods=["POST"]),
        Route("/api/path", asked_by(path, quick), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


async def _framed(explorer: Explorer, worker: Worker, make: Callable[[], bytes]) -> Response:
    """Compute an answer in the worker, and return it. For an error, return its message without paths.

    The traceback of an unexpected error goes to the log, which the terminal shows.
    """
    try:
        return Response(await worker.run(make), media_type="application/octet-stream")
    except EXPECTED as error:
        return JSONResponse({"error": one_line(error, explorer.path)}, 400)
    except Exception as error:
        LOG.exception("an answer failed")
        return JSONResponse(
            {"error": f"unexpected error: {type(error).__name__}: {one_line(error, explorer.path)}"}, 500
        )


def one_line(error: BaseException, *known: Path) -> str:
    """Return the message of an error as one line, without paths."""
    return without_paths(" ".join(str(error).split()) or type(error).__name__, *known)[:1000]


class TooLargeError(ValueError):
    """An error for a request body that is too large."""


async def _body(request: Request, most: int) -> bytes:
    """Read the body of a request. Raises TooLargeError as soon as the body is larger than ``most`` bytes."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > most:
                raise TooLargeError(f"the request is larger than the limit of {most >> 20 or 1} MiB; send less")
    except ClientDisconnect:
        return b""
    return bytes(found)


def _rows_frame(text: bytes, notes: list[str]) -> bytes:
    lines = csv.reader(io.StringIO(text.decode()))
    names = next(lines)
    cells = list(lines)
    header = {"columns": names, "cells": cells[:SHOWN_ROWS], "rows": len(cells), "notes": notes}
    return framed(header, {"csv": np.frombuffer(text, np.uint8)})


def _csv_of(y: np.ndarray[Any, Any], names: list[str]) -> bytes:
    # Rows of a float32 flow are written with the digits of float32.
    is_single = bool((y.astype(np.float32) == y).all())
    batch = pa.RecordBatch.from_arrays([pa.array(c.astype(np.float32) if is_single else c) for c in y.T], names=names)
    return csv_text(iter([batch]), {}, {})


def _whole(value: Any, name: str, most: int) -> int:
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        raise TableError(f"{name} must be a whole number, got {str(value)[:40]!r}") from None
    if not 0 <= found <= most:
        raise TableError(f"{name} must be 0 to {most:,}, got {found}")
    return found


def _temperature(question: Mapping[str, Any]) -> float:
    value = question.get("temperature")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 4 or not math.isfinite(value):
        raise TableError(f"the temperature must be a number above 0 and at most 4, got {str(value)[:40]!r}")
    return float(value)
