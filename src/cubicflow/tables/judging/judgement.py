"""All that is said about sampled rows: as numbers, as the lines of a small table, and in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from cubicflow.tables.judging.closeness import Closeness, closeness
from cubicflow.tables.judging.contradictions import Contradictions, count_contradictions
from cubicflow.tables.judging.detection import Detection, detection
from cubicflow.tables.judging.matched import Matched, match
from cubicflow.tables.judging.shape_and_trend import Score, mean_score, shape, trend

# the sentence of an AUC below each bound
TELLS = (
    (0.55, "A classifier cannot tell the samples from real rows"),
    (0.65, "A classifier can hardly tell the samples from real rows"),
    (0.80, "A classifier can often tell the samples from real rows"),
    (0.95, "A classifier can mostly tell the samples from real rows"),
    (2.00, "A classifier can nearly always tell the samples from real rows"),
)
MANY = 0.01  # of the rows; fewer contradictions or copies are not worth a clause
WORST = 3  # columns and pairs that are named

Line = tuple[str, str, str]  # what, for the samples, for new real rows


@dataclass(frozen=True)
class Judgement:
    """How good sampled rows are. Errors are 1 - the mean score; None stands for what could not be judged.

    Attributes:
        rows: how many real, sampled and training rows were judged.
        detection: a classifier between real and sampled rows.
        shape_error: of columns one at a time, with SDMetrics' scores.
        trend_error: of columns two at a time, with SDMetrics' scores; numbers beside words in the real column's bins.
        trend_error_own_bins: the same with each table's own bins, as SDMetrics' QualityReport has it.
        columns, pairs: the score of each column and pair of columns.
        closeness: of the sampled and the real rows to the training rows.
        contradictions: sampled rows against what holds in all training rows.
        notes: what was left out, and why.
    """

    rows: dict[str, int]
    detection: Detection
    shape_error: float | None
    trend_error: float | None
    trend_error_own_bins: float | None
    columns: dict[str, float | None]
    pairs: tuple[tuple[str, str, float | None], ...]
    closeness: dict[str, Closeness] | None
    contradictions: Contradictions
    notes: tuple[str, ...]

    def verdict(self) -> str:
        """How good the samples are, in one sentence."""
        auc = self.detection.auc
        said = next(text for bound, text in TELLS if auc < bound)
        clauses = [f"{said} (AUC {auc:.2f}, where 0.5 is a coin and 1 is certainty)"]
        errors = [(self.shape_error, "columns"), (self.trend_error, "pairs of columns")]
        far = [f"{what} are off by {_percent(error)}" for error, what in errors if error is not None]
        if far:
            clauses.append(f"{' and '.join(far)} on average")
        broken = self.contradictions
        if broken.sampled > max(2 * (broken.held_out or 0), MANY):
            clauses.append(f"{_percent(broken.sampled)} of the samples contradict what holds in all {broken.found_in}")
        if self.closeness is not None:
            ours, new = (self.closeness[name].copies for name in ("sampled", "held_out"))
            if ours > 2 * new + MANY:
                clauses.append(f"{_percent(ours)} are copies of training rows, against {_percent(new)} of new rows")
        return "; ".join(clauses) + "."

    def lines(self) -> list[Line]:
        """The numbers in words, beside those of new real rows or what would be best."""
        found = self.detection
        lines: list[Line] = [
            ("AUC of a classifier against real rows", f"{found.auc:.3f} ± {found.spread:.3f}", "0.5"),
            ("detection score", f"{found.score:.3f}", "1"),
            ("error of single columns (shape)", _percent(self.shape_error), "0 %"),
            ("error of pairs of columns (trend)", _percent(self.trend_error), "0 %"),
            ("the same, each table in its own bins", _percent(self.trend_error_own_bins), "0 %"),
        ]
        if self.closeness is not None:
            ours, new = self.closeness["sampled"], self.closeness["held_out"]
            lines += [
                ("exact copies of training rows", _percent(ours.copies), _percent(new.copies)),
                ("distance to the closest training row, median", f"{ours.median:.4f}", f"{new.median:.4f}"),
                ("the same, 5 % quantile", f"{ours.low:.4f}", f"{new.low:.4f}"),
            ]
        if self.contradictions.rules:
            broken = self.contradictions
            what = f"rows that contradict what holds in all {broken.found_in}"
            lines.append((what, _percent(broken.sampled), _percent(broken.held_out)))
        return lines

    def worst(self) -> list[str]:
        """The columns, pairs and rules that the samples miss most, in words."""
        columns = sorted((score, name) for name, score in self.columns.items() if score is not None)
        pairs = sorted((score, a, b) for a, b, score in self.pairs if score is not None)
        rules = sorted((-rule.sampled, rule.determinant, rule.dependent) for rule in self.contradictions.rules)
        return [
            *_listed("columns", [f"{name} {_percent(1 - score)}" for score, name in columns]),
            *_listed("pairs", [f"{a} and {b} {_percent(1 - score)}" for score, a, b in pairs]),
            *_listed("rules", [f"{a} determines {b} {_percent(-share)}" for share, a, b in rules if share]),
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it, with its sentence and lines first, for readers that want no more."""
        said = {"verdict": self.verdict(), "lines": self.lines(), "worst": self.worst()}
        return {**said, **asdict(self)}


