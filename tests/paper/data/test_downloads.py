"""Downloads from a local server: the files, the checks, and that no partial file remains."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from paper.data.downloads import checksum
from tests.helpers.web_site import files_under

from cubicflow.downloads import DownloadError
from paper.data import BENCHMARKS, download, downloads, load_benchmark

pytestmark = pytest.mark.usefixtures("cache")


def make_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def make_zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def published(site, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Serve the archive of published arrays, with tiny contents."""
    array = io.BytesIO()
    np.save(array, np.random.default_rng(0).random((200, 8)))
    files = {member: name.encode() for name, member in downloads.PUBLISHED_ARRAYS.files.items()}
    files["data/power/data.npy"] = array.getvalue()
    files["data/cifar10/batch"] = b"not wanted"
    files["../../escape"] = b"not wanted either"
    archive = make_tar(files)
    site.pages["/data.tar.gz"] = archive
    source = downloads.Source(
        f"{site.url}/data.tar.gz?download=1",
        downloads.PUBLISHED_ARRAYS.files,
        checksum("md5", hashlib.md5(archive).hexdigest()),
    )
    monkeypatch.setattr(downloads, "PUBLISHED_ARRAYS", source)
    return files


def test_one_archive_serves_all_tables(
    site, published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paper.data.power.COMPLETE_ROWS", 200)
    root = tmp_path / "data"
    assert download("POWER", root) == [root / "power/data.npy"]
    assert files_under(tmp_path) == sorted(f"data/{name}" for name in downloads.PUBLISHED_ARRAYS.files)
    assert load_benchmark("power", root).train.shape == (162, 6)
    assert download("hepmass", root) == [root / "hepmass/1000_train.csv", root / "hepmass/1000_test.csv"]
    assert download("bsds300", root) == [root / "BSDS300/BSDS300.hdf5"]
    assert download("gas", root, source="published") == [root / "gas/ethylene_CO.pickle"]
    assert site.asked == ["/data.tar.gz"]


def test_existing_files_are_not_replaced(published: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    (tmp_path / "power/data.npy").write_bytes(b"mine")
    download("miniboone", tmp_path)
    assert (tmp_path / "power/data.npy").read_bytes() == b"mine"
    assert (tmp_path / "miniboone/data.npy").read_bytes() == b"miniboone/data.npy"


def test_a_damaged_archive_is_not_opened(site, published: dict[str, bytes], tmp_path: Path) -> None:
    site.pages["/data.tar.gz"] += b"!"
    found = hashlib.md5(site.pages["/data.tar.gz"]).hexdigest()
    with pytest.raises(DownloadError, match=rf"md5 is {found}, expected [0-9a-f]{{32}}"):
        download("power", tmp_path)
    assert files_under(tmp_path) == []


@pytest.fixture
def raw(site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the raw files from the local server, under their real file names."""
    moved = {
        name: tuple(
            downloads.Source(f"{site.url}/{source.url.rpartition('/')[2]}", source.files, source.check)
            for source in found
        )
        for name, found in downloads.RAW_FILES.items()
    }
    monkeypatch.setattr(downloads, "RAW_FILES", moved)
    site.pages |= {
        "/household_power_consumption.zip": make_zip({"household_power_consumption.txt": b"power"}),
        "/data.zip": make_zip({"ethylene_CO.txt": b"gas", "ethylene_methane.txt": b"other", "../escape": b"no"}),
        "/1000_train.csv.gz": gzip.compress(b"train"),
        "/1000_test.csv.gz": gzip.compress(b"test"),
        "/MiniBooNE_PID.txt": b"miniboone",
        "/BSDS300-images.tgz": b"bsds300",
    }


@pytest.mark.usefixtures("raw")
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_raw_files_land_where_the_loader_looks(site, tmp_path: Path, name: str) -> None:
    paths = download(name, tmp_path / "data", source="raw")
    form = next(form for form in BENCHMARKS[name] if form.name == "raw")
    accepted = [[tmp_path / "data" / alternative for alternative in names] for names in form.files]
    assert len(paths) == len(accepted)
    for path, names in zip(paths, accepted, strict=True):
        assert path in names
        assert path.is_file()
    assert sorted(map(str, paths)) == [str(tmp_path / file) for file in files_under(tmp_path)]
    asked = len(site.asked)
    assert download(name, tmp_path / "data", source="raw") == paths
    assert len(site.asked) == asked


@pytest.mark.usefixtures("raw")
def test_gas_is_downloaded_as_raw_text_by_default(tmp_path: Path) -> None:
    (path,) = download("gas", tmp_path)
    assert path == tmp_path / "gas/ethylene_CO.txt"
    assert path.read_bytes() == b"gas"


@pytest.mark.usefixtures("raw")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (make_zip({"readme": b""}), "lacks ethylene_CO.txt; it has readme.*by hand"),
        (b"<html>a login page</html>", "is not a complete zip or tar archive"),
        (make_tar({"ethylene_CO.txt": os.urandom(100_000)})[:50_000], "is not a complete zip or tar archive"),
    ],
)
def test_bad_archives_are_refused(site, tmp_path: Path, content: bytes, message: str) -> None:
    site.pages["/data.zip"] = content
    with pytest.raises(DownloadError, match=message):
        download("gas", tmp_path)
    assert files_under(tmp_path) == []


@pytest.mark.usefixtures("raw")
def test_the_default_folder_is_the_one_the_loader_reads(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert download("miniboone", source="raw") == [cache / "data/miniboone/MiniBooNE_PID.txt"]
    monkeypatch.setenv("CUBICFLOW_DATA", str(cache / "named"))
    assert download("miniboone", source="raw") == [cache / "named/miniboone/MiniBooNE_PID.txt"]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are bsds300, gas, hepmass, miniboone, power"):
        download("mnist", tmp_path)
    with pytest.raises(ValueError, match="'published' or 'raw'"):
        download("gas", tmp_path, source="zenodo")


def test_addresses_are_https_and_the_loader_knows_every_file() -> None:
    every = [downloads.PUBLISHED_ARRAYS, *(source for found in downloads.RAW_FILES.values() for source in found)]
    known = {name for forms in BENCHMARKS.values() for form in forms for names in form.files for name in names}
    for source in every:
        assert source.url.startswith("https://")
        assert set(source.files) <= known
