"""Missing, partial, damaged and wrong benchmark files, and the labels of loaded tables."""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paper.data.benchmark_table import Size, split_last_tenths
from paper.data.folders import MissingDataError, data_folder

from paper.data import BENCHMARKS, PUBLISHED, load_benchmark

from .made_up_benchmarks import miniboone_rows, miniboone_text, power_text, publish_power, put, put_miniboone_splits

pytestmark = pytest.mark.usefixtures("cache")


def test_a_loaded_table_has_its_provenance_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_power(monkeypatch, put(tmp_path / "power/household_power_consumption.txt", power_text(800)))
    found = load_benchmark("power", tmp_path)
    size = Size(len(found.train), len(found.validation), len(found.test), 6)
    assert found.features == 6
    monkeypatch.setitem(PUBLISHED, "power", size)
    whole = load_benchmark("power", tmp_path)
    assert (whole.provenance, whole.name, whole.weights) == ("whole", "power", None)
    assert whole.note.startswith("All ")
    monkeypatch.setitem(PUBLISHED, "power", size._replace(train=size.train - 1))
    with pytest.raises(ValueError, match="more than the published"):
        load_benchmark("power", tmp_path)
    monkeypatch.setitem(PUBLISHED, "power", size._replace(features=7))
    with pytest.raises(ValueError, match="6 columns remain, expected 7"):
        load_benchmark("power", tmp_path)


def test_published_sizes_follow_from_the_numbers_of_rows() -> None:
    for name, rows in (("power", 2_049_280), ("gas", round(0.25 * 4_208_261)), ("miniboone", 36_488)):
        splits = split_last_tenths(np.empty((rows, 1)), name)
        assert tuple(map(len, splits)) == PUBLISHED[name][:3]
    assert int(0.1 * 350_136) == PUBLISHED["hepmass"].validation


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_missing_data_names_files_origin_and_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingDataError) as caught:
        load_benchmark(name, tmp_path)
    message = str(caught.value)
    for form in BENCHMARKS[name]:
        for names in form.files:
            assert str(tmp_path / names[0]) in message
    for part in ("https://", "zenodo", f'download("{name}", folder)', "CUBICFLOW_DATA"):
        assert part in message


def test_the_missing_file_of_a_pair_is_named(tmp_path: Path) -> None:
    put(tmp_path / "hepmass/1000_train.csv", "")
    with pytest.raises(MissingDataError, match=r"Still missing: \S*1000_test.csv"):
        load_benchmark("hepmass", tmp_path)


def test_only_the_requested_form_is_read(tmp_path: Path) -> None:
    put(tmp_path / "power/household_power_consumption.txt", power_text(300))
    with pytest.raises(MissingDataError, match=r"data\.npy") as caught:
        load_benchmark("power", tmp_path, form="published")
    assert "household" not in str(caught.value)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="there are power, gas, hepmass, miniboone, bsds300"):
        load_benchmark("mnist")
    with pytest.raises(ValueError, match="its forms are 'published', 'raw', 'splits'"):
        load_benchmark("miniboone", form="csv")


def test_the_data_folder_is_found(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == cache / "data"
    monkeypatch.setenv("CUBICFLOW_DATA", str(tmp_path / "named"))
    assert data_folder() == tmp_path / "named"
    assert data_folder(tmp_path) == tmp_path


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = power_text(100)
    path = tmp_path / "power/household_power_consumption.txt"
    cases = [
        ("<html>", "not household_power_consumption.txt"),
        (text.splitlines()[0] + "\n", "has no rows of numbers"),
        (text.replace("2007;00:21:00;", "2007;00:21:00;x", 1), "is damaged"),
        ("\n".join(text.splitlines()[:8]), "expected 2,049,280: it was cut short"),
        (text[:-30], "is damaged"),  # the last line lacks readings
        (text + "1/1/2", "is damaged"),
    ]
    for content, message in cases:
        put(path, content)
        with pytest.raises(ValueError, match=message):
            load_benchmark("power", tmp_path)
    path.unlink()
    packed = lzma.compress(text.encode())
    put(path.with_name(path.name + ".xz"), packed[: len(packed) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        load_benchmark("power", tmp_path)
    path.with_name(path.name + ".xz").unlink()
    for ending in (".xz", ".gz"):
        packed_path = put(path.with_name(path.name + ending), "<html>not found</html>")
        with pytest.raises(ValueError, match=f"{packed_path} is damaged"):
            load_benchmark("power", tmp_path)
        packed_path.unlink()

    data = put(tmp_path / "power/data.npy", b"\x93NUMPY nonsense")
    with pytest.raises(ValueError, match=r"not a complete \.npy file"):
        load_benchmark("power", tmp_path)
    with data.open("wb") as file:
        np.savez(file, rows=np.ones((50, 8)))
    with pytest.raises(ValueError, match=r"is an \.npz archive, expected a \.npy file"):
        load_benchmark("power", tmp_path)
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"not a complete \.npy file"):
        load_benchmark("power", tmp_path)
    np.save(data, np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"not a complete \.npy file of numbers"):
        load_benchmark("power", tmp_path)
    np.save(data, np.ones(5))
    with pytest.raises(ValueError, match=r"shape \(5,\), expected numbers in 2 dimension"):
        load_benchmark("power", tmp_path)
    np.save(data, np.ones((50, 7)))
    monkeypatch.setattr("paper.data.power.COMPLETE_ROWS", 50)
    with pytest.raises(ValueError, match="7 columns, expected 8"):
        load_benchmark("power", tmp_path)

    put(tmp_path / "miniboone/MiniBooNE_PID.txt", "1 2 3\n")
    with pytest.raises(ValueError, match="expected two row counts"):
        load_benchmark("miniboone", tmp_path)
    put(tmp_path / "miniboone/MiniBooNE_PID.txt", miniboone_text(miniboone_rows(30, 0), 30).replace("30 0", "31 0", 1))
    with pytest.raises(ValueError, match="is incomplete"):
        load_benchmark("miniboone", tmp_path)
    shutil.rmtree(tmp_path / "miniboone")
    splits = put_miniboone_splits(tmp_path / "miniboone", None)
    splits[1][3, 4] = np.nan
    np.save(tmp_path / "miniboone/val.npy", splits[1])
    with pytest.raises(ValueError, match="validation has NaN"):
        load_benchmark("miniboone", tmp_path)
    np.save(tmp_path / "miniboone/val.npy", splits[1][:0])
    with pytest.raises(ValueError, match="validation has no rows"):
        load_benchmark("miniboone", tmp_path)
    put(tmp_path / "gas/ethylene_CO.txt", "nothing of the kind\n")
    with pytest.raises(ValueError, match=r"not ethylene_CO.txt"):
        load_benchmark("gas", tmp_path)


def test_importing_the_loaders_imports_numpy_alone() -> None:
    code = (
        "import sys, paper.data, paper.data.images; "
        "print([m for m in ('h5py', 'matplotlib', 'pandas', 'PIL', 'pyarrow', 'scipy') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