def judge(
    real: pa.Table,
    sampled: pa.Table,
    train: pa.Table | None = None,
    *,
    words: Collection[str] = (),
    seed: int = 0,
) -> Judgement:
    """How good sampled rows are, beside real rows that no model has seen.

    Args:
        real: rows of the table that were held out.
        sampled: rows of a model, with the same columns.
        train: the rows that the model was fitted to. Without them nothing is said about copies and closest rows, and
            what holds in all rows is looked for in the real ones.
        words: columns whose numbers are names, such as postcodes.
        seed: of the rows that are drawn where there are many, and of the classifier.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> real, sampled = (pa.table({"x": rng.normal(size=100), "y": rng.normal(size=100)}) for _ in range(2))
    >>> found = judge(real, sampled)
    >>> found.detection.auc < 0.7, found.shape_error < 0.2, found.closeness
    (True, True, None)
    """
    tables = {"the real table": real, "the sampled table": sampled}
    if train is not None:
        tables["the training table"] = train
    return judge_matched(match(tables, words), seed=seed)


def judge_matched(matched: Matched, *, seed: int = 0, notes: Sequence[str] = ()) -> Judgement:
    """The same of tables that were matched: real, sampled and, where there are any, training rows."""
    names, is_word = matched.names, matched.is_word
    real, sampled, *rest = matched.tables
    train = rest[0] if rest else None
    columns = dict(zip(names, shape(real, sampled, is_word), strict=True))
    pairs = trend(real, sampled, is_word)
    own = trend(real, sampled, is_word, "own")
    close = None
    if train is not None:
        both = {"sampled": sampled, "held_out": real}
        close = {name: closeness(table, train, is_word, seed) for name, table in both.items()}
    counts = zip(("real", "sampled", "train"), matched.tables, strict=False)
    return Judgement(
        rows={name: len(table) for name, table in counts},
        detection=detection(real, sampled, is_word, seed),
        shape_error=_error(list(columns.values())),
        trend_error=_error([pair.score for pair in pairs]),
        trend_error_own_bins=_error([pair.score for pair in own]),
        columns=columns,
        pairs=tuple((names[pair.first], names[pair.second], pair.score) for pair in pairs),
        closeness=close,
        contradictions=count_contradictions(real, sampled, train, names),
        notes=tuple(notes),
    )


def _error(scores: list[Score]) -> float | None:
    mean = mean_score(scores)
    return None if mean is None else 1 - mean


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _listed(what: str, texts: list[str]) -> list[str]:
    return [f"{what} that are furthest off: {', '.join(texts[:WORST])}"] if texts else []
