"""The judgement of sampled rows: all measures as numbers, as the lines of a small table, and as one sentence.

A run folder keeps a judgement of its samples in judge.json, with a hash of the weights that drew them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.files import check_plain, write_atomically
from cubicflow.flows.serialization import WEIGHTS_FILE
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.judging.measures import (
    Closeness,
    Contradictions,
    Detection,
    closeness,
    count_contradictions,
    detection,
)
from cubicflow.tables.judging.similarity import Pair, Similarity, mean_similarity, shape, trend
from cubicflow.tables.judging.tables import Matched, match

# (bound, sentence). The verdict shows the first sentence whose bound exceeds the AUC.
TELLS = (
    (0.55, "A classifier cannot tell the samples from real rows"),
    (0.65, "A classifier can hardly tell the samples from real rows"),
    (0.80, "A classifier can often tell the samples from real rows"),
    (0.95, "A classifier can mostly tell the samples from real rows"),
    (2.00, "A classifier can nearly always tell the samples from real rows"),
)
MANY = 0.01  # share of the rows; the verdict omits smaller shares of contradictions and copies
WORST = 3  # number of columns, pairs and rules to name
JUDGE_FILE = "judge.json"
MOST_BYTES = 1 << 24

Line = tuple[str, str, str]  # measure, value for the samples, value for new real rows


@dataclass(frozen=True)
class Errors:
    """Errors of sampled rows: 1 - the mean similarity; None if no similarity is defined.

    Attributes:
        shape: the error of single columns.
        trend: the error of pairs of columns. In a pair with words, numbers are binned by the real column.
        trend_own_bins: the error of pairs of columns with the bins of each table, as in SDMetrics' QualityReport.
    """

    shape: float | None
    trend: float | None
    trend_own_bins: float | None


@dataclass(frozen=True)
class Judgement:
    """The quality of sampled rows. A measure that could not be computed is None.

    Attributes:
        rows: the numbers of real, sampled and training rows.
        detection: the result of a classifier that separates real from sampled rows.
        errors: the errors of columns and of pairs of columns of the sampled rows.
        errors_of_training_rows: the same errors for as many training rows; they are due to chance alone.
        columns, pairs: the similarity of each column and of each pair of columns.
        closeness: the closeness of the sampled and of the real rows to the training rows.
        contradictions: the sampled rows that break a rule which holds in all training rows.
        notes: remarks, such as what was left out and why.

    >>> rng = np.random.default_rng(0)
    >>> real, sampled = (pa.table({"x": rng.normal(shift, 1, 200)}) for shift in (0, 9))
    >>> judge(real, sampled).verdict().split(" (")[0]
    'A classifier can nearly always tell the samples from real rows'
    """

    rows: dict[str, int]
    detection: Detection
    errors: Errors
    errors_of_training_rows: Errors | None
    columns: dict[str, float | None]
    pairs: tuple[tuple[str, str, float | None], ...]
    closeness: dict[str, Closeness] | None
    contradictions: Contradictions
    notes: tuple[str, ...]

    def verdict(self) -> str:
        """Return the quality of the samples in one sentence."""
        auc = self.detection.auc
        sentence = next(text for bound, text in TELLS if auc < bound)
        clauses = [f"{sentence} (AUC {auc:.2f}; 0.5 is chance and 1 is certainty)"]
        real = self.errors_of_training_rows
        for what, name in (("columns", "shape"), ("pairs of columns", "trend")):
            if (error := getattr(self.errors, name)) is not None:
                chance = "" if real is None else f" ({_percent(getattr(real, name))} in real rows)"
                clauses.append(f"{what} are off by {_percent(error)} on average{chance}")
        broken = self.contradictions
        if broken.sampled > max(2 * (broken.held_out or 0), MANY):
            clauses.append(f"{_percent(broken.sampled)} of the samples contradict what holds in all {broken.found_in}")
        if self.closeness is not None:
            ours, new = self.closeness["sampled"], self.closeness["held_out"]
            if ours.copies > 2 * new.copies + MANY:
                shares = f"{_percent(ours.copies)} are copies of training rows, against {_percent(new.copies)}"
                clauses.append(f"{shares} of new rows")
            elif ours.median < new.median / 2:
                clauses.append("the samples are suspiciously close to training rows")
        return "; ".join(clauses) + "."

    def lines(self) -> list[Line]:
        """Return each measure as text, with its value for new real rows or its best possible value."""
        found = self.detection
        lines: list[Line] = [
            ("AUC of a classifier against real rows", f"{found.auc:.3f} ± {found.spread:.3f}", "0.500"),
            ("detection score", f"{found.score:.3f}", "1.000"),
        ]
        best = self.errors_of_training_rows or Errors(0, 0, 0)
        for what, name in (
            ("error of single columns (shape)", "shape"),
            ("error of pairs of columns (trend)", "trend"),
            ("error of pairs, each table in its own bins", "trend_own_bins"),
        ):
            lines.append((what, _percent(getattr(self.errors, name)), _percent(getattr(best, name))))
        if self.closeness is not None:
            ours, new = self.closeness["sampled"], self.closeness["held_out"]
            lines += [
                ("exact copies of training rows", _percent(ours.copies), _percent(new.copies)),
                ("distance to the closest training row, median", f"{ours.median:.4f}", f"{new.median:.4f}"),
                ("distance to the closest training row, 5 % quantile", f"{ours.low:.4f}", f"{new.low:.4f}"),
            ]
        if self.contradictions.rules:
            broken = self.contradictions
            what = f"rows that contradict what holds in all {broken.found_in}"
            lines.append((what, _percent(broken.sampled), _percent(broken.held_out)))
        return lines

    def worst(self) -> list[str]:
        """Return in words the columns, pairs and rules with the largest errors."""
        columns = sorted((found, name) for name, found in self.columns.items() if found is not None)
        pairs = sorted((found, a, b) for a, b, found in self.pairs if found is not None)
        rules = sorted((-rule.sampled, rule.determinant, rule.dependent) for rule in self.contradictions.rules)
        return [
            *_listed("columns", [f"{name} {_percent(1 - found)}" for found, name in columns]),
            *_listed("pairs", [f"{a} and {b} {_percent(1 - found)}" for found, a, b in pairs]),
            *_listed("rules", [f"{a} determines {b} {_percent(-share)}" for share, a, b in rules if share]),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all fields. The verdict, the lines and the worst columns come first, for readers of the file."""
        summary = {"verdict": self.verdict(), "lines": self.lines(), "worst": self.worst()}
        return {**summary, **asdict(self)}


