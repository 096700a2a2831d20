"""Downloads from a local server: the files, the checks, and that no partial file remains."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cubicflow.data.benchmarks import BENCHMARKS, download, downloads, load_benchmark
from cubicflow.data.fetch import DownloadError, checksum, fetch

pytestmark = pytest.mark.usefixtures("cache")


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


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


# One file


def test_fetch(site, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    site.pages["/file"] = content
    calls: list[tuple[int, int | None]] = []
    digest = checksum("sha256", hashlib.sha256(content).hexdigest())
    path = fetch(f"{site.url}/file", tmp_path / "a/b/file", check=digest, progress=lambda *call: calls.append(call))
    assert path.read_bytes() == content
    assert files_under(tmp_path) == ["a/b/file"]
    assert calls[-1] == (len(content), len(content))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert len(calls) > 2, "a large file reports its progress before the end"


def test_fetched_files_have_ordinary_permissions(site, tmp_path: Path) -> None:
    site.pages["/file"] = b"x"
    (tmp_path / "ordinary").write_bytes(b"x")
    fetch(f"{site.url}/file", tmp_path / "fetched")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "fetched")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("fault", ["checksum", "missing", "cut short", "refused"])
def test_a_failed_fetch_keeps_what_was_there_and_leaves_nothing_else(site, tmp_path: Path, fault: str) -> None:
    site.pages["/file"] = b"new" * 1000
    url, check, message = f"{site.url}/file", None, ""
    if fault == "checksum":
        check, message = (
            checksum("md5", "0" * 32),
            rf"md5 is {hashlib.md5(b'new' * 1000).hexdigest()}, expected 0{{32}}",
        )
    elif fault == "missing":
        url, message = f"{site.url}/other", r"returned 404 Not Found.*put it at"
    elif fault == "cut short":
        site.cut_short.add("/file")
        message = "could not download"
    else:
        with socket.socket() as unused:  # bound and closed, so nothing listens there
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        message = r"could not download .*download the file on a machine with a network and put it at"
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(DownloadError, match=message):
        fetch(url, tmp_path / "file", check=check, timeout=300)
    assert files_under(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_interrupt_leaves_nothing(site, tmp_path: Path) -> None:
    site.pages["/file"] = b"x" * 100

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(f"{site.url}/file", tmp_path / "file", progress=interrupt)
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "nothing"])
def test_only_http_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match="url must start with http:// or https://"):
        fetch(url, tmp_path / "file")


# The tables


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


def test_one_archive_serves_all_tables(site, published: dict[str, bytes], tmp_path: Path) -> None:
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
    with pytest.raises(DownloadError, match="md5 is"):
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
