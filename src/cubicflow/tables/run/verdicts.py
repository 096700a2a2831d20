"""Baselines of a log likelihood: the score of independent columns, and the score of the training rows.

Everything is computed from one score per row, so it works for any model of a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.run.means import Mean, MeanOfRows

# A gap between training and test rows gives a warning if it is significant and large. Significant: three standard
# errors of the difference (the ± shown is two), because test rows are few. Large: a quarter of the gain of the training
# rows over independent columns, which is what the model seems to have learned. A smaller gap is the normal cost of
# learning: p parameters fitted to n rows cost about p / n nats.
SIGNIFICANT_ERRORS = 1.5  # multiple of the ± that makes a gap significant
LARGE_SHARE = 0.25  # share of the training rows' gain that makes a gap large
FAR = -1e5  # nats; rows below hold values far beyond the training rows, and a few of them decide a mean alone


class Score(NamedTuple):
    """The mean log likelihood of some rows, that of independent columns, and the mean of the row-wise difference.

    ``independent`` and ``gain`` are None if the marginals are not known or the table has a single column. ``near`` is
    the mean log likelihood of the rows above FAR; None if all rows are above.
    """

    model: Mean
    independent: Mean | None = None
    gain: Mean | None = None
    near: Mean | None = None


@dataclass(frozen=True)
class ScoreOfRows:
    """Sums of the scores of rows, to which those of other rows can be added.

    >>> import numpy as np
    >>> scores = ScoreOfRows.of(np.array([-1.0, -2.0]), np.array([-3.0, -5.0]))
    >>> str(scores.result().gain)
    '2.500 ± 1.000 nats'
    """

    model: MeanOfRows = field(default_factory=MeanOfRows)
    near: MeanOfRows = field(default_factory=MeanOfRows)
    independent: MeanOfRows = field(default_factory=MeanOfRows)
    gain: MeanOfRows = field(default_factory=MeanOfRows)

    @classmethod
    def of(cls, scores: Floats, independent: Floats | None = None, weights: Floats | None = None) -> ScoreOfRows:
        """Return the sums of rows with these scores, scores of independent columns, and weights."""
        is_near = scores > FAR
        near = MeanOfRows.of(scores[is_near], None if weights is None else weights[is_near])
        both = () if independent is None else (independent, scores - independent)
        return cls(MeanOfRows.of(scores, weights), near, *(MeanOfRows.of(each, weights) for each in both))

    def __add__(self, other: ScoreOfRows) -> ScoreOfRows:
        return ScoreOfRows(
            self.model + other.model,
            self.near + other.near,
            self.independent + other.independent,
            self.gain + other.gain,
        )

    def result(self) -> Score:
        near = None if self.near.rows == self.model.rows else self.near.result()
        if not self.gain.rows:
            return Score(self.model.result(), near=near)
        return Score(self.model.result(), self.independent.result(), self.gain.result(), near)


def gap(train: Score, held_out: Score) -> Mean:
    """Return how much higher training rows score than held-out rows.

    >>> str(gap(Score(Mean(80, -1.0, 0.3)), Score(Mean(10, -1.5, 0.4))))
    '0.500 ± 0.500 nats'
    """
    one, other = train.model, held_out.model
    return Mean(other.rows, one.mean - other.mean, math.hypot(one.error, other.error), min(one.weight, other.weight))


def score_lines(score: Score, train: Score | None = None, part: str = "test") -> list[str]:
    """Return the lines below a reported log likelihood: one for independent columns, one for the training rows.

    >>> some = Score(Mean(10, -3.0, 0.4), Mean(10, -5.0, 0.4), Mean(10, 2.0, 0.1))
    >>> score_lines(some, Score(Mean(80, -2.5, 0.3)))
    ['independent columns score -5.000 ± 0.400 nats: the model gains 2.000 ± 0.100 nats a row', \
'training rows score 0.500 ± 0.500 nats higher than test rows']
    """
    lines: list[str] = []
    if not score.model.weight:
        return lines
    if score.independent is not None and score.gain is not None:
        gains = f"the model {_with_sign(score.gain, 'gains', 'loses')} a row"
        lines.append(f"independent columns score {score.independent}: {gains}")
    if train is not None:
        lines.append(
            f"training rows score {_with_sign(gap(train, score), '', '', ' higher', ' lower')} than {part} rows"
        )
    return lines


def verdict(score: Score, train: Score | None = None, part: str = "test") -> str:
    """Return a one-line summary of a fit.

    >>> some = Score(Mean(10, -3.0, 0.4), Mean(10, -5.0, 0.4), Mean(10, 2.0, 0.1))
    >>> verdict(some, Score(Mean(80, -2.5, 0.3)))
    'Test rows score 2.000 ± 0.100 nats higher than by independent columns, and 0.500 ± 0.500 nats lower than training \
rows.'
    """
    if not score.model.weight or score.gain is None:
        first = f"{part.capitalize()} rows score {score.model}"
    else:
        higher = _with_sign(score.gain, "", "", " higher", " lower")
        first = f"{part.capitalize()} rows score {higher} than by independent columns"
    if train is None or not score.model.weight:
        return f"{first}."
    return f"{first}, and {_with_sign(gap(train, score), '', '', ' lower', ' higher')} than training rows."


def score_warnings(score: Score, train: Score | None = None, part: str = "test") -> list[str]:
    """Return warnings about a fit, each of which starts with the finding; an empty list for a good fit.

    >>> score_warnings(Score(Mean(10, -3.0, 0.4), Mean(10, -5.0, 0.4), Mean(10, 2.0, 0.1)))
    []
    """
    found: list[str] = []
    if score.near is not None:
        found.append(
            f"{score.model.rows - score.near.rows:,} of {score.model.rows:,} rows score below {FAR:,.0f} nats, so the "
            f"mean says nothing about the others, which score {score.near}; those rows hold values far beyond the "
            "training rows: correct them, or leave them out"
        )
    if score.gain is None:
        return found
    if score.gain.mean < -score.gain.error:
        found.append(
            f"{part} rows score {_size(score.gain)} less than by independent columns: the model has learned nothing "
            "that holds for new rows; give it more rows, fewer columns, or more steps"
        )
    if train is None or train.gain is None:
        return found
    difference, learned = gap(train, score), max(train.gain.mean, 0.0)
    if difference.mean > SIGNIFICANT_ERRORS * difference.error and difference.mean > LARGE_SHARE * learned:
        large = (
            f"training rows score {_size(difference)} higher than {part} rows, which is much compared with the "
            f"{learned:.3f} nats that they gain over independent columns"
        )
        by_the_model = train.gain.mean - score.gain.mean  # the part of the gap that independent columns do not have
        if by_the_model > difference.mean / 2:
            found.append(f"{large}: the model has memorised its training rows; give it more rows, or make it smaller")
        else:
            found.append(
                f"{large}: independent columns have most of that gap too, so it comes from single columns with rare "
                "words or values; leave such columns out, or give the model more rows"
            )
    return found


def _with_sign(mean: Mean, up: str, down: str, above: str = "", below: str = "") -> str:
    """Return the size of a difference, with a word for its sign before or after it."""
    before, after = (down, below) if mean.mean < 0 else (up, above)
    return f"{before} {_size(mean)}{after}".strip()


def _size(mean: Mean) -> str:
    return str(replace(mean, mean=abs(mean.mean)))


class Used(NamedTuple):
    """Counts of a table: rows ``read``, rows ``used``, ``columns``, and missing values, ``gaps``."""

    read: int
    used: int
    columns: int
    gaps: int = 0

    def __str__(self) -> str:
        """Return a phrase for the user.

        >>> str(Used(344, 333, 7, 19)), str(Used(20, 20, 3))
        ('333 of 344 rows are used; the 11 left out lack 19 of their 77 values', 'all 20 rows are used, 60 values')
        >>> str(Used(344, 344, 7, 19))
        'all 344 rows are used, 2,389 values and 19 missing values'
        """
        if self.read == self.used:
            gaps = f" and {self.gaps:,} missing values" if self.gaps else ""
            return f"all {self.read:,} rows are used, {self.read * self.columns - self.gaps:,} values{gaps}"
        left = self.read - self.used
        lack = "lacks" if left == 1 else "lack"
        lost = f"the {left:,} left out {lack} {self.gaps:,} of their {left * self.columns:,} values"
        return f"{self.used:,} of {self.read:,} rows are used; {lost}"
