"""Fashion-MNIST: the idx format on synthetic files, downloads from a local server, and the real files."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from paper.data.folders import MissingDataError

from cubicflow.downloads import DownloadError
from paper.data import images


def idx(array: np.ndarray) -> bytes:
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def tiny() -> dict[str, bytes]:
    """Return the four files, uncompressed, with 30 and 10 images of 3 x 5 pixels."""
    random = np.random.default_rng(0)
    files = {}
    for stem in images.SHA256:
        n = 30 if stem.startswith("train") else 10
        files[stem] = idx(random.integers(256, size=(n, 3, 5) if "images" in stem else (n,), dtype=np.uint8))
    return files


@pytest.fixture
def folder(tmp_path: Path, tiny: dict[str, bytes]) -> Path:
    (tmp_path / "fashion-mnist").mkdir()
    for stem, content in tiny.items():
        (tmp_path / "fashion-mnist" / f"{stem}.gz").write_bytes(gzip.compress(content))
    return tmp_path


def test_splits(folder: Path, tiny: dict[str, bytes]) -> None:
    loaded = images.load_fashion_mnist(folder, validation=4, verify=False)
    everything = np.frombuffer(tiny["train-images-idx3-ubyte"][16:], np.uint8).reshape(30, 3, 5)
    np.testing.assert_array_equal(loaded.train, everything[:26])
    np.testing.assert_array_equal(loaded.validation, everything[26:])
    assert loaded.test.shape == (10, 3, 5)
    labels = np.frombuffer(tiny["train-labels-idx1-ubyte"][8:], np.uint8)
    np.testing.assert_array_equal(np.concatenate([loaded.train_labels, loaded.validation_labels]), labels)
    assert {a.dtype for a in vars(loaded).values()} == {np.dtype(np.uint8)}
    assert loaded.train.flags.writeable
    assert len(images.load_fashion_mnist(folder, validation=0, verify=False).validation) == 0


def test_uncompressed_files_are_read_too(folder: Path) -> None:
    packed = images.load_fashion_mnist(folder, validation=4, verify=False)
    for path in (folder / "fashion-mnist").glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    np.testing.assert_array_equal(images.load_fashion_mnist(folder, validation=4, verify=False).train, packed.train)


def test_folder_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBICFLOW_DATA", str(folder))
    assert len(images.load_fashion_mnist(validation=4, verify=False).train) == 26


def test_other_content_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"expected c59f468a2f672dc8.*verify=False"):
        images.load_fashion_mnist(folder)


def test_missing_files_are_named(folder: Path) -> None:
    gone = folder / "fashion-mnist" / "t10k-images-idx3-ubyte.gz"
    gone.unlink()
    with pytest.raises(MissingDataError, match="download_fashion_mnist") as caught:
        images.load_fashion_mnist(folder)
    for part in (str(gone), "zalandoresearch", "CUBICFLOW_DATA"):
        assert part in str(caught.value)
    assert "train-images" not in str(caught.value)


@pytest.mark.parametrize("validation", [-1, 30])
def test_validation_size(folder: Path, validation: int) -> None:
    with pytest.raises(ValueError, match="below 30"):
        images.load_fashion_mnist(folder, validation=validation, verify=False)


def test_damaged_idx_files_are_refused(tmp_path: Path) -> None:
    good = idx(np.zeros((4, 2), np.uint8))
    cases = {
        "floats": (good[:2] + b"\x0d" + good[3:], "not an idx file of unsigned bytes"),
        "short": (good[:-1], r"7 values, but its header says \(4, 2\)"),
        "header": (good[:6], "its header says"),
        "empty": (b"", "not an idx file"),
        "broken.gz": (gzip.compress(good)[:-10], "not a complete gzip file"),
        "plain.gz": (good, "not a complete gzip file"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            images.read_idx(tmp_path / name)


def test_files_of_different_lengths_are_refused(folder: Path) -> None:
    files = folder / "fashion-mnist"
    (files / "t10k-labels-idx1-ubyte.gz").write_bytes((files / "train-labels-idx1-ubyte.gz").read_bytes())
    with pytest.raises(ValueError, match="files do not match"):
        images.load_fashion_mnist(folder, verify=False)


@pytest.fixture
def served(site, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch):
    site.pages = {f"/{stem}.gz": gzip.compress(content) for stem, content in tiny.items()}
    monkeypatch.setattr(images, "URL", site.url)
    monkeypatch.setattr(images, "SHA256", {stem: hashlib.sha256(content).hexdigest() for stem, content in tiny.items()})
    return site


def test_download(served, tmp_path: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    paths = images.download_fashion_mnist(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert [path.name for path in paths] == [f"{stem}.gz" for stem in images.SHA256]
    assert [call[0] for call in calls] == [call[1] for call in calls] == [len(p.read_bytes()) for p in paths]
    assert images.load_fashion_mnist(tmp_path, validation=4).train.shape == (26, 3, 5)
    asked = len(served.asked)
    images.download_fashion_mnist(tmp_path)
    assert len(served.asked) == asked, "existing files are not downloaded again"


@pytest.mark.parametrize("fault", ["other content", "not gzip", "missing", "cut short"])
def test_bad_downloads_leave_nothing(served, tmp_path: Path, fault: str) -> None:
    page = "/train-images-idx3-ubyte.gz"
    message = {
        "other content": "unpacked sha256 is",
        "not gzip": "not a complete gzip file",
        "missing": "404",
        "cut short": "could not download",
    }
    if fault == "other content":
        served.pages[page] = gzip.compress(b"something else")
    elif fault == "not gzip":
        served.pages[page] = b"<html>a login page</html>"
    elif fault == "missing":
        del served.pages[page]
    else:
        served.cut_short.add(page)
    with pytest.raises(DownloadError, match=message[fault]):
        images.download_fashion_mnist(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_real_fashion_mnist(real_data: Path) -> None:
    if not (real_data / "fashion-mnist").is_dir():
        pytest.skip(f"{real_data} has no fashion-mnist")
    loaded = images.load_fashion_mnist(real_data)  # checks the sha256 of all four files
    assert loaded.train.shape == (54_000, 28, 28)
    assert loaded.validation.shape == (6_000, 28, 28)
    assert loaded.test.shape == (10_000, 28, 28)
    pixels = np.concatenate([loaded.train, loaded.validation]) / 255
    assert pixels.mean() == pytest.approx(0.286041, abs=5e-7)
    assert pixels.std() == pytest.approx(0.353024, abs=5e-7)
    assert (np.bincount(np.concatenate([loaded.train_labels, loaded.validation_labels])) == 6000).all()
    assert (np.bincount(loaded.test_labels) == 1000).all()
