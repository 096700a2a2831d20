"""Tests of the generator benchmark: splits of tables, judges without extra packages, records and their page."""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.synthetic import judge_rows
from benchmarks.synthetic.compared_tables import TABLES, CompareOn
from benchmarks.synthetic.generate_rows import epochs_within, read_table
from benchmarks.synthetic.page import draw, page
from benchmarks.synthetic.records import failed_record, make_record, read_records, write_record
from benchmarks.synthetic_tables import RECORDS, RESULTS, run_one

from benchmarks import synthetic_tables

MACHINE = {
    "command": "python -m benchmarks.synthetic_tables FOLDER",
    "machine": {"processor": "some CPU"},
    "began": "-",
}


def cells_of(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def test_nine_tenths_of_the_rows_are_training_rows(tmp_path: Path) -> None:
    rows = [f"{i},{'even' if i % 2 == 0 else 'odd, too'}" for i in range(50)]
    quoted = [row.replace("odd, too", '"odd, too"') for row in rows]
    (tmp_path / "t.csv").write_text("\n".join(["n,word", *quoted]) + "\n")
    table = CompareOn("t", ("t.csv",), ("word",), ("n", "n", "word"))
    table.write_parts(tmp_path, tmp_path / "parts")
    train, test = (cells_of(tmp_path / "parts" / f"{name}.csv") for name in ("train", "test"))
    assert (len(train), len(test)) == (46, 6)
    assert train[0] == test[0] == ("n", "word")
    assert sorted(train[1:] + test[1:]) == sorted(tuple(row.split(",", 1)) for row in rows)
    assert json.loads((tmp_path / "parts" / "table.json").read_text())["words"] == ["word"]


def test_two_files_are_the_training_and_the_test_rows(tmp_path: Path) -> None:
    for name, row in (("a.csv.gz", "1,x"), ("b.csv.gz", "2,y")):
        (tmp_path / name).write_bytes(gzip.compress(f"n,word\n{row}\n".encode()))
    table = CompareOn("t", ("a.csv.gz", "b.csv.gz"), ("word",), ("n", "n", "word"))
    table.write_parts(tmp_path, tmp_path)
    assert cells_of(tmp_path / "train.csv") == [("n", "word"), ("1", "x")]
    assert cells_of(tmp_path / "test.csv") == [("n", "word"), ("2", "y")]
    with pytest.raises(ValueError, match=r"a\.csv\.gz lacks the columns none"):
        CompareOn("t", ("a.csv.gz", "b.csv.gz"), ("none",), ("n", "n", "n")).write_parts(tmp_path, tmp_path)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_real_tables_have_the_listed_columns(name: str, real_data: Path, tmp_path: Path) -> None:
    TABLES[name].write_parts(real_data / "tables", tmp_path)
    words = json.loads((tmp_path / "table.json").read_text())["words"]
    train = read_table(tmp_path / "train.csv", words)
    others = [column for column in train.columns if column not in words]
    assert all(pd.api.types.is_numeric_dtype(train[column]) for column in others)


def test_epochs_are_the_default_or_fewer_within_the_steps() -> None:
    assert epochs_within(10_000, 500) == 300
    assert epochs_within(10_000, 50_001) == 99  # 101 steps an epoch
    assert epochs_within(1, 50_000) == 1


# --- judges ---


def frame(*rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["town", "county", "size"])


def test_codes_truth_values_and_gaps_have_one_spelling(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("code,flag,size\n3.0,true,1\n3,True,\nNA,,2.5\n")
    rows = judge_rows.read_rows(tmp_path / "a.csv", ["code", "flag"])
    assert rows["code"].tolist() == ["3", "3", "NA"]
    assert rows["flag"].tolist() == ["True", "True", "NA"]
    np.testing.assert_array_equal(rows["size"], [1, np.nan, 2.5])


def test_copies_are_equal_in_every_cell() -> None:
    train = frame(("a", "x", 1.0), ("b", "y", np.nan))
    others = frame(("a", "x", 1.0), ("a", "x", 2.0), ("b", "y", np.nan), ("b", "x", np.nan))
    assert judge_rows.copies(train, others) == 0.5


def test_impossible_pairs_are_absent_pairs_that_independence_would_make() -> None:
    real = frame(*[("a", "x", 0.0)] * 20, *[("b", "y", 0.0)] * 20, ("c", "x", 0.0))
    sampled = frame(("a", "y", 0.0), ("a", "x", 0.0), ("c", "y", 0.0), ("b", "x", 0.0))
    found = judge_rows.impossible(real, sampled, ["town", "county"])
    assert found == {"pairs": 2, "share": 0.5}  # c with y is not counted: it is rare even under independence


def test_contradictions_break_a_column_that_determines_another() -> None:
    real = frame(*[("a", "x", 1.0), ("b", "x", 2.0), ("c", "y", 1.0), ("c", "y", 2.0)] * 30)
    sampled = frame(("a", "y", 1.0), ("b", "x", 1.0), ("c", "y", 9.0), ("new", "y", 1.0))
    found = judge_rows.contradicted(real, sampled)
    assert ["town", "county", 0.25] in found["rules"]
    assert not any(rule[:2] == ["county", "town"] for rule in found["rules"])
    assert found["share"] == 0.25


def test_frequent_numbers_and_negatives() -> None:
    train = frame(*[("a", "x", 0.0)] * 30, *[("a", "x", float(i)) for i in range(1, 71)])
    sampled = frame(*[("a", "x", 0.0)] * 5, *[("a", "x", -1.0)] * 5)
    assert judge_rows.frequent_numbers(train, sampled, ["town", "county"]) == {"size": [0.0, 0.3, 0.5]}
    assert judge_rows.negatives(train, sampled, ["town", "county"]) == 0.5
    shown = judge_rows.marginals(train, sampled, ["town", "county"], ["town", "size"])
    assert shown["town"] == {"words": ["a"], "real": [1.0], "sampled": [1.0]}
    assert len(shown["size"]["real"]) == 10  # bins for 100 rows
    assert sum(shown["size"]["real"]) == pytest.approx(1, abs=0.03)


# --- records and the page ---


def record(model: str, score: float) -> dict[str, object]:
    column = {"edges": [0.0, 1.0, 2.0], "real": [0.5, 0.5], "sampled": [0.4, 0.6]}
    words = {"words": ["a", "b"], "real": [0.9, 0.1], "sampled": [0.8, 0.2]}
    judged = {
        "detection": {"score": score},
        "detection_held_out": {"score": score + 0.01},
        "sdmetrics": {"shape": 0.99, "trend": 0.98},
        "resampled": {"shape": 0.995, "trend": 0.9871},
        "copies": {"sampled": 0.0, "held_out": 0.012},
        "impossible_pairs": {"pairs": 0, "share": 0.0},
        "contradictions": {"rules": [["a", "b", 0.5]], "share": 0.5},
        "frequent_numbers": {"size": [0.0, 0.48, 0.47]},
        "negatives": 0.25,
        "marginals": {"size": column, "town": words, "other": column},
        "versions": {"xgboost": "3"},
    }
    mass = {"mean": -1.5, "error": 0.1, "rows": 1000, "independent": -2.0, "of": "the cells of a row"}
    generated = {
        "versions": {"torch": "2"},
        "settings": {"epochs": 100},
        "seconds": {"fit": {"wall": 12.0, "processor": 10.4}},
        "log_mass": mass if model == "cubicflow" else None,
        "threads": 1,
    }
    return make_record("penguins", model, generated, judged, MACHINE)


def test_the_page_shows_the_records(tmp_path: Path) -> None:
    write_record(tmp_path, record("sdv-tvae", 0.4))
    write_record(tmp_path, record("cubicflow", 0.9))
    write_record(tmp_path, failed_record("penguins", "mostlyai", "ModuleNotFoundError: nothing there", MACHINE))
    records = read_records(tmp_path, ["penguins", "magic"])
    assert [each["model"] for each in records] == ["cubicflow", "sdv-tvae", "mostlyai"]
    text = page(records, ["penguins", "magic"])
    assert "| cubicflow | **0.900** |" in text
    assert "| SDV TVAE | 0.400 |" in text
    assert "| cubicflow | 0.900 | 0.910 | 0.9900 | 0.9800 | 0 % (1.2 %) | - | 50.0 % | 12, 10 |" in text
    assert "Training rows drawn with replacement: shape 0.9950, trend 0.9871." in text
    assert "mostlyai-engine could not be run: ModuleNotFoundError: nothing there" in text
    assert "-1.500 ± 0.100 nats over 1,000 test rows; independent columns -2.000." in text
    assert "| training rows | 48.0 % | 0 % |" in text
    assert "| SDV TVAE | 47.0 % | 25.0 % |" in text
    assert "SDV TVAE on penguins epochs = 100" in text
    assert "magic" not in text.split("## Detection score")[1].split("Not run yet")[0]
    assert "cubicflow on magic; SDV GaussianCopula on penguins, magic; SDV TVAE on magic;" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_samples_are_judged_on_another_machine_without_another_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[str] = []

    def run_script(interpreter: str, script: str, model: str, folder: str, *limits: str) -> None:
        scripts.append(script)
        made = record(model, 0.4)
        judged = {**made.pop("judged"), "versions": {}}
        name, content = (f"{model}-judged.json", judged) if script == "judge_rows.py" else (f"{model}.json", made)
        (Path(folder) / name).write_text(json.dumps(content))

    monkeypatch.setattr(synthetic_tables, "run_script", run_script)
    monkeypatch.setattr(synthetic_tables, "RECORDS", tmp_path / "records")
    table = CompareOn("penguins", ("t.csv",), ("word",), ("n", "n", "word"))
    monkeypatch.setitem(TABLES, "penguins", table)
    (tmp_path / "t.csv").write_text("n,word\n" + "1,a\n" * 20)
    sampling = argparse.Namespace(folder=tmp_path, work=tmp_path / "work", judge=None, minutes=1, steps=1, again=False)
    run_one("penguins", "sdv-tvae", "python", sampling, "sampled there")
    assert not (tmp_path / "records").exists()
    judging = argparse.Namespace(**{**vars(sampling), "judge": "python"})
    run_one("penguins", "sdv-tvae", "python", judging, "judged here")
    assert scripts == ["generate_rows.py", "judge_rows.py"]
    (found,) = read_records(tmp_path / "records", ["penguins"])
    assert found["command"] == "sampled there"


def test_the_page_in_the_documentation_agrees_with_the_records() -> None:
    written = (RESULTS / "synthetic_tables.md").read_text(encoding="utf-8")
    assert page(read_records(RECORDS, list(TABLES)), list(TABLES)) == written


def test_the_picture_of_a_table_is_drawn(tmp_path: Path) -> None:
    draw([record("cubicflow", 0.9), record("sdv-tvae", 0.4)], "penguins", tmp_path / "new" / "penguins.png")
    assert (tmp_path / "new" / "penguins.png").read_bytes().startswith(b"\x89PNG")
