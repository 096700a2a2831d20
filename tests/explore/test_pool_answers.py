"""Answers from the pool agree with enumeration by scores: masses within their errors, and effective sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.explore.tables import joint

from cubicflow.explore.subject import Subject
from cubicflow.explore.threads import AbandonedError
from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.query import all_columns, strategies
from cubicflow.tables.query.pool import thinned

QUESTIONS = (
    {"height": "tall"},
    {"rings": ["one", "many"], "height": "small"},
    {"tree": ["ash", "oak"], "age": "old", "height": "tall"},
    {"rings": "two"},
)


@pytest.fixture(scope="module")
def subject(lists_run: Path) -> Subject:
    found = Subject(FittedTable.load(lists_run))
    found.drawn().grow_to(1 << 15)
    return found


def met(rows: pd.DataFrame, question: dict[str, object]) -> pd.Series:
    kept = pd.Series(True, index=rows.index)
    for name, value in question.items():
        column = rows[name].astype(str)
        kept &= column.isin(value if isinstance(value, list) else [value])
    return kept


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("way", ["paths", "pool", "refined"])
def test_masses_agree_with_enumeration(
    question: dict[str, object], way: str, subject: Subject, lists_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "paths":
        monkeypatch.setattr(all_columns, "MOST_PATHS", 0)
    found = subject.answer(question, refine=way == "refined")
    truth = joint(lists_run)
    rows = truth[met(truth, question)]
    assert found.probability == pytest.approx(rows["p"].sum(), abs=5 * found.probability_error + 1e-6)
    assert found.effective_size >= 500
    for column, answer in zip(subject.axes, found.columns, strict=True):
        labels = list(column.bars)
        shares = rows.groupby(rows[column.name].astype(str))["p"].sum() / rows["p"].sum()
        expected = np.array([shares.get(label, 0.0) for label in labels])
        assert (np.abs(answer.masses[:-1] - expected) <= 4.5 * answer.errors[:-1] + 1e-6).all(), column.name
        assert (answer.errors < 0.05).all()


def test_a_refined_answer_ends_when_its_browser_has_left(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check raises at its second call, in the middle of the answer."""
    calls = iter([None, AbandonedError()])

    def check() -> None:
        if (error := next(calls)) is not None:
            raise error

    monkeypatch.setattr(all_columns, "MOST_PATHS", 0)
    monkeypatch.setattr(strategies, "PILOT", 64)
    monkeypatch.setattr(strategies, "AT_ONCE", 64)
    monkeypatch.setattr("cubicflow.explore.subject.raise_if_abandoned", check)
    with pytest.raises(AbandonedError):
        subject.answer({"height": "tall"}, refine=True)


def test_a_density_is_the_mean_of_laws(mixed_run: Path) -> None:
    """Given a later column, the bins of numbers agree with the bins of rows that `sample` draws."""
    fitted = FittedTable.load(mixed_run)
    subject = Subject(fitted)
    subject.drawn().grow_to(1 << 15)
    given = {"legs": ("2", "4")}
    found = subject.answer(given)
    rows = fitted.sample(6000, given, seed=5).to_pandas()
    for i, column in enumerate(subject.axes):
        if column.is_list or column.is_date:
            continue
        shown = rows[column.name].to_numpy(np.float64)
        plain = (shown - column.start) / column.unit
        drawn = column.masses(
            np.where(np.isnan(plain), np.nan, np.round(plain, 9) if not column.is_whole else plain.round())
        )
        error = np.hypot(found.columns[i].errors, np.sqrt(drawn * (1 - drawn) / 3000) + 1 / 3000)
        # Bins with few rows are smoothed with their neighbours, so sums over thirds of the bins are compared.
        parts = np.array_split(np.arange(column.bins), 3)
        for part in parts:
            gap = abs(found.columns[i].masses[part].sum() - drawn[part].sum())
            assert gap <= 4.5 * np.sqrt((error[part] ** 2).sum()) + 0.01, column.name


def test_impossible_conditions_are_refused(subject: Subject) -> None:
    with pytest.raises(TableError, match="never holds 'elf'"):
        subject.answer({"tree": "elf"})


def test_thinning_keeps_sums() -> None:
    rng = np.random.default_rng(0)
    log_weight = rng.normal(0, 2, 3000)
    value = rng.normal(size=3000)
    total, kept = [], []
    for uniform in rng.random(400):
        rows, log_kept = thinned(log_weight, 200, uniform)
        assert len(rows) <= 201
        assert len(np.unique(rows)) == len(rows)
        total.append(np.exp(log_kept).sum())
        kept.append((np.exp(log_kept) * value[rows]).sum())
    weights = np.exp(log_weight)
    assert np.mean(total) == pytest.approx(weights.sum(), rel=1e-3)
    assert np.mean(kept) == pytest.approx((weights * value).sum(), abs=4 * np.std(kept) / 20)
