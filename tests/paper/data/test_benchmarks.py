"""The five tables: each recipe is compared with a second implementation in this file, on every public format.

The second implementations follow the code that introduced the benchmarks, step by step, with its pandas and in-place
numpy operations. The last tests use the real files, if they are present.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper.data.benchmark_table import Benchmark, Size
from paper.data.folders import MissingDataError

from paper.data import PUBLISHED, gas, hepmass, load_benchmark, miniboone, power

from .made_up_benchmarks import miniboone_rows, miniboone_text, power_text, publish_power, put, put_miniboone_splits

pytestmark = pytest.mark.usefixtures("cache")

# The reference and the loader run the same float64 operations in nearly the same order, then round to float32.
FLOAT32 = {"rtol": 3e-7, "atol": 3e-7}


def reference_split(data: np.ndarray) -> list[np.ndarray]:
    n_test = int(0.1 * data.shape[0])
    test, data = data[-n_test:], data[0:-n_test]
    n_validate = int(0.1 * data.shape[0])
    return [data[0:-n_validate], data[-n_validate:], test]


def reference_normalised(splits: list[np.ndarray]) -> list[np.ndarray]:
    fitted = np.vstack(splits[:2])
    return [(rows - fitted.mean(axis=0)) / fitted.std(axis=0) for rows in splits]


def assert_is(benchmark: Benchmark, expected: list[np.ndarray]) -> None:
    for rows, reference in zip((benchmark.train, benchmark.validation, benchmark.test), expected, strict=True):
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        np.testing.assert_allclose(rows, reference, **FLOAT32)


# POWER


def reference_power_array(path: Path) -> np.ndarray:
    frame = pd.read_csv(path, sep=";", na_values="?", dtype=str).dropna()
    time = frame["Time"].str.split(":", expand=True).astype(int)
    frame["minute"] = 60 * time[0] + time[1]
    return frame.drop(columns=["Date", "Time"]).astype(float).to_numpy()


def reference_power(data: np.ndarray) -> list[np.ndarray]:
    rng = np.random.RandomState(42)
    data = data.copy()
    rng.shuffle(data)
    n = data.shape[0]
    data = np.delete(data, 3, axis=1)
    data = np.delete(data, 1, axis=1)
    voltage_noise = 0.01 * rng.rand(n, 1)
    gap_noise = 0.001 * rng.rand(n, 1)
    sm_noise = rng.rand(n, 3)
    time_noise = np.zeros((n, 1))
    data = data + np.hstack((gap_noise, voltage_noise, sm_noise, time_noise))
    return reference_normalised(reference_split(data))


def test_power_from_text_and_from_the_published_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "power/household_power_consumption.txt", power_text(1500))
    array = reference_power_array(path)
    np.testing.assert_array_equal(publish_power(monkeypatch, path), array)
    expected = reference_power(array)
    assert_is(load_benchmark("POWER", tmp_path), expected)

    np.save(tmp_path / "power/data.npy", array)
    assert_is(load_benchmark("power", tmp_path), expected)
    assert_is(load_benchmark("power", tmp_path, form="raw"), expected)


def test_the_fingerprint_is_that_of_the_digits(tmp_path: Path) -> None:
    path = put(tmp_path / "power.txt", power_text(200))
    digest = hashlib.sha256()
    for line in path.read_text().splitlines()[1:]:
        _, time, *readings = line.split(";")
        if "?" not in readings:
            hour, minute, _ = map(int, time.split(":"))
            thousandths = [int(reading.replace(".", "")) for reading in readings]  # every reading has three decimals
            digest.update(struct.pack("<8i", *thousandths, 1000 * (60 * hour + minute)))
    assert power.fingerprint(power.read_text(path)) == digest.hexdigest()


ALTERED = {
    "a row short": lambda lines: lines[:-1],
    "a row short within": lambda lines: lines[:50] + lines[51:],
    "a row twice": lambda lines: [*lines[:50], lines[50], *lines[50:]],
    "another order": lambda lines: [*lines[:50], lines[51], lines[50], *lines[52:]],
    "a reading missing": lambda lines: [*lines[:50], lines[50].rsplit(";", 1)[0] + ";?", *lines[51:]],
    "a reading made up": lambda lines: [line.replace("?;?;?;?;?;?;", "1;1;1;1;1;1;1.000") for line in lines],
    "one digit": lambda lines: [*lines[:50], lines[50][:-1] + "1", *lines[51:]],
    "a huge reading": lambda lines: [*lines[:50], lines[50] + "e300", *lines[51:]],
}


@pytest.mark.parametrize("alteration", ALTERED)
@pytest.mark.parametrize("packer", [None, lzma])
def test_an_altered_power_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alteration: str, packer
) -> None:
    text = power_text(300)
    name = "power/household_power_consumption.txt"
    rows = len(publish_power(monkeypatch, put(tmp_path / name, text)))
    lines = text.splitlines()
    changed = "\n".join(ALTERED[alteration](lines)) + "\n"
    assert changed != text
    path = put(tmp_path / name, changed)
    if packer:
        path.unlink()
        path = put(tmp_path / f"{name}.xz", lzma.compress(changed.encode()))
    with pytest.raises(ValueError, match=f"expected {rows:,}") as caught:
        load_benchmark("power", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path} has ")
    assert message.endswith("; download it again")
    assert ("SHA-256" in message) == (alteration in ("another order", "one digit", "a huge reading"))


def test_an_array_of_power_with_a_row_less_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = publish_power(monkeypatch, put(tmp_path / "power.txt", power_text(300)))
    put(tmp_path / "power/data.npy", b"")
    np.save(tmp_path / "power/data.npy", array[1:])
    with pytest.raises(
        ValueError, match=f"has {len(array) - 1} complete rows, expected {len(array)}: it was cut short"
    ):
        load_benchmark("power", tmp_path)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_a_packed_power_file_that_was_cut_is_refused(tmp_path: Path, share: float) -> None:
    packed = lzma.compress(power_text(3000).encode())
    path = put(tmp_path / "power/household_power_consumption.txt.xz", packed[: int(share * len(packed))])
    with pytest.raises(ValueError, match=f"^{path} is damaged: .* Download it again"):
        load_benchmark("power", tmp_path)


def test_a_blank_line_at_the_end_is_no_row(tmp_path: Path) -> None:
    path = put(tmp_path / "power/household_power_consumption.txt", power_text(100))
    rows = power.read_text(path)
    put(path, power_text(100).rstrip("\n") + "\n\n")
    np.testing.assert_array_equal(power.read_text(path), rows)


@pytest.mark.parametrize(("ending", "packer"), [(".txt.gz", gzip), (".txt.xz", lzma), (".head.txt.xz", lzma)])
def test_power_from_packed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, packer) -> None:
    text = power_text(300)
    packed = put(tmp_path / f"power/household_power_consumption{ending}", packer.compress(text.encode()))
    plain = put(tmp_path / "plain.txt", text)
    np.testing.assert_array_equal(power.read_text(packed), power.read_text(plain))
    if ".head" not in ending:
        publish_power(monkeypatch, plain)
    loaded = load_benchmark("power", tmp_path)
    assert loaded.provenance == "partial"
    assert "of 1,659,917 / 184,435 / 204,928 published rows" in loaded.note


# GAS


def gas_frame(n: int) -> pd.DataFrame:
    """Return 16 sensors. Several are nearly copies of others; the last is a negated copy."""
    random = np.random.default_rng(1)
    base = random.standard_normal((n, 9)) * 100 + 3000
    copies = [0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 6, 7, 8, 1, 0]
    sensors = base[:, copies] + random.standard_normal((n, 15))
    sensors = np.column_stack([sensors, 6000 - base[:, 3]])
    frame = pd.DataFrame(np.round(sensors, 2), columns=[f"R{i}" for i in range(1, 17)])
    frame.insert(0, "Eth", 0.0)
    frame.insert(0, "Meth", np.arange(n) % 7)
    frame.insert(0, "Time", np.arange(n) / 100)
    return frame


def reference_gas(frame: pd.DataFrame) -> list[np.ndarray]:
    data = frame.drop(columns=["Meth", "Eth", "Time"])

    def numbers() -> np.ndarray:
        return (data.corr() > 0.98).to_numpy().sum(axis=1)

    b = numbers()
    while np.any(b > 1):
        data = data.drop(columns=data.columns[np.where(b > 1)[0][0]])
        b = numbers()
    data = (data - data.mean()) / data.std()
    return reference_split(data.to_numpy())


def gas_text(frame: pd.DataFrame) -> str:
    rows = "\n".join("  ".join(f"{value:.2f}" for value in row) for row in frame.to_numpy())
    return f"Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)\n{rows}\n"


def test_gas_from_published_rows(tmp_path: Path) -> None:
    frame = gas_frame(400)
    expected = reference_gas(frame)
    assert 8 <= expected[0].shape[1] < 16, "the test data must have columns to drop"
    put(tmp_path / "gas/data.npy", b"")
    np.save(tmp_path / "gas/data.npy", frame.drop(columns=["Meth", "Eth", "Time"]).to_numpy())
    assert_is(load_benchmark("gas", tmp_path), expected)


def test_gas_text_is_read_whole_and_redrawn_by_a_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = gas_frame(801)
    path = put(tmp_path / "gas/ethylene_CO.txt", gas_text(frame))
    rows = gas.read_text(path)
    np.testing.assert_array_equal(rows, frame.iloc[:, 3:].to_numpy())

    drawn = gas.draw(rows, seed=5)
    assert len(drawn) == round(801 / 4)
    assert len(np.unique(drawn, axis=0)) == len(drawn), "without replacement"
    assert set(map(tuple, drawn)) <= set(map(tuple, rows))
    assert not np.array_equal(drawn, np.sort(drawn, axis=0)), "in random order"
    np.testing.assert_array_equal(drawn, gas.draw(rows, seed=5))
    assert not np.array_equal(drawn, gas.draw(rows, seed=6))

    table = pd.DataFrame(gas.draw(rows, seed=0), columns=frame.columns[3:]).assign(Meth=0, Eth=0, Time=0)
    expected = reference_gas(table)
    loaded = load_benchmark("gas", tmp_path)
    assert_is(loaded, expected)
    assert loaded.provenance == "partial"
    monkeypatch.setitem(PUBLISHED, "gas", Size(*map(len, expected), expected[0].shape[1]))
    loaded = load_benchmark("gas", tmp_path)
    assert loaded.provenance == "redrawn"
    assert "seed 0" in loaded.note


def test_gas_pickle_is_refused_unless_requested(tmp_path: Path) -> None:
    frame = gas_frame(400)
    (tmp_path / "gas").mkdir()
    frame.to_pickle(tmp_path / "gas/ethylene_CO.pickle")
    with pytest.raises(MissingDataError, match=r"The file exists, but a pickle can run any code") as caught:
        load_benchmark("gas", tmp_path)
    assert 'form="pickle"' in str(caught.value)
    assert "numpy.save('gas/data.npy'" in str(caught.value)
    assert_is(load_benchmark("gas", tmp_path, form="pickle"), reference_gas(frame))


def test_gas_pickle_is_never_opened_unless_requested(tmp_path: Path) -> None:
    """The pickle creates a folder when it is opened."""
    mark = tmp_path / "opened"
    # A pickle of protocol 0 that calls os.mkdir with the mark's path.
    put(tmp_path / "gas/ethylene_CO.pickle", f"cos\nmkdir\n(V{mark}\ntR.")
    with pytest.raises(MissingDataError):
        load_benchmark("gas", tmp_path)
    assert not mark.exists()
    with pytest.raises(ValueError, match="pandas"):  # the test is not vacuous: this call opens the pickle
        load_benchmark("gas", tmp_path, form="pickle")
    assert mark.exists()


# HEPMASS


def hepmass_frame(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.standard_normal((n, 27)) * 2 + 1, columns=[f"f{i}" for i in range(27)])
    for column in (3, 9, 17):
        frame[f"f{column}"] = random.integers(4, size=n).astype(float)  # discrete columns must be dropped
    frame["f20"] = np.where(np.arange(n) < 5, -9.0, frame["f20"])  # five equal values: the column must stay
    frame.insert(0, "# label", (random.random(n) < 0.5).astype(float))
    return frame


def hepmass_csv(frame: pd.DataFrame, *, extra: str | None) -> str:
    lines = frame.to_csv(index=False, float_format="%.18e").splitlines()
    if extra in ("header", "both"):
        lines[0] += ",mass"
    if extra in ("values", "both"):
        lines[1:] = [f"{line},1000.0" for line in lines[1:]]
    return "\n".join(lines) + "\n"


def reference_hepmass(train: pd.DataFrame, test: pd.DataFrame) -> list[np.ndarray]:
    train = train[train[train.columns[0]] == 1]
    train = train.drop(train.columns[0], axis=1)
    test = test[test[test.columns[0]] == 1]
    test = test.drop(test.columns[0], axis=1)
    mu, s = train.mean(), train.std()
    train_rows, test_rows = ((train - mu) / s).to_numpy(), ((test - mu) / s).to_numpy()
    kept = []
    for i, feature in enumerate(train_rows.T):
        counts = Counter(feature)
        if next(v for k, v in sorted(counts.items())) <= 5:
            kept.append(i)
    train_rows, test_rows = train_rows[:, kept], test_rows[:, kept]
    n_validate = int(train_rows.shape[0] * 0.1)
    return [train_rows[0:-n_validate], train_rows[-n_validate:], test_rows]


@pytest.mark.parametrize("extra", ["header", "values", "both"])
def test_hepmass(tmp_path: Path, extra: str) -> None:
    train, test = hepmass_frame(600, 0), hepmass_frame(300, 1)
    put(tmp_path / "hepmass/1000_train.csv", hepmass_csv(train, extra=None))
    put(tmp_path / "hepmass/1000_test.csv.gz", gzip.compress(hepmass_csv(test, extra=extra).encode()))
    expected = reference_hepmass(train, test)
    assert expected[0].shape[1] == 24, "three discrete columns are dropped"
    assert_is(load_benchmark("hepmass", tmp_path), expected)


def test_hepmass_takes_the_first_tenth_of_the_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = hepmass_frame(600, 0), hepmass_frame(300, 1)
    paths = [
        put(tmp_path / f"hepmass/1000_{name}.csv", hepmass_csv(frame, extra=None))
        for name, frame in (("train", train), ("test", test))
    ]
    assert (hepmass.TRAIN_ROWS, hepmass.TEST_ROWS) == (700_000, 350_000)
    monkeypatch.setattr(hepmass, "TRAIN_ROWS", 60)
    monkeypatch.setattr(hepmass, "TEST_ROWS", 30)
    signal, test_signal = hepmass.read_signal(*paths)
    np.testing.assert_array_equal(signal, train[:60][train["# label"][:60] == 1].to_numpy()[:, 1:])
    np.testing.assert_array_equal(test_signal, test[:30][test["# label"][:30] == 1].to_numpy()[:, 1:])


def test_hepmass_files_that_do_not_match(tmp_path: Path) -> None:
    frame = hepmass_frame(50, 0)
    put(tmp_path / "hepmass/1000_train.csv", hepmass_csv(frame, extra=None))
    test = put(tmp_path / "hepmass/1000_test.csv", hepmass_csv(frame.iloc[:, ::-1], extra=None))
    with pytest.raises(ValueError, match="first column is 'f26', expected '# label'"):
        load_benchmark("hepmass", tmp_path)
    put(test, hepmass_csv(frame.rename(columns={"f5": "g5"}), extra=None))
    with pytest.raises(ValueError, match="expected the columns of"):
        load_benchmark("hepmass", tmp_path)
    put(test, hepmass_csv(frame.assign(**{"# label": 0.0}), extra=None))
    with pytest.raises(ValueError, match="0 test rows have label 1"):
        load_benchmark("hepmass", tmp_path)


# MINIBOONE


def reference_miniboone_array(rows: np.ndarray, signal: int) -> np.ndarray:
    data = rows[:signal]
    data = data[~(data[:, 0] < -100)]
    kept = [i for i, feature in enumerate(data.T) if sorted(Counter(feature).items())[0][1] <= 5]
    return data[:, kept]


def test_miniboone_from_text_and_from_the_published_array(tmp_path: Path) -> None:
    rows = miniboone_rows(300, 100)
    path = put(tmp_path / "miniboone/MiniBooNE_PID.txt", miniboone_text(rows, 300))
    array = reference_miniboone_array(rows, 300)
    assert array.shape == (298, 47)
    np.testing.assert_array_equal(miniboone.read_text(path), array)
    expected = reference_normalised(reference_split(array))
    assert_is(load_benchmark("miniboone", tmp_path), expected)
    np.save(tmp_path / "miniboone/data.npy", array)
    path.unlink()
    assert_is(load_benchmark("miniboone", tmp_path), expected)


def test_miniboone_splits_with_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.where(np.arange(40) % 4, 1.0, 19.42).astype(np.float32)
    splits = put_miniboone_splits(tmp_path / "miniboone", weights)
    monkeypatch.setitem(PUBLISHED, "miniboone", Size(80, 10, 10, 43))
    loaded = load_benchmark("miniboone", tmp_path)
    assert_is(loaded, splits)
    np.testing.assert_array_equal(loaded.weights, weights)
    assert loaded.provenance == "partial"
    assert loaded.note.startswith("Partial train: 40 / 10 / 10 of 80 / 10 / 10")
    assert loaded.note.endswith("training rows carry weights.")
    (tmp_path / "miniboone/train_weights.npy").unlink()
    assert load_benchmark("miniboone", tmp_path, form="splits").weights is None


@pytest.mark.parametrize("weights", [np.ones(39, np.float32), np.zeros(40, np.float32), np.full(40, np.nan)])
def test_miniboone_weights_are_checked(tmp_path: Path, weights: np.ndarray) -> None:
    put_miniboone_splits(tmp_path / "miniboone", weights)
    with pytest.raises(ValueError, match="one positive weight for each of the 40 training rows"):
        load_benchmark("miniboone", tmp_path)


# Real files


def need(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path} is not there")


def test_real_power(real_data: Path) -> None:
    path = real_data / "power/household_power_consumption.txt.xz"
    need(path)
    loaded = load_benchmark("power", real_data)
    assert loaded.provenance == "whole"
    shapes = [rows.shape for rows in (loaded.train, loaded.validation, loaded.test)]
    assert shapes == [(1_659_917, 6), (184_435, 6), (204_928, 6)]
    fitted = np.concatenate([loaded.train, loaded.validation])
    np.testing.assert_allclose(fitted.mean(axis=0, dtype=float), 0, atol=1e-6)
    np.testing.assert_allclose(fitted.std(axis=0, dtype=float), 1, atol=1e-6)


@pytest.mark.soak  # unpacks and packs two million rows; the test above reads them unchanged
def test_real_power_with_one_digit_changed(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "power/household_power_consumption.txt.xz"
    need(path)
    text = bytearray(lzma.decompress(path.read_bytes()))
    place = len(text) // 2
    while not chr(text[place]).isdigit() or text[place - 1 : place] != b".":
        place += 1
    text[place] = ord("1") if text[place] != ord("1") else ord("2")
    altered = put(tmp_path / "power/household_power_consumption.txt", bytes(text))
    with pytest.raises(ValueError, match=f"{altered} has the expected 2,049,280 rows, but some values"):
        load_benchmark("power", tmp_path)


def test_the_first_part_of_real_power_agrees_with_pandas(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "power/household_power_consumption.head.txt.xz"
    need(path)
    array = reference_power_array(path)
    np.testing.assert_array_equal(power.read_text(path), array)
    (tmp_path / "power").mkdir()
    (tmp_path / "power" / path.name).symlink_to(path)  # beside the whole file, the loader would not read the part
    loaded = load_benchmark("power", tmp_path, form="raw")
    assert loaded.provenance == "partial"
    assert (loaded.train.shape, loaded.validation.shape, loaded.test.shape) == ((39_221, 6), (4_357, 6), (4_841, 6))
    assert_is(loaded, reference_power(array))


def test_real_miniboone(real_data: Path) -> None:
    need(real_data / "miniboone")
    loaded = load_benchmark("miniboone", real_data)
    assert (loaded.validation.shape, loaded.test.shape) == ((3_284, 43), (3_648, 43))
    if loaded.weights is not None:
        assert loaded.provenance == "partial"
        assert loaded.note.startswith("Partial train: 15,940 / 3,284 / 3,648 of 29,556")
        assert loaded.weights.sum(dtype=float) == pytest.approx(29_556, abs=0.01)
