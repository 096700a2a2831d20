"""The routes of the page. A thread computes every answer; the answer is dropped if its browser leaves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cubicflow.advice import message_of
from cubicflow.explore import overview
from cubicflow.explore.cached_overview import CachedOverview, signature
from cubicflow.explore.early_app import page_routes
from cubicflow.explore.flow_layers import layers_answer
from cubicflow.explore.framed import framed
from cubicflow.explore.guard import Guard
from cubicflow.explore.opened_run import OpenedRun, open_run, without_paths
from cubicflow.explore.pictures import MOST_IMAGES, MOST_STEPS, images_answer, path_answer
from cubicflow.explore.questions import Question, conditions_of, temperature_of, whole
from cubicflow.explore.row_scores import MOST_BYTES, score_rows
from cubicflow.explore.samples import MOST_SEED, sample, sample_csv
from cubicflow.explore.threads import Worker
from cubicflow.training import TrainingError

MOST_QUESTION = 1 << 16  # largest JSON request, in bytes
EXPECTED = (ValueError, OSError, TrainingError)  # errors whose message is for the user
FRAME = "application/octet-stream"
LOG = logging.getLogger(__name__)

Answer = Callable[[OpenedRun, Question], bytes]


class Explorer:
    """One run with its worker threads, and the answers to the page's requests."""

    def __init__(self, path: Path, cached: CachedOverview | None = None) -> None:
        self.path = path
        self.cached = cached
        self._run: OpenedRun | None = None
        self._lock = threading.Lock()  # both threads open the run
        # Whether the overview was sent; preparations start only after that.
        self._is_drawn = cached is not None and bool(cached.answers)
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
        _ = run.subject.axes
        return self._is_drawn and run.subject.prepare()

    # --- the answers of the overview ---

    def about(self, run: OpenedRun, _: Question) -> bytes:
        return self._kept("run", framed({**run.about(), "version": version(run)}))

    def columns(self, run: OpenedRun, _: Question) -> bytes:
        return self._kept("columns", overview.columns_answer(run))

    def data(self, run: OpenedRun, _: Question) -> bytes:
        self._is_drawn = True
        return self._kept("data", overview.data_answer(run))

    def what_if(self, run: OpenedRun, question: Question) -> bytes:
        self._is_drawn = True
        conditions = conditions_of(question)
        return overview.answer_of(run.subject.answer(conditions, refine=bool(question.get("refine"))))

    def _kept(self, route: str, answer: bytes) -> bytes:
        if self.cached is not None:
            self.cached.keep(route, answer)
        return answer


def version(run: OpenedRun) -> str:
    """Return a name of the state of the run, so that the page sees that its columns are those of an earlier state."""
    return hashlib.sha256(repr(run.signature).encode()).hexdigest()[:16]


def density(run: OpenedRun, question: Question) -> bytes:
    last = len(run.subject.axes) - 1
    return overview.density_answer(run, whole(question, "x", last), whole(question, "y", last))


def images(run: OpenedRun, question: Question) -> bytes:
    n, seed = max(1, whole(question, "n", MOST_IMAGES)), whole(question, "seed", MOST_SEED)
    return images_answer(run, temperature=temperature_of(question), seed=seed, n=n)


def path(run: OpenedRun, question: Question) -> bytes:
    limits = {"first": MOST_IMAGES - 1, "last": MOST_IMAGES - 1, "seed": MOST_SEED, "steps": MOST_STEPS}
    numbers = {key: whole(question, key, most) for key, most in limits.items()}
    return path_answer(run, temperature=temperature_of(question), **numbers)


# --- the application ---


def make_app(explorer: Explorer, token: str, port: int) -> Guard:
    """Return the ASGI application: all routes behind the access control."""
    fast, slow = explorer.fast, explorer.slow

    def asked(name: str, answer: Answer, worker: Worker = fast, kind: str = FRAME) -> Route:
        """Return the route of a question in the parameters of its address."""

        async def respond(request: Request) -> Response:
            return await _answered(explorer, worker, request, lambda run: answer(run, request.query_params), kind)

        return Route(f"/api/{name}", respond)

    def posted(name: str, answer: Answer, worker: Callable[[Question], Worker]) -> Route:
        """Return the route of a question that is a JSON object."""

        async def respond(request: Request) -> Response:
            try:
                question = json.loads(await _body(request, MOST_QUESTION))
            except (ValueError, RecursionError):
                question = None
            if not isinstance(question, dict):
                return JSONResponse({"error": "the request must be a JSON object"}, 400)
            return await _answered(explorer, worker(question), request, lambda run: answer(run, question))

        return Route(f"/api/{name}", respond, methods=["POST"])

    async def upload(request: Request) -> Response:
        body = await _body(request, MOST_BYTES)
        name = Path(request.query_params.get("name", "").replace("\\", "/")).name[:100] or "rows.csv"
        pasted = request.query_params.get("pasted") == "1"
        return await _answered(explorer, slow, request, lambda run: score_rows(run, body, name, pasted=pasted))

    def plain(answer: Callable[[OpenedRun], bytes]) -> Answer:
        return lambda run, _: answer(run)

    routes = [
        *page_routes(),
        asked("run", explorer.about),
        asked("columns", explorer.columns),
        asked("data", explorer.data),
        asked("points", plain(overview.points_answer)),
        asked("training", plain(overview.training_answer)),
        asked("score", plain(overview.score_answer), slow),
        asked("layers", plain(layers_answer)),
        asked("density", density),
        asked("sample.csv", sample_csv, slow, "text/csv; charset=utf-8"),
        posted("what-if", explorer.what_if, lambda question: slow if question.get("refine") else fast),
        posted("sample", sample, lambda _: slow),
        posted("images", images, lambda _: fast),
        posted("path", path, lambda _: fast),
        Route("/api/score-rows", upload, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


async def _answered(
    explorer: Explorer, worker: Worker, request: Request, make: Callable[[OpenedRun], bytes], kind: str = FRAME
) -> Response:
    """Compute an answer in the worker, and return it. For an error, return its message without paths.

    The traceback of an unexpected error goes to the log, which the terminal shows. The answer is dropped when the
    browser leaves.
    """

    def job() -> tuple[bytes, str]:
        run = explorer.run()
        return make(run), version(run)

    answer, left = asyncio.create_task(worker.run(job)), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=204)  # nobody reads it
        content, state = answer.result()
        return Response(content, media_type=kind, headers={"x-cubicflow-run": state})
    except EXPECTED as error:
        return JSONResponse({"error": one_line(error, explorer.path)}, 400)
    except Exception as error:
        LOG.exception("an answer failed")
        said = f"unexpected error: {type(error).__name__}: {one_line(error, explorer.path)}"
        return JSONResponse({"error": said}, 500)
    finally:
        answer.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Wait until the browser has closed the connection of a request whose body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def one_line(error: BaseException, *known: Path) -> str:
    """Return the message of an error as one line, without paths."""
    return without_paths(" ".join(message_of(error).split()) or type(error).__name__, *known)[:1000]


async def _body(request: Request, most: int) -> bytes:
    """Read the body of a request. Raises HTTPException as soon as the body is larger than ``most`` bytes."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > most:
                raise HTTPException(413, f"the request is larger than the limit of {most >> 20 or 1} MiB; send less")
    except ClientDisconnect:
        raise HTTPException(400) from None  # nobody reads the answer
    return bytes(found)