def judge(
    real: pa.Table,
    sampled: pa.Table,
    train: pa.Table | None = None,
    *,
    words: Collection[str] = (),
    seed: int = 0,
) -> Judgement:
    """Judge sampled rows against real rows that the model has not seen.

    Args:
        real: held-out rows of the table.
        sampled: rows sampled from a model, with the same columns.
        train: the rows that the model was fitted to. Without training rows, copies and closest rows are not measured,
            and rules are searched in the real rows.
        words: columns of numbers that are names, such as postcodes.
        seed: the seed of subsampling and of the classifier.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> real, sampled = (pa.table({"x": rng.normal(size=100), "y": rng.normal(size=100)}) for _ in range(2))
    >>> found = judge(real, sampled)
    >>> found.detection.auc < 0.7, found.errors.shape < 0.2, found.closeness
    (True, True, None)
    """
    tables = {"the real table": real, "the sampled table": sampled}
    if train is not None:
        tables["the training table"] = train
    return judge_matched(match(tables, words), seed=seed)


def judge_matched(matched: Matched, *, seed: int = 0, notes: Sequence[str] = ()) -> Judgement:
    """Judge tables that are already matched: real rows, sampled rows and, optionally, training rows."""
    names, is_word = matched.names, matched.is_word
    real, sampled, *rest = matched.tables
    train = rest[0] if rest else None
    columns, pairs, errors = _compared(real, sampled, is_word)
    close, chance = None, None
    if train is not None:
        both = {"sampled": sampled, "held_out": real}
        close = {name: closeness(table, train, is_word, seed) for name, table in both.items()}
        subset = np.random.default_rng(seed).permutation(len(train))[: len(sampled)]
        chance = _compared(real, train[subset], is_word)[2]
    counts = zip(("real", "sampled", "train"), matched.tables, strict=False)
    return Judgement(
        rows={name: len(table) for name, table in counts},
        detection=detection(real, sampled, is_word, seed),
        errors=errors,
        errors_of_training_rows=chance,
        columns=dict(zip(names, columns, strict=True)),
        pairs=tuple((names[pair.first], names[pair.second], pair.similarity) for pair in pairs),
        closeness=close,
        contradictions=count_contradictions(real, sampled, train, names),
        notes=tuple(notes),
    )


def _compared(real: Floats, rows: Floats, is_word: NDArray[np.bool_]) -> tuple[list[Similarity], list[Pair], Errors]:
    """Return the similarities of columns and of pairs of columns, and the mean errors."""
    columns, pairs = shape(real, rows, is_word), trend(real, rows, is_word)
    similarities = (columns, [pair.similarity for pair in pairs], [pair.with_own_bins for pair in pairs])
    means = map(mean_similarity, similarities)
    return columns, pairs, Errors(*(None if mean is None else 1 - mean for mean in means))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _listed(what: str, texts: list[str]) -> list[str]:
    return [f"{what} with the largest errors: {', '.join(texts[:WORST])}"] if texts else []


# --- judge.json ---


class SavedJudgement(NamedTuple):
    """The parts of a judgement that a report shows."""

    verdict: str
    lines: list[Line]
    remarks: list[str]


def judgement_text(judgement: Judgement, run: Path | None = None) -> str:
    """Return a judgement as JSON. If a run is given, the JSON includes a hash of the run's weights."""
    about = {} if run is None else {"weights": _hash_of_weights(run)}
    return json.dumps({**judgement.to_json(), **about}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_judgement(path: Path, judgement: Judgement, run: Path | None = None) -> None:
    """Write a judgement atomically."""
    write_atomically(path, judgement_text(judgement, run).encode())


def read_judgement(run: Path) -> SavedJudgement | None:
    """Return the saved judgement of a run's samples; None if there is none for the current weights or it is invalid.

    >>> read_judgement(Path("no/such/run")) is None
    True
    """
    try:
        check_plain(run / JUDGE_FILE, MOST_BYTES)
        found = json.loads((run / JUDGE_FILE).read_text(encoding="utf-8"))
        if found["weights"] != _hash_of_weights(run):  # the run was fitted again
            return None
        lines = [(str(what), str(ours), str(new)) for what, ours, new in found["lines"]]
        return SavedJudgement(str(found["verdict"]), lines, [*map(str, found["worst"]), *map(str, found["notes"])])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _hash_of_weights(run: Path) -> Any:
    with (run / WEIGHTS_FILE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
