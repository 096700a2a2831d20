"""All strategies give one answer to a question on the table of every kind, within their errors."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.helpers.every_kind import fit_every_kind

from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.query.pool import Pool
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import Begun, draw_particles, paths, rejected
from cubicflow.tables.schema.sets import Set

ERRORS = 4  # standard errors by which two estimates may differ
SIZE = 2000.0  # effective size
POOL_ROWS = 1 << 15
SAMPLE_ROWS = 1 << 16
QUESTIONS = {
    "sum": [{"height_again": (10, None)}, {"height_again": (5, 8), "species": "oak"}, {"height_again": (12, 14)}],
    "rule": [{"county": "west"}, {"county": ["east"], "rings": (40, None)}, {"town": "Ulm", "county": "south"}],
    "circle": [{"hour": (22, 1)}, {"angle": (3, -3)}, {"wind": (350, 10), "hour": (20, None)}],
    "gap": [{"girth": None}, {"finder": None, "tall": "true"}, {"finder": None, "girth": (None, 3)}],
    "late and rare": [{"height": (22, None)}, {"rain": (7, None)}, {"rain": (4, None), "height_again": (14, None)}],
    "early": [{"species": "oak"}, {"dose": (1, None)}, {"town": ["Ulm", "Jena"], "species": "ash"}],
    "other": [{"born": (None, "2020-06-01")}, {"tall": "true", "branches": (None, 2)}],
}  # fmt: skip
EARLY = {"species", "finder", "town", "county", "dose", "tall"}  # columns with few combinations


class Model(NamedTuple):
    fitted: FittedTable
    pool: Pool
    sample: Pool


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    fitted = fit_every_kind(tmp_path_factory.mktemp("kinds"))
    about = fitted.model.laws(), None, fitted.constraints
    found = Model(fitted, Pool(*about, seed=1), Pool(*about, seed=2))
    found.pool.grow_to(POOL_ROWS)
    found.sample.grow_to(SAMPLE_ROWS)
    return found


def answers(model: Model, given: dict[str, object]) -> dict[str, Begun]:
    """Return the answer of every strategy that applies."""
    question = Question(model.fitted.model.laws(), given, model.fitted.constraints)
    generator = torch.Generator().manual_seed(0)
    y, stop = model.sample.y, question.walk.last + 1
    inside = [within.contains(y[:, i]) for i, within in question.walk.sets.items()]
    found = {
        "paths": paths(question, stop),
        "particles": draw_particles(question, stop, SIZE, generator),
        "pool": model.pool.begin(question, SIZE, generator),
        "sample": rejected(y, np.logical_and.reduce([question.walk.keeps(y), *inside])),
    }
    return {name: begun for name, begun in found.items() if begun is not None}


def share(begun: Begun, i: int, within: Set) -> tuple[float, float]:
    """Return the share of rows with column i in a set, and its standard error."""
    y, log_weight = begun.particles.y, begun.particles.log_weight
    if begun.early is not None and i < begun.before:
        y, log_weight = begun.early
    w = np.exp(log_weight - log_weight.max())
    w /= w.sum()
    inside = within.contains(y[:, i])
    mean = float(w @ inside)
    return mean, begun.relative_error if begun.is_exact else float(np.sqrt((w**2) @ (inside - mean) ** 2))


@pytest.mark.parametrize("given", [given for found in QUESTIONS.values() for given in found], ids=str)
def test_strategies_agree(given: dict[str, object], model: Model) -> None:
    found = answers(model, given)
    assert ("paths" in found) == (given.keys() <= EARLY)
    for one, other in combinations(found.values(), 2):
        p, q = (np.exp(each.log_probability) for each in (one, other))
        assert (
            abs(p - q) <= ERRORS * np.hypot(p * one.relative_error, q * other.relative_error) + 1e-6 * p
        )  # a pool is in float32
        for i in range(min(one.stop, other.stop)):
            half = Set.between((-np.inf, float(np.nanmedian(model.sample.y[:, i]))))
            (a, error_a), (b, error_b) = share(one, i, half), share(other, i, half)
            # a set that no drawn row of one answer is in, or that all are in, has no error of its own
            least = max(1 / each.effective_size for each in (one, other))
            assert abs(a - b) <= ERRORS * np.hypot(error_a, error_b) + least, i


def test_a_question_without_rows_is_told_from_a_rare_one(model: Model) -> None:
    with pytest.raises(TableError, match="contradict one another"):
        model.fitted.probability({"town": "Ulm", "county": "west"})
    with pytest.raises(TableError, match="too rare to answer"):
        model.fitted.probability(
            {"rain": (15, None), "height_again": (40, None), "girth": (9, None), "rings": (90, None)}
        )


@pytest.mark.parametrize("finest", [False, True])
def test_listing_the_values_of_a_set_leaves_its_kept_cells_as_they_are(model: Model, finest: bool) -> None:
    for coder in model.fitted.model.laws().encoder.coders:
        within = Set.everything(gap=coder.cells.gaps)
        before = coder.of(within).fields.copy()
        coder.listed(within, 1 << 20, finest=finest)
        np.testing.assert_array_equal(coder.of(within).fields, before, coder.column.name)
