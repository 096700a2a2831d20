"""BSDS300: images from archives and folders, patches against a plain loop, the cache, and the real images."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from paper.data.benchmark_table import Benchmark, Size

from paper.data import PUBLISHED, bsds300, load_benchmark

from .made_up_benchmarks import put

pytestmark = pytest.mark.usefixtures("cache")


def assert_is(benchmark: Benchmark, expected: list[np.ndarray]) -> None:
    for rows, reference in zip((benchmark.train, benchmark.validation, benchmark.test), expected, strict=True):
        assert rows.dtype == np.float32
        # Both run the same float64 operations and round once. Values are below 1; sums of 64 may differ in order.
        np.testing.assert_allclose(rows, reference, rtol=1e-7, atol=1e-7)


def bsds_images() -> dict[str, np.ndarray]:
    """Return ten training and four test images of two shapes. They are lossless, but the loader needs .jpg names."""
    random = np.random.default_rng(3)
    shapes = [(20, 31), (31, 20)]
    names = [f"train/{i}.jpg" for i in range(10)] + [f"test/{i}.jpg" for i in range(4)]
    return {name: random.integers(256, size=shapes[i % 2], dtype=np.uint8) for i, name in enumerate(names)}


def bsds_archive(images: dict[str, np.ndarray], mode: str = "w") -> bytes:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, pixels in [*images.items(), ("train/._0.jpg", None), ("iids_test.txt", None)]:
            content = io.BytesIO()
            if pixels is not None:
                image.fromarray(pixels).save(content, format="PNG")
            member = tarfile.TarInfo(f"BSDS300/images/{name}")
            member.size = len(content.getvalue())
            archive.addfile(member, io.BytesIO(content.getvalue()))
    return buffer.getvalue()


def reference_patches(images: list[np.ndarray], n: int, seed: list[int]) -> np.ndarray:
    """Draw one patch at a time."""
    random = np.random.RandomState(seed)
    which = random.randint(len(images), size=n)
    down, across = random.random_sample(n), random.random_sample(n)
    rows = []
    for i in range(n):
        pixels = images[which[i]]
        top = int(down[i] * (pixels.shape[0] - 7))
        left = int(across[i] * (pixels.shape[1] - 7))
        patch = (pixels[top : top + 8, left : left + 8].ravel() + random.random_sample(64)) / 256
        rows.append((patch - patch.mean())[:63])
    return np.array(rows)


@pytest.mark.parametrize("kind", ["images.tar", "BSDS300-images.tgz", "folder"])
def test_bsds300_images_and_patches(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = bsds_images()
    if kind == "folder":
        with tarfile.open(fileobj=io.BytesIO(bsds_archive(pixels))) as archive:
            archive.extractall(tmp_path, filter="data")
    else:
        put(tmp_path / "bsds300" / kind, bsds_archive(pixels, "w:gz" if kind.endswith("tgz") else "w"))
    monkeypatch.setitem(PUBLISHED, "bsds300", Size(500, 60, 70, 63))
    monkeypatch.setattr(bsds300, "_ROWS_AT_ONCE", 64)  # several blocks
    loaded = load_benchmark("bsds300", tmp_path, seed=4)
    train = [pixels[name] for name in sorted(pixels) if name.startswith("train")]
    test = [pixels[name] for name in sorted(pixels) if name.startswith("test")]
    order = np.random.RandomState(42).permutation(10)
    expected = [
        reference_patches([train[i] for i in order[:9]], 500, [4, 0]),
        reference_patches([train[i] for i in order[9:]], 60, [4, 1]),
        reference_patches(test, 70, [4, 2]),
    ]
    assert_is(loaded, expected)
    assert loaded.provenance == "partial"
    assert "10 training and 4 test images" in loaded.note
    monkeypatch.setattr(bsds300, "IMAGES_SHA256", bsds300.read_images(next(iter(_raw_path(tmp_path)))).sha256)
    assert load_benchmark("bsds300", tmp_path, seed=4).provenance == "redrawn"


def _raw_path(folder: Path) -> list[Path]:
    return [folder / name for name in bsds300.FORMS[1].files[0] if (folder / name).exists()]


def test_bsds300_cache_is_used_checked_and_optional(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "images.tar", bsds_archive(bsds_images()))
    images = bsds300.read_images(tmp_path / "images.tar")
    rows = (50, 20, 20)
    first = bsds300.cached_redraw(images, rows, 0)
    files = sorted(cache.rglob("*.npy"))
    assert [path.name for path in files] == ["test.npy", "train.npy", "validation.npy"]

    def never(*_: object) -> None:
        raise AssertionError("drawn again")

    with monkeypatch.context() as patched:
        patched.setattr(bsds300, "redraw", never)
        for kept, drawn in zip(bsds300.cached_redraw(images, rows, 0), first, strict=True):
            np.testing.assert_array_equal(kept, drawn)
        with pytest.raises(AssertionError, match="drawn again"):
            bsds300.cached_redraw(images, rows, 1)

    files[1].write_bytes(files[1].read_bytes()[:-100])  # damaged: drawn again, and repaired
    np.testing.assert_array_equal(bsds300.cached_redraw(images, rows, 0).train, first.train)
    np.testing.assert_array_equal(np.load(files[1]), first.train)

    monkeypatch.setenv("CUBICFLOW_CACHE", str(put(tmp_path / "a file", "")))  # the cache folder is a file
    np.testing.assert_array_equal(bsds300.cached_redraw(images, rows, 0).train, first.train)


def test_bsds300_patches_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    images = list(bsds_images().values())
    whole = bsds300.draw_patches(images, 100, 0)
    monkeypatch.setattr(bsds300, "_ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(bsds300.draw_patches(images, 100, 0), whole)


def test_bsds300_errors(tmp_path: Path) -> None:
    only_train = {name: pixels for name, pixels in bsds_images().items() if name.startswith("train")}
    path = put(tmp_path / "bsds300/images.tar", bsds_archive(only_train))
    with pytest.raises(ValueError, match=r"10 training images .* and 0 test images .* BSDS300 has 200 and 100"):
        load_benchmark("bsds300", tmp_path)
    path.write_bytes(b"not a tar file at all")
    with pytest.raises(ValueError, match="not a complete tar archive"):
        load_benchmark("bsds300", tmp_path)
    tiny = np.zeros((4, 4), np.uint8)
    two_hundred = {f"train/{i}.jpg": tiny for i in range(200)} | {f"test/{i}.jpg": tiny for i in range(100)}
    path.write_bytes(bsds_archive(two_hundred))
    with pytest.raises(ValueError, match="checksum is wrong"):
        load_benchmark("bsds300", tmp_path)
    folder = tmp_path / "folder"
    for name in ("train/a.jpg", "train/b.jpg", "test/c.jpg"):
        put(folder / name, "not a picture")
    with pytest.raises(ValueError, match=r"test/c\.jpg is not a complete image"):
        bsds300.read_images(folder)
    with pytest.raises(ValueError, match="at least 8 x 8"):
        bsds300.draw_patches([tiny], 3, 0)


def test_bsds300_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "BSDS300").mkdir()
    random = np.random.default_rng(0)
    splits = [random.standard_normal((n, 63)) for n in (50, 20, 30)]
    with h5py.File(tmp_path / "BSDS300/BSDS300.hdf5", "w") as file:
        for name, rows in zip(("train", "validation", "test"), splits, strict=True):
            file[name] = rows
    monkeypatch.setitem(PUBLISHED, "bsds300", Size(50, 20, 30, 63))
    loaded = load_benchmark("bsds300", tmp_path)
    assert_is(loaded, splits)
    assert loaded.provenance == "whole"
    with h5py.File(tmp_path / "BSDS300/BSDS300.hdf5", "w") as file:
        file["train"] = splits[0]
    with pytest.raises(ValueError, match="lacks test, validation"):
        load_benchmark("bsds300", tmp_path)


def test_bsds300_published_reads_each_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub replaces h5py, with the two methods that the loader uses."""
    splits = {
        name: np.random.default_rng(0).random((n, 63)) for name, n in (("test", 3), ("train", 5), ("validation", 2))
    }

    class File(dict):
        def __init__(self, path: Path, mode: str) -> None:
            assert (path.name, mode) == ("BSDS300.hdf5", "r")
            super().__init__(splits)

        def __enter__(self) -> File:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    put(tmp_path / "BSDS300/BSDS300.hdf5", "")
    monkeypatch.setitem(sys.modules, "h5py", type("module", (), {"File": File}))
    assert_is(load_benchmark("bsds300", tmp_path), [splits[name] for name in ("train", "validation", "test")])


