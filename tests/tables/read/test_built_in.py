"""Built-in tables, which commands open by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cubicflow.files import cache_folder
from cubicflow.tables import TableError, open_table
from cubicflow.tables.read.places import BUILT_IN, built_in_table


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUBICFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_table_opens_by_name_and_is_cached(name):
    table = open_table(name)
    assert table.names == ["x", "y"]
    rows = np.concatenate([np.column_stack([batch["x"], batch["y"]]) for batch in table.batches()])
    assert rows.shape == (100_000, 2)
    assert ((rows >= 0) & (rows <= 1)).all()
    made = built_in_table(name).stat().st_mtime_ns
    open_table(name)
    assert built_in_table(name).stat().st_mtime_ns == made


def test_a_file_with_the_name_takes_precedence(cache):
    (cache / "gaussians").mkdir()
    with pytest.raises(TableError, match="gaussians"):
        open_table("gaussians")


def test_an_unknown_name_lists_the_built_in_tables():
    with pytest.raises(TableError, match=r"no built-in table of that name \(gaussians, grace-hopper\)"):
        open_table("gausians")


def test_the_cache_folder_is_found(cache, monkeypatch):
    assert cache_folder() == cache / "cache"
    monkeypatch.delenv("CUBICFLOW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "xdg"))
    assert cache_folder() == cache / "xdg" / "cubicflow"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "cubicflow"
