"""Small tables that both models can serve: both are fitted, and the better one is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from cubicflow.tables import FittedTable, TableOptions, fit_table
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.model.flow import FlowOfNumbers

SHORT = {"seed": 3, "device": "cpu", "progress": False}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit for a few steps without a setting that would say which model to train."""
    for kind in (ModelOfColumns, FlowOfNumbers):
        monkeypatch.setattr(kind, "suited_training", classmethod(lambda _, __: {"steps": 40, "batch_size": 32}))


def table(path: Path, kind: str) -> Path:
    """Write steps, or real numbers with one dependence, to a file."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    rows = {"a": x[:, 0], "b": x[:, 0] + 0.1 * x[:, 1]}
    if kind == "steps":
        rows = {name: np.round(values, 1) for name, values in rows.items()}
    if kind == "gaps":
        rows["b"] = np.where(np.arange(200) % 9, rows["b"], np.nan)
    csv.write_csv(pa.table(rows), path / "t.csv")
    return path / "t.csv"


@pytest.mark.parametrize("kind", ["steps", "reals"])
def test_the_better_model_is_kept_and_its_lead_is_said(tmp_path: Path, kind: str) -> None:
    data, said = table(tmp_path, kind), list[str]()
    kept = fit_table(data, tmp_path / "run", say=said.append, **SHORT)
    means = {}
    for model in ("columns", "flow"):
        alone = fit_table(data, tmp_path / model, model=model, **SHORT)
        labels = alone.fitted.split.parts_of(np.arange(200))
        means[model] = alone.fitted.score(csv.read_csv(data))[labels == 1].mean()
    best = max(means, key=lambda model: means[model])
    assert kept.fitted.model.name == best
    (line,) = [line for line in said if "so it is kept" in line]
    assert f"on the 20 validation rows, {kept.fitted.model.phrase} is better" in line
    assert f"by {abs(means['columns'] - means['flow']):.3f}" in line
    again = FittedTable.load(tmp_path / "run")
    np.testing.assert_allclose(again.score(csv.read_csv(data)), kept.fitted.score(csv.read_csv(data)), rtol=1e-6)
    assert again.model.name == best
    assert sorted(path.name for path in tmp_path.iterdir()) == ["columns", "flow", "run", "t.csv"]
    assert fit_table(data, tmp_path / "run", resume=True, **SHORT).fitted.model.name == best


@pytest.mark.parametrize("won", ["columns", "flow"])
def test_either_model_can_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, won: str) -> None:
    """A network that is not trained loses."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk" / "run")
    (tmp_path / "disk" / "run").mkdir()
    lost = {"columns": FlowOfNumbers, "flow": ModelOfColumns}[won]
    monkeypatch.setattr(lost, "suited_training", classmethod(lambda _, __: {"steps": 1, "learning_rate": 1e-9}))
    assert fit_table(table(tmp_path, "steps"), tmp_path / "run", **SHORT).fitted.model.name == won
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["run"]
    assert FittedTable.load(tmp_path / "disk" / "run").model.name == won


OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    ("gaps", {}),
    ("steps", {"options": TableOptions(missing="model")}),
    ("steps", {"model": "columns"}),
    ("steps", {"steps": 20}),
    ("steps", {"settings": {"num_bins": 4}}),
    ("steps", {"constraints": ["a <= 99"]}),
]


@pytest.mark.parametrize(("kind", "how"), OTHERWISE)
def test_other_fits_train_one_model(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    said: list[str] = []
    fitted = fit_table(table(tmp_path, kind), tmp_path / "run", say=said.append, **{**SHORT, **how}).fitted
    assert fitted.model.name == "columns"
    assert not any("both models" in line for line in said)
