"""``cubicflow judge`` on a run and on two tables, its part of the report, and its errors."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command_line import Command, Outcome

from cubicflow.tables import FittedTable
from cubicflow.tables.judging.judgement import read_judgement

from .pets import make_frame


def refused(outcome: Outcome, *said: str) -> None:
    status, _, errors = outcome
    assert status == 2, errors
    assert errors.startswith("error: ")
    assert len(errors.strip().splitlines()) == 1
    for text in said:
        assert text in errors


def cities(rows: int, seed: int, *, mixed: bool = False) -> pd.DataFrame:
    """Return rows in which the city determines the country. With ``mixed`` the countries are shuffled."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Paris", "Lyon", "Rome", "Milan"], rows)
    country = np.where(np.isin(city, ["Paris", "Lyon"]), "France", "Italy")
    country = rng.permutation(country) if mixed else country
    people = np.where(rng.random(rows) < 0.1, np.nan, np.round(rng.gamma(3, 10, rows), 1))
    return pd.DataFrame({"city": city, "country": country, "people": people, "code": rng.integers(10, 15, rows)})


@pytest.fixture(autouse=True)
def _quick_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.judging.measures.FOLDS", 2)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    frames = {"train": cities(400, 0), "real": cities(300, 1), "sampled": cities(250, 2, mixed=True)}
    frames["copied"] = pd.concat([frames["train"][:100], cities(100, 3)])
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return {name: tmp_path / f"{name}.csv" for name in frames}


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may write into."""
    return Path(shutil.copytree(run, tmp_path / "run"))


# --- two tables ---


def test_two_tables_are_compared(cubicflow: Command, files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "judge.json"
    status, printed, errors = cubicflow(
        "judge", files["real"], files["sampled"], "--train", files["train"], "-o", output
    )
    assert status == 0, errors
    found = json.loads(output.read_text())
    assert found["rows"] == {"real": 300, "sampled": 250, "train": 400}
    sampled = pd.read_csv(files["sampled"])
    wrong = (sampled.city.isin(["Paris", "Lyon"]) != (sampled.country == "France")).mean()
    assert found["contradictions"]["sampled"] == pytest.approx(wrong)
    assert found["contradictions"]["held_out"] == 0
    assert [(rule["determinant"], rule["dependent"]) for rule in found["contradictions"]["rules"]] == [
        ("city", "country")
    ]
    assert found["detection"]["auc"] > 0.6
    assert f"{100 * wrong:.2f} % of the samples contradict what holds in all training rows" in found["verdict"]
    assert found["verdict"] in printed
    assert f"wrote {output}" in printed
    refused(cubicflow("judge", files["real"], files["sampled"], "-o", output), "--overwrite")


def test_copies_of_training_rows_are_reported(cubicflow: Command, files: dict[str, Path]) -> None:
    status, printed, _ = cubicflow("judge", files["real"], files["copied"], "--train", files["train"], "-o", "-")
    assert status == 0
    found = json.loads(printed)
    train, real, copied = (pd.read_csv(files[name]).fillna(-1) for name in ("train", "real", "copied"))
    known = set(map(tuple, train.to_numpy()))
    for name, frame in (("sampled", copied), ("held_out", real)):
        expected = np.mean([tuple(row) in known for row in frame.to_numpy()])
        assert found["closeness"][name]["copies"] == pytest.approx(expected)
    assert "are copies of training rows" in found["verdict"]


def test_measures_that_are_left_out_are_reported(cubicflow: Command, files: dict[str, Path]) -> None:
    status, printed, errors = cubicflow("judge", files["real"], files["sampled"])
    assert status == 0
    assert "copies and closest rows are left out" in errors
    assert "give the training rows with --train" in errors
    assert "copies" not in printed
    assert "rows that contradict what holds in all real rows" in printed
    status, printed, errors = cubicflow("judge", files["real"], files["real"], "--train", files["real"])
    assert status == 0
    assert "both files hold the same rows" in errors
    assert "the training rows equal the real rows" in errors


def test_the_option_words_makes_codes_words(cubicflow: Command, files: dict[str, Path]) -> None:
    """The shape score of codes is that of numbers by default, and that of words with --words."""
    sampled = pd.read_csv(files["sampled"])
    sampled["code"] = sampled["code"].replace(14, 13)
    sampled.to_csv(files["sampled"], index=False)
    shapes = []
    for option in ((), ("--words", "code")):
        status, printed, errors = cubicflow("judge", files["real"], files["sampled"], "-o", "-", *option)
        assert status == 0, errors
        shapes.append(json.loads(printed)["columns"]["code"])
    real = pd.read_csv(files["real"])["code"].value_counts(normalize=True).sort_index()
    ours = sampled["code"].value_counts(normalize=True).reindex(real.index, fill_value=0)
    assert shapes[0] == pytest.approx(1 - (real.cumsum() - ours.cumsum()).abs().max())
    assert shapes[1] == pytest.approx(1 - (real - ours).abs().sum() / 2)


def test_a_parquet_file_is_judged_like_its_csv(cubicflow: Command, files: dict[str, Path], tmp_path: Path) -> None:
    pd.read_csv(files["sampled"]).to_parquet(tmp_path / "sampled.parquet")
    first, second = (
        cubicflow("judge", files["real"], path, "-o", "-").output
        for path in (files["sampled"], tmp_path / "sampled.parquet")
    )
    assert json.loads(first) == json.loads(second)


def test_tables_that_cannot_be_judged(cubicflow: Command, files: dict[str, Path], tmp_path: Path) -> None:
    frame = pd.read_csv(files["sampled"])
    other = tmp_path / "other.csv"

    def judged(changed: pd.DataFrame, *options: object) -> Outcome:
        changed.to_csv(other, index=False)
        return cubicflow("judge", files["real"], other, *options)

    refused(judged(frame.drop(columns="city")), "other.csv lacks column 'city'", "--drop city")
    refused(judged(frame.assign(id=1)), "other.csv has the extra column 'id'", "--drop id")
    assert judged(frame.assign(id=1), "--drop", "id").status == 0
    refused(judged(frame, "--drop", "nothing"), "there is no column 'nothing'")
    refused(judged(frame, "--words", "nothing"), "there is no column 'nothing'")
    refused(judged(frame.assign(people="many")), "'people' holds numbers in", "text such as 'many'", "--words people")
    refused(judged(frame.assign(people=np.inf)), "column 'people' holds 250 infinite values")
    refused(judged(frame[:19]), "other.csv: 19 rows are too few to judge by; give 20 or more")
    refused(judged(frame[:0]), "other.csv: the table has no rows")
    refused(judged(frame, "--missing", "drop"), "--missing needs a run")
    refused(judged(frame, "-o", tmp_path / "judge.csv"), "should end in .json")
    refused(cubicflow("judge", tmp_path / "none.csv", other), "there is no such file")
    refused(cubicflow("judge", tmp_path, other), "this folder holds no .parquet file")


# --- runs ---


def test_a_run_and_the_file_it_was_fitted_to(cubicflow: Command, own_run: Path, table: Path) -> None:
    status, printed, errors = cubicflow("judge", own_run, table)
    assert status == 0, errors
    assert "only its test rows are held out" in errors
    found = json.loads((own_run / "judge.json").read_text())
    assert found["rows"] == {"real": 20, "sampled": 20, "train": 160}
    assert found["verdict"] in printed
    assert set(found["columns"]) == set(make_frame().columns) - {"kind", "tame"}
    before = (own_run / "judge.json").read_bytes()
    (own_run / "judge.json").write_text("{}")
    assert cubicflow("judge", own_run, table).status == 0  # the run's own judgement is replaced
    assert (own_run / "judge.json").read_bytes() == before  # the same seed gives the same samples
    named = ("-o", own_run / "plots" / ".." / "judge.json")
    (own_run / "plots").mkdir()
    assert cubicflow("judge", own_run, table, *named, "--seed", 5).status == 0
    assert (own_run / "judge.json").read_bytes() != before


def test_a_judgement_elsewhere_is_not_replaced(
    cubicflow: Command, own_run: Path, table: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "judge.json"
    elsewhere.write_text("mine")
    (own_run / "other.json").write_text("mine")
    for output in (elsewhere, own_run / "other.json"):
        refused(cubicflow("judge", own_run, table, "-o", output), "--overwrite")
        assert output.read_text() == "mine"
    # A comparison of two tables is not a judgement of the run.
    (own_run / "judge.json").write_text("mine")
    refused(cubicflow("judge", files["real"], files["sampled"], "-o", own_run / "judge.json"), "--overwrite")


def test_a_run_judges_the_rows_that_it_samples(cubicflow: Command, own_run: Path, table: Path, tmp_path: Path) -> None:
    """Judging a run against new rows gives the same result as judging its samples from a file."""
    new, samples, train = (tmp_path / f"{name}.csv" for name in ("new", "samples", "train"))
    modelled = make_frame().columns.drop(["kind", "tame"])
    make_frame(60, seed=1)[modelled].to_csv(new, index=False)
    assert cubicflow("sample", own_run, "-n", 60, "-o", samples, "--seed", 3).status == 0
    fitted = FittedTable.load(own_run)
    make_frame()[modelled][fitted.split.parts_of(np.arange(200)) == 0].to_csv(train, index=False)
    of_run = json.loads(cubicflow("judge", own_run, new, "--seed", 3, "-o", "-").output)
    of_files = json.loads(cubicflow("judge", new, samples, "--train", train, "--seed", 3, "-o", "-").output)
    assert of_run["rows"] == {"real": 60, "sampled": 60, "train": 160}
    assert of_run["columns"] == pytest.approx({name: of_files["columns"][name] for name in of_run["columns"]})
    assert of_run["closeness"]["held_out"] == of_files["closeness"]["held_out"]
    assert of_run["closeness"]["sampled"]["median"] == pytest.approx(of_files["closeness"]["sampled"]["median"])


def test_without_the_fitted_file(cubicflow: Command, own_run: Path, table: Path, tmp_path: Path) -> None:
    config, new = own_run / "config.json", tmp_path / "new.csv"
    config.write_text(config.read_text().replace(str(table.resolve()), str(tmp_path / "gone.csv")))
    make_frame(40, seed=1).to_csv(new, index=False)
    status, printed, errors = cubicflow("judge", own_run, new, "-o", "-")
    assert status == 0
    assert "the fitted file is missing or has changed" in errors
    assert json.loads(printed)["closeness"] is None
    found = json.loads(cubicflow("judge", own_run, new, "--train", table, "-o", "-").output)
    assert found["rows"]["train"] == 160  # the training rows of the fitted file


def test_training_rows_that_are_the_held_out_rows(cubicflow: Command, own_run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    make_frame(40, seed=1).to_csv(new, index=False)
    status, printed, errors = cubicflow("judge", own_run, new, "--train", new, "-o", "-")
    assert status == 0
    assert "the training rows equal the real rows" in errors
    assert json.loads(printed)["closeness"]["held_out"]["copies"] == 1


def test_a_conditional_run(cubicflow: Command, conditional_run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    make_frame(81, seed=1).to_csv(new, index=False)
    status, printed, errors = cubicflow("judge", conditional_run, new, "-o", "-")
    assert status == 0, errors
    assert "half of the rows give the context" in errors
    assert "every row counts once" in errors
    found = json.loads(printed)
    assert found["rows"] == {"real": 41, "sampled": 40, "train": 160}
    assert set(found["columns"]) == set(make_frame().columns) - {"weight", "tame"}
    make_frame(40).assign(kind="yeti").to_csv(new, index=False)
    refused(cubicflow("judge", conditional_run, new, "-o", "-"), "new.csv: column 'kind' holds 'yeti'")


def test_runs_that_cannot_be_judged(cubicflow: Command, own_run: Path, table: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    make_frame(40).drop(columns="legs").to_csv(new, index=False)
    refused(cubicflow("judge", own_run, new), "column 'legs' is missing")
    make_frame(40).assign(legs="four").to_csv(new, index=False)
    refused(cubicflow("judge", own_run, new), "new.csv: column 'legs' should hold whole numbers, found 'four'")
    make_frame(19, seed=1).to_csv(new, index=False)
    refused(cubicflow("judge", own_run, new), "19 rows are too few")
    make_frame(40)[:0].to_csv(new, index=False)
    refused(cubicflow("judge", own_run, new), "no rows to judge by")
    frame = make_frame(40)
    frame.loc[3, "size"] = np.nan
    frame.to_csv(new, index=False)
    refused(cubicflow("judge", own_run, new), "1 row lacks a value", "--missing drop")
    status, printed, _ = cubicflow("judge", own_run, new, "--missing", "drop", "-o", "-")
    assert status == 0
    assert json.loads(printed)["rows"]["real"] == 39
    refused(cubicflow("judge", own_run, new, "--words", "legs"), "--words and --drop need two tables, not a run")
    config = json.loads((own_run / "config.json").read_text())
    del config["table"]
    (own_run / "config.json").write_text(json.dumps(config))
    refused(cubicflow("judge", own_run, new), "the run was not fitted to a table")


# --- the report ---


@pytest.mark.usefixtures("few_panels")
def test_the_report_shows_the_judgement(cubicflow: Command, own_run: Path, table: Path) -> None:
    assert cubicflow("judge", own_run, table).status == 0
    found = json.loads((own_run / "judge.json").read_text())
    found["notes"].append("<b>bold</b>")
    (own_run / "judge.json").write_text(json.dumps(found))
    assert cubicflow("plot", own_run, "--rows", 50).status == 0
    text = (own_run / "plots" / "report.html").read_text()
    assert "How good the samples are" in text
    assert found["verdict"] in text
    assert all(f"<td>{ours}</td><td>{real}</td>" in text for _, ours, real in found["lines"])
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    # A judgement of other weights, or a damaged one, is not shown.
    assert read_judgement(own_run) is not None
    for broken in ({**found, "weights": "of another fit"}, [], {"weights": found["weights"], "lines": 3}):
        (own_run / "judge.json").write_text(json.dumps(broken))
        assert read_judgement(own_run) is None


def test_without_scikit_learn(cubicflow: Command, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    refused(
        cubicflow("judge", files["real"], files["sampled"], "--train", files["train"]),
        "judging needs scikit-learn, which is not installed; use: pip install 'cubicflow[sklearn]'",
    )


def test_long_queries_are_no_names_of_runs(cubicflow: Command) -> None:
    query = f"duckdb:?query=SELECT {' + '.join(['1'] * 200)} AS a"
    assert "1 rows are too few to judge by" in cubicflow("judge", query, query).errors
