"""One run behind the page: its two threads, and the answer to every question."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from cubicflow.explore import overview
from cubicflow.explore.cached_overview import CachedOverview, signature
from cubicflow.explore.flow_layers import layers_answer
from cubicflow.explore.framed import framed
from cubicflow.explore.opened_run import OpenedRun, open_run
from cubicflow.explore.pictures import images, path
from cubicflow.explore.questions import Question, RefusedError, one_line
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

    def __init__(self, path: Path, cached: CachedOverview) -> None:
        self.path, self.cached = path, cached
        self._run: OpenedRun | None = None
        self._lock = threading.Lock()  # both threads open the run
        # Whether the overview was sent; preparations start only after that.
        self._is_drawn = bool(cached.answers)
        self.fast = Worker("cubicflow-explore", self._prepare)
        self.slow = Worker("cubicflow-explore-slow")

    def run(self) -> OpenedRun:
        """Return the opened run; reopen it if its folder has changed."""
        with self._lock:
            if self._run is None or self._run.signature != signature(self.path):
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
        self.cached.keep(name, content)
        self._is_drawn |= name in ("data", "what-if")
        return content, run.signature

    def close(self) -> None:
        """End both threads."""
        self.fast.close()
        self.slow.close()

    def _prepare(self) -> bool:
        try:
            subject = self.run().subject
        except EXPECTED:
            return False  # the next request gives the error to the user
        return self._is_drawn and subject.prepare()


ANSWERS: dict[str, Callable[[OpenedRun, Question], bytes]] = {
    "run": lambda run, _: framed(run.about()),
    "columns": lambda run, _: overview.columns_answer(run),
    "data": lambda run, _: overview.data_answer(run),
    "points": lambda run, _: overview.points_answer(run),
    "training": lambda run, _: overview.training_answer(run),
    "score": lambda run, _: overview.score_answer(run),
    "layers": lambda run, _: layers_answer(run),
    "density": overview.density_answer,
    "what-if": overview.what_if_answer,
    "sample": sample,
    "sample.csv": sample_csv,
    "score-rows": score_rows,
    "images": images,
    "path": path,
}
