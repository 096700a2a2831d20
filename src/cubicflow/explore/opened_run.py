"""An opened run folder: its current model, its data if available, and notes about problems."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.advice import message_of
from cubicflow.data.plane import even_points
from cubicflow.explore.cached_overview import signature
from cubicflow.explore.questions import without_paths
from cubicflow.explore.subject import Subject, spelled
from cubicflow.flows import Flow, Mixture
from cubicflow.flows.serialization import CONFIG_FILE, FlowFileError, load_model, read_config
from cubicflow.tables import SECTION, FittedTable, Table, TableError
from cubicflow.tables.read import BUILT_IN
from cubicflow.training.run_folder import is_training, is_unfinished, load_unfinished, read_metrics
from cubicflow.weights import Floats

DATA_ROWS = 6000  # rows of the data that the page shows
REFERENCE_ROWS = 2000  # rows that scores are compared with
BUILT_IN_ROWS = 80_000  # points of a built-in density that the page shows
BUILT_IN_SECTION = "built_in"  # key of config.json with the name of the built-in density that was fitted
T = TypeVar("T")


@dataclass(frozen=True)
class DataRows:
    """Some rows of the data as plain numbers, and whether each is a training row."""

    y: Floats
    is_train: NDArray[np.bool_]
    rows: pa.RecordBatch | None = None


class Once(Generic[T]):
    """A property of a run that the first of two threads makes; the other one waits for it."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.name = make, make.__name__

    def __get__(self, run: OpenedRun, _: object) -> T:
        with run.lock:
            if self.name not in vars(run):
                vars(run)[self.name] = self.make(run)
            found: T = vars(run)[self.name]
            return found


@dataclass
class OpenedRun:
    """The state of a run folder when it was opened.

    ``signature`` names the state. By it, the page sees that its columns are those of an earlier state.
    """

    path: Path
    signature: str
    config: Mapping[str, Any]
    model: Any
    fitted: FittedTable | None = None
    notes: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def kind(self) -> str:
        """The kind of model: columns, flow, array or images."""
        if self.fitted is None:
            return "images"
        is_table = self.fitted.model.has_laws or SECTION in self.config
        return self.fitted.model.name if is_table else "array"

    @property
    def is_plane(self) -> bool:
        """Whether the model is a flow of vectors of two features."""
        return self.kind == "array" and tuple(self.model.shape) == (2,)

    @Once
    def subject(self) -> Subject:
        if self.fitted is None:
            raise TableError("this run is a flow of images; see the view Images")
        if self.kind == "array" and self.model.context_features:
            raise TableError("this flow needs context, but the run stores no context; use the flow from Python")
        like = self.data.rows if self.fitted.schema.context and self.data is not None else None
        if self.fitted.schema.context and like is None:
            self.notes.append(f"The model is drawn for one usual context: {spelled(self.fitted.usual_context())}.")
        return Subject(self.fitted, like)

    @property
    def state(self) -> str:
        """The state of the training: finished, training or stopped."""
        if not is_unfinished(self.path, dict(self.config)):
            return "finished"
        return "training" if is_training(self.path) else "stopped"

    @Once
    def history(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    # --- data ---

    @property
    def built_in(self) -> str | None:
        """The name of the built-in density of the plane that was fitted; None for other data."""
        name = self.config.get(BUILT_IN_SECTION)
        return str(name) if self.is_plane and name in [*BUILT_IN] else None

    @Once
    def table(self) -> Table | None:
        """The table that was fitted; None if it is missing or has changed."""
        if self.fitted is not None and self.kind != "array":
            try:
                return self.fitted.reopen()
            except TableError as error:
                reason = without_paths(message_of(error), Path(self.fitted.source))
                self.notes.append(f"{reason[0].upper()}{reason[1:]}: only the model is shown.")
        return None

    @Once
    def data(self) -> DataRows | None:
        """Some rows of the data; None if there is no data."""
        if self.built_in is not None:
            y = even_points(BUILT_IN[self.built_in](), BUILT_IN_ROWS)
            return DataRows(y, np.zeros(len(y), np.bool_))
        if self.fitted is None or self.table is None:
            return None
        found = self.fitted.some_rows(self.table, DATA_ROWS)
        if found is None:
            return None
        rows, numbers = found
        return DataRows(self.fitted.numbers(rows), self.fitted.split.parts_of(numbers) == 0, rows)

    @Once
    def reference(self) -> tuple[Floats, Floats | None, str]:
        """Scores of training rows, their terms, and the name of these rows. Without data, rows are drawn from the
        model."""
        data, fitted, name = self.data, self.subject.fitted, "training rows"
        if data is not None and data.rows is not None and data.is_train.any():
            rows = data.rows.filter(pa.array(data.is_train))[:REFERENCE_ROWS]
        else:
            drawn, name = fitted.sample(REFERENCE_ROWS, self.subject.usual or None, seed=1), "rows drawn from the model"
            (rows,) = drawn.combine_chunks().to_batches()
        scored = fitted.model.score(fitted.encoder.read(rows))
        return scored.log_p[np.isfinite(scored.log_p)], scored.terms, name

    def about(self) -> dict[str, Any]:
        """Return the facts about the run that every view needs first."""
        result = self.config.get("result")
        result = result if isinstance(result, dict) else {}
        step = result.get("steps") or (self.history[-1]["step"] if self.history else None)
        kinds = {
            "columns": "a model of columns",
            "flow": "a flow of a table",
            "array": "a flow of vectors",
            "images": "a flow of images",
        }
        return {
            "name": self.name,
            "version": self.signature,
            "kind": self.kind,
            "model": kinds[self.kind],
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "state": self.state,
            "step": step,
            "notes": [without_paths(note) for note in dict.fromkeys(self.notes)],
            "source": Path(self.fitted.source).name if self.fitted and self.fitted.source else self.built_in,
        }


def open_run(path: Path) -> OpenedRun:
    """Open a run folder in its current state. Raises FlowFileError for a damaged folder."""
    now = signature(path)
    config = read_config(path)
    if isinstance(config.get(SECTION), dict):
        fitted = FittedTable.load(path, unfinished=True)
        return OpenedRun(path, now, config, fitted.flow, fitted)
    unfinished = is_unfinished(path, config)
    model = load_unfinished(path, config) if unfinished else load_model(path, None, config)
    if not isinstance(model, Flow | Mixture):
        raise FlowFileError(
            path / CONFIG_FILE, "the run holds a module that is not a flow; only flows and tables can be shown"
        )
    if len(model.shape) == 3:
        return OpenedRun(path, now, config, model)
    features = math.prod(model.shape)
    names = ["x", "y"] if features == 2 else [f"x{i + 1}" for i in range(features)]
    return OpenedRun(path, now, config, model, FittedTable.of_flow(model, names))
