"""Table 1: recipes, names, records and files that are refused with one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.helpers.command_line import Command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[models.mine]\nflow = { num_bins = 3 }", "'mine' in the recipe of table-1 has no title"),
        ('[[table]]\nmodels = ["cubic"]', "a line of the table in the recipe of table-1 has no title"),
        ('[[table]]\ntitle = "x"\nmodels = ["cubik"]', "no model 'cubik'; did you mean 'cubic'?"),
        ("[flow]\nnum_bin = 3", "the recipe of table-1: TabularConfig has no setting 'num_bin'; did you mean"),
        ("[training]\nlearning_rat = 1", "no training setting 'learning_rat'; did you mean 'learning_rate'?"),
    ],
)
def test_unknown_names_are_refused(
    paper: Command, command: tuple[object, ...], tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "typing_errors.toml").write_text(text)
    done = paper(*command, "-o", tmp_path / "out", "--recipe", tmp_path / "typing_errors.toml")
    assert done.status == 2
    assert message in done.errors


def test_cells_of_another_recipe_are_refused_before_anything_is_trained(
    paper: Command, command: tuple[object, ...], tiny_table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out, "--seed", 0).status == 0
    tiny_table.write_text(tiny_table.read_text().replace("steps = 12", "steps = 13"))
    done = paper(*command, "-o", out)
    assert done.status == 2
    assert "was recorded with other settings than this recipe's" in done.errors
    assert not (out / "cells" / "miniboone" / "cubic" / "seed-1").exists()


def test_a_model_for_no_dataset_is_refused(
    paper: Command, command: tuple[object, ...], tiny_table: Path, tmp_path: Path
) -> None:
    tiny_table.write_text(tiny_table.read_text() + '\n[models.cubic]\nonly = ["minibone"]\n')
    done = paper(*command, "-o", tmp_path / "out")
    assert done.status == 2
    assert "restricts 'cubic' to 'minibone', which is not one of its datasets: power, gas" in done.errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("models = 3", "models must be a table, got a number: 3"),
        ('[flow]\nnum_bins = "x"', "[flow]: num_bins must be a number, got a string: 'x'"),
        ("[datasets.iris]\nseeds = [0]", "has an unknown dataset 'iris'; choose from power, gas"),
    ],
)
def test_a_recipe_with_wrong_types_or_names_is_refused(
    paper: Command, table_data: Path, tmp_path: Path, change: str, message: str
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(change)
    done = paper("table-1", "-o", tmp_path / "out", "--data", table_data, "--recipe", recipe)
    assert done.status == 2
    assert message in done.errors
    assert not (tmp_path / "out").exists()


def test_damaged_scores_are_named(paper: Command, command: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out).status == 0
    path = out / "cells" / "miniboone" / "cubic" / "seed-0" / "test_scores.npz"
    whole = path.read_bytes()
    for content in (b"broken", whole[:200]):
        path.write_bytes(content)
        done = paper(*command, "-o", out)
        assert done.status == 2
        assert f"{path} is damaged; remove {path.parent}, and the same command runs that cell again" in done.errors
        assert "pickle" not in done.errors  # NumPy's message suggests pickle
    path.write_bytes(whole)
    record = path.with_name("record.json")
    record.write_bytes(record.read_bytes()[:100])
    assert f"{record} is damaged; remove {path.parent}" in paper(*command, "-o", out).errors
    others = sorted(other for other in out.glob("cells/*/*/*/record.json") if other != record)
    before = [other.stat().st_mtime_ns for other in others]
    shutil.rmtree(path.parent)
    assert paper(*command, "-o", out).status == 0
    assert path.read_bytes() == whole  # only the damaged cell is run again
    assert [other.stat().st_mtime_ns for other in others] == before
    assert paper(*command, "-o", out, "--overwrite").status == 0


def test_missing_data_is_named_with_its_origin(paper: Command, table_data: Path, tmp_path: Path) -> None:
    done = paper("table-1", "-o", tmp_path / "out", "--data", table_data, "--dataset", "hepmass")
    assert done.status == 2
    assert "HEPMASS was not found" in done.errors
    assert "https://archive.ics.uci.edu/dataset/347" in done.errors
    # Without --dataset, missing and incomplete tables are left out, and the lines name their files.
    done = paper("table-1", "-o", tmp_path / "out", "--data", table_data)
    assert done.status == 2
    assert f"nothing was run: no dataset is complete in {table_data}" in done.errors
    assert "download" in done.errors
    assert "POWER is left out: the data is not here; it is power/data.npy, from data.tar.gz of https" in done.output
    assert "or power/household_power_consumption.txt, from https://archive.ics.uci.edu/dataset/235" in done.output
    assert "HEPMASS is left out: the data is not here; it is hepmass/1000_train.csv and" in done.output
    assert "MINIBOONE is left out: only part of its test rows is here" in done.output
    assert not (tmp_path / "out").exists(), "nothing was run, so nothing is left"
    (tmp_path / "out").mkdir()
    done = paper("table-1", "-o", tmp_path / "out", "--data", tmp_path / "nowhere")
    assert f"there is no folder {tmp_path / 'nowhere'}" in done.errors
    of_one = ("--model", "cubic-autoregressive-few-bins")  # a model of one dataset
    done = paper("table-1", "-o", tmp_path / "out", "--data", table_data, *of_one)
    assert "nothing was run" in done.errors
    assert paper("table-1", "-o", tmp_path / "out", "--seconds", 0).status == 75
    assert list((tmp_path / "out").iterdir()) == [], "nothing was run, so nothing is left"


def test_overwrite_keeps_records_that_cannot_be_run_again(
    paper: Command, command: tuple[object, ...], tiny_table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out, "--seed", 0).status == 0
    before = {path: path.read_bytes() for path in out.glob("cells/*/*/*/*") if path.is_file()}
    assert before
    again = ("table-1", "-o", out, "--recipe", tiny_table, "--seed", 0, "--overwrite", "--device", "cpu")
    (tmp_path / "none").mkdir()
    for data in (tmp_path / "none", tmp_path / "data"):  # no data, and only part of the test rows
        assert paper(*again, "--data", data).status == 2
        assert {path: path.read_bytes() for path in before} == before
    done = paper(*again, "--data", tmp_path / "none", "--dataset", "miniboone")
    assert "MINIBOONE was not found" in done.errors
    assert {path: path.read_bytes() for path in before} == before


def test_all_requested_data_is_looked_for_before_anything_is_trained(
    paper: Command, command: tuple[object, ...], tmp_path: Path
) -> None:
    done = paper(*command, "-o", tmp_path / "out", "--dataset", "hepmass", "--dataset", "power")
    assert done.status == 2
    for said in ("HEPMASS was not found", "POWER was not found", "power/household_power_consumption.txt"):
        assert said in done.errors
    assert "MINIBOONE was not found" not in done.errors
    assert not (tmp_path / "out").exists()


def test_the_table_of_records_names_the_data_that_is_missing(
    paper: Command, command: tuple[object, ...], tiny_table: Path, tmp_path: Path
) -> None:
    assert paper(*command, "-o", tmp_path / "out", "--seed", 0).status == 0
    record = json.loads((tmp_path / "out" / "table-1.json").read_text())
    text = json.dumps([about["left_out"] for about in record["results"]["datasets"].values()])
    assert "power/data.npy, from" in text
    assert str(tmp_path) not in text
    assert "- POWER: not rerun, the data is not here.\n" in (tmp_path / "out" / "table-1.md").read_text()
    # The table of a folder with records is also rebuilt where there is no data.
    (tmp_path / "out" / "table-1.csv").unlink()
    rebuild = ("table-1", "--recipe", tiny_table, "-o", tmp_path / "out", "--data", tmp_path)
    assert paper(*rebuild, "--seconds", 0).status == 75
    assert (tmp_path / "out" / "table-1.csv").read_text().count("miniboone") == 2


def test_records_of_another_recipe_are_refused(
    paper: Command, command: tuple[object, ...], tmp_path: Path, tiny_table: Path
) -> None:
    out = tmp_path / "out"
    assert paper(*command, "-o", out, "--model", "cubic", "--seed", 0).status == 0
    tiny_table.write_text(tiny_table.read_text().replace("dropout = 0.1", "dropout = 0.3"))
    done = paper(*command, "-o", out)
    assert done.status == 2
    assert "was recorded with other settings than this recipe's" in done.errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure-9",), "unknown experiment 'figure-9'; choose one of figure-1, figure-2"),
        (("figure-1", "--dataset", "gas"), "--dataset belongs to table-1 and peers, not to figure-1"),
        (("table-1", "--model", "cubik"), "the recipe of table-1 has no model 'cubik'; it has gaussian, cubic"),
        (
            ("table-1", "--dataset", "miniboone", "--model", "cubic-mirrored"),
            "the recipe of table-1 restricts 'cubic-mirrored' to bsds300; choose one of these, not miniboone",
        ),
        (("figure-1", "--recipe", "nowhere.toml"), "there is no recipe at nowhere.toml"),
        (("figure-1", "--seconds", "-1"), "seconds must be a number, 0 or more, got -1.0"),
    ],
)
def test_wrong_commands_give_a_one_line_error(
    paper: Command, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = paper(*arguments, "-o", tmp_path / "out")
    assert done.status == 2
    assert message in done.errors
    assert "Traceback" not in done.errors


@pytest.mark.parametrize(("only", "kind"), [('["bsds300"]', "squares"), ('["bsds300", "gas"]', "square")])
def test_unknown_symmetries_and_other_datasets_are_refused(
    paper: Command, tmp_path: Path, only: str, kind: str
) -> None:
    (tmp_path / "wrong.toml").write_text(f'[models.mine]\ntitle = "mine"\nonly = {only}\nsymmetries = "{kind}"\n')
    done = paper("table-1", "-o", tmp_path / "out", "--recipe", tmp_path / "wrong.toml")
    assert done.status == 2
    assert f"symmetries = '{kind}' for 'mine'; use mirror or square, and only in models with only" in done.errors


def test_a_recipe_with_an_unknown_setting_is_refused(paper: Command, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("num_bin = 3\n")
    done = paper("figure-1", "-o", tmp_path / "out", "--recipe", tmp_path / "wrong.toml")
    assert done.status == 2
    assert "has no setting 'num_bin'; did you mean 'num_bins'?" in done.errors
