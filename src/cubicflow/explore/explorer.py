"""One run behind the page: its two threads, and the answer to every question."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from cubicflow.explore import overview
from cubicflow.explore.cached_overview import CachedOverview, signature
from cubicflow.explore.flow_layers import layers_answer
from cubicflow.explore.framed import framed
from cubicflow.explore.messages import RefusedError, one_line
from cubicflow.explore.opened_run import OpenedRun, open_run
from cubicflow.explore.pictures import images, path
from cubicflow.explore.questions import Question, conditions_of, whole
from cubicflow.explore.row_scores import score_rows
from cubicflow.explore.samples import sample, sample_csv
from cubicflow.explore.threads import Worker
from cubicflow.training import TrainingError

EXPECTED = (ValueError, OSError, TrainingError)  # errors whose message is for the user


class Explorer:
    """One run with its worker threads.

    The fast thread prepares later answers while it has no question. The slow thread has the questions that take
    seconds.
    """

    def __init__(self, path: Path, cached: CachedOverview | None = None) -> None:
        self.path, self.cached = path, cached
        self._run: OpenedRun | None = None
        self._lock = threading.Lock()  # both threads open the run
        # Whether the overview was sent; preparations start only after that.
        self._is_drawn = cached is not None and bool(cached.answers)
        self.fast = Worker("cubicflow-explore", self._prepare)
        self.slow = Worker("cubicflow-explore-slow")

    def run(self) -> OpenedRun:
        """Return the opened run; reopen it if its folder has changed."""
        with self._lock:
            if self._run is None or (self._run.signature != signature(self.path)):
                self._run = open_run(self.path)
            return self._run

    def answer(self, name: str, question: Question) -> tuple[bytes, str]:
        """Return the answer to a question, and the version of the run. Raises RefusedError with a sentence for the user
        if it cannot be answered."""
        try:
            run = self.run()
            content = ANSWERS[name](run, question)
        except EXPECTED as error:
            raise RefusedError(one_line(error, self.path)) from None
        if self.cached is not None:
            self.cached.keep(name, content)
        self._is_drawn |= name in ("data", "what-if")
        return content, version(run)

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


def version(run: OpenedRun) -> str:
    """Return a name of the state of the run, so that the page sees that its columns are those of an earlier state."""
    return hashlib.sha256(repr(run.signature).encode()).hexdigest()[:16]


def _about(run: OpenedRun, _: Question) -> bytes:
    return framed({**run.about(), "version": version(run)})


def _what_if(run: OpenedRun, question: Question) -> bytes:
    found = run.subject.answer(conditions_of(question), refine=bool(question.get("refine")))
    return overview.answer_of(found)


def _density(run: OpenedRun, question: Question) -> bytes:
    last = len(run.subject.axes) - 1
    return overview.density_answer(run, whole(question, "x", last), whole(question, "y", last))


def _scored(run: OpenedRun, question: Question) -> bytes:
    return score_rows(run, question["content"], question["name"], pasted=question["pasted"])


def _plain(answer: Callable[[OpenedRun], bytes]) -> Callable[[OpenedRun, Question], bytes]:
    return lambda run, _: answer(run)


ANSWERS: dict[str, Callable[[OpenedRun, Question], bytes]] = {
    "run": _about,
    "columns": _plain(overview.columns_answer),
    "data": _plain(overview.data_answer),
    "points": _plain(overview.points_answer),
    "training": _plain(overview.training_answer),
    "score": _plain(overview.score_answer),
    "layers": _plain(layers_answer),
    "density": _density,
    "what-if": _what_if,
    "sample": sample,
    "sample.csv": sample_csv,
    "score-rows": _scored,
    "images": images,
    "path": path,
}
