"""Randomly damaged tables and run folders: the exit status is 0 or 2, without a traceback."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.helpers.command_line import Command

from cubicflow.tables import TableError, TableOptions, infer, open_table

from .pets import make_frame

# Random changes do not shrink to simpler examples, so shrinking is off.
QUICK = settings.default is None or settings.default.derandomize  # `make soak` searches more examples
QUIET: dict[str, Any] = {
    "deadline": None,
    "phases": [Phase.reuse, Phase.generate],
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


def mangle(content: bytes, random: random.Random) -> bytes:
    """Return the content after one to four random cuts, insertions, repeats or changes."""
    for _ in range(random.randint(1, 4)):
        place, length = random.randrange(len(content) + 1), random.choice([1, 1, 2, 8, 100, 4000])
        noise = random.choice(
            [random.randbytes(length), b"," * length, b'"' * min(length, 3), b"\n", b"\0", b"1e400", b"-"]
        )
        change = random.choice(["cut", "insert", "replace", "repeat", "truncate"])
        if change == "cut":
            content = content[:place] + content[place + length :]
        elif change == "insert":
            content = content[:place] + noise + content[place:]
        elif change == "replace":
            content = content[:place] + noise + content[place + len(noise) :]
        elif change == "repeat":
            content = content[:place] + content[place : place + length] + content[place:]
        else:
            content = content[:place]
    return content


def as_csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def as_parquet(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


def as_npy(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    np.save(file, frame[["size", "weight", "legs"]].to_numpy())
    return file.getvalue()


WRITERS: dict[str, Callable[[pd.DataFrame], bytes]] = {"csv": as_csv, "parquet": as_parquet, "npy": as_npy}


@pytest.mark.parametrize("ending", WRITERS)
@settings(max_examples=25 if QUICK else 100, **QUIET)
@given(st.randoms(use_true_random=False))
def test_mangled_tables_are_read_or_refused(tmp_path: Path, ending: str, random: random.Random) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_bytes(mangle(WRITERS[ending](make_frame(40)), random))
    with suppress(TableError):
        infer(open_table(path), TableOptions(missing=random.choice(["error", "drop"])))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@settings(max_examples=6 if QUICK else 60, **QUIET)
@given(st.randoms(use_true_random=False))
def test_mangled_tables_are_scored_or_refused(
    cubicflow: Command, run: Path, tmp_path: Path, ending: str, random: random.Random
) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_bytes(mangle(WRITERS[ending](make_frame(40)), random))
    clean(cubicflow("score", run, path, "-o", "-", "--missing", "drop"))


def other_value(random: random.Random) -> Any:
    values = [None, True, -1, 0, 3, 1e308, 10**30, "", "x", [], {}, [[]], {"type": "Flow"}, float("nan"), "double"]
    return random.choice(values)


def mangle_json(value: Any, random: random.Random) -> Any:
    """Return the value with one nested value changed or one key removed."""
    if isinstance(value, dict) and value and random.random() < 0.93:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: mangle_json(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.93:
        place = random.randrange(len(value))
        return [*value[:place], mangle_json(value[place], random), *value[place + 1 :]]
    return other_value(random)


@settings(max_examples=15 if QUICK else 200, **QUIET)
@given(st.randoms(use_true_random=False))
def test_mangled_runs_are_used_or_refused(
    cubicflow: Command, run: Path, table: Path, tmp_path: Path, random: random.Random
) -> None:
    copy = tmp_path / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    config = copy / "config.json"
    target = random.choice(["config", "config", "config", "bytes", "weights"])
    if target == "config":
        described = json.loads(config.read_text())
        section = random.choice(["table", "table", "flow", None])
        if section is None:
            described = mangle_json(described, random)
        else:
            described[section] = mangle_json(described[section], random)
        config.write_text(json.dumps(described))
    else:
        path = config if target == "bytes" else copy / "model.safetensors"
        path.write_bytes(mangle(path.read_bytes(), random))
    clean(cubicflow("sample", copy, "-n", 3, "-o", "-", "--seed", 0))
    clean(cubicflow("score", copy, table, "-o", "-"))


def clean(outcome: tuple[int, str, str]) -> None:
    status, _, errors = outcome
    assert status in (0, 2), errors
    assert "Traceback" not in errors
    if status == 2:
        assert len(errors.strip().splitlines()) == 1