def test_bsds300_without_h5py_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "BSDS300/BSDS300.hdf5", "")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install h5py.*form='raw'"):
        load_benchmark("bsds300", tmp_path)


def gaussian_scores(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    mean, covariance = train.mean(axis=0, dtype=float), np.cov(train, rowvar=False)
    z = np.linalg.solve(np.linalg.cholesky(covariance), (rows - mean).T)
    log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
    return -0.5 * (z**2).sum(axis=0) - 0.5 * log_det


def test_real_bsds300(real_data: Path) -> None:
    """A full-covariance Gaussian scores some of the rows as it scores all, within 0.3 and two standard errors."""
    images = real_data / "bsds300/images.tar"
    if not images.exists():
        pytest.skip(f"{images} is not there")
    found = bsds300.read_images(images)
    assert (len(found.train), len(found.test), found.sha256) == (200, 100, bsds300.IMAGES_SHA256)
    assert {image.shape for image in found.train} == {(321, 481), (481, 321)}
    splits = bsds300.redraw(found, (200_000, 20_000, 40_000), seed=0)
    for rows, expected in ((splits.test, 96.4), (splits.validation, 105.6)):
        scores = gaussian_scores(splits.train, rows)
        assert abs(scores.mean() - expected) < 0.3 + 2 * scores.std() / np.sqrt(len(scores))


@pytest.mark.soak
def test_real_bsds300_whole(real_data: Path) -> None:
    if not (real_data / "bsds300/images.tar").exists():
        pytest.skip(f"{real_data} has no bsds300/images.tar")
    loaded = load_benchmark("bsds300", real_data, form="raw")
    assert loaded.provenance == "redrawn"
    assert (loaded.train.shape, loaded.validation.shape, loaded.test.shape) == (
        (1_000_000, 63),
        (50_000, 63),
        (250_000, 63),
    )
    assert gaussian_scores(loaded.train, loaded.test).mean() == pytest.approx(96.4, abs=0.3)
