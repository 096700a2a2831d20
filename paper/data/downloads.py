"""Downloads of the benchmark tables.

The archive of published arrays has a known md5. UCI publishes no checksums. A file from UCI is checked when it is
loaded: header, columns and number of rows. A table without the published number of rows is ``"partial"``. The
BSDS300 images are checked when they are read.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from cubicflow.downloads import Check, DownloadError, Progress, fetch
from cubicflow.files import replacing
from paper.data.folders import data_folder

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"


@dataclass(frozen=True)
class Source:
    """Address of a download, and the files in it.

    Attributes:
        url: the address.
        files: path under the data folder -> name inside the archive. None means the download itself, not unpacked.
        check: check of the downloaded file, or None.
    """

    url: str
    files: dict[str, str | None]
    check: Check | None = None


def checksum(algorithm: str, expected: str) -> Check:
    """Return a check that a file has the digest ``expected``. ``algorithm`` is ``"md5"`` or ``"sha256"``."""

    def check(path: Path) -> None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if found != expected:
            raise DownloadError(
                f"the download's {algorithm} is {found}, expected {expected}: the file is damaged or has changed at "
                "its source. It was not kept; try again."
            )

    return check


# One large archive holds all five tables. All tables are unpacked, so that the archive is downloaded once.
PUBLISHED_ARRAYS = Source(
    "https://zenodo.org/record/1161203/files/data.tar.gz?download=1",
    {
        name: f"data/{name}"
        for name in (
            "power/data.npy",
            "gas/ethylene_CO.pickle",
            "hepmass/1000_train.csv",
            "hepmass/1000_test.csv",
            "miniboone/data.npy",
            "BSDS300/BSDS300.hdf5",
        )
    },
    checksum("md5", "9b9c9b0375315ad270eba4ce80c093ab"),
)

RAW_FILES: dict[str, tuple[Source, ...]] = {
    "power": (
        Source(
            f"{_UCI}/00235/household_power_consumption.zip",
            {"power/household_power_consumption.txt": "household_power_consumption.txt"},
        ),
    ),
    "gas": (Source(f"{_UCI}/00322/data.zip", {"gas/ethylene_CO.txt": "ethylene_CO.txt"}),),
    "hepmass": tuple(
        Source(f"{_UCI}/00347/{name}", {f"hepmass/{name}": None}) for name in ("1000_train.csv.gz", "1000_test.csv.gz")
    ),
    "miniboone": (Source(f"{_UCI}/00199/MiniBooNE_PID.txt", {"miniboone/MiniBooNE_PID.txt": None}),),
    "bsds300": (
        Source(
            "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/BSDS300-images.tgz",
            {"bsds300/BSDS300-images.tgz": None},
        ),
    ),
}


def download(
    name: str,
    folder: str | Path | None = None,
    *,
    source: Literal["published", "raw"] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Download one table's files and return their paths. Existing files are kept.

    Args:
        name: name of the table.
        folder: the data folder. Default: the folder in CUBICFLOW_DATA, else ``data`` in the cache folder.
        source: ``"published"`` for the archive of published arrays, which holds all five tables; ``"raw"`` for the
            original files. Default: ``"published"``, but ``"raw"`` for GAS, whose published form is a pickle.
        progress: called with the bytes so far and the total, which is None if the server does not send it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "power").mkdir()
    ...     (Path(folder) / "power" / "data.npy").touch()  # the file exists, so nothing is downloaded
    ...     [path.name for path in download("power", folder)]
    ['data.npy']
    """
    key = name.lower()
    if key not in RAW_FILES:
        raise ValueError(f"unknown benchmark table {name!r}; there are {', '.join(sorted(RAW_FILES))}")
    if source not in (None, "published", "raw"):
        raise ValueError(f"source must be 'published' or 'raw', got {source!r}")
    root = data_folder(folder)
    published = source == "published" or (source is None and key != "gas")
    if not published:
        return [path for raw in RAW_FILES[key] for path in _get(raw, root, list(raw.files), progress)]
    wanted = [path for path in PUBLISHED_ARRAYS.files if path.lower().startswith(f"{key}/")]
    return _get(PUBLISHED_ARRAYS, root, wanted, progress)


def _get(source: Source, root: Path, wanted: list[str], progress: Progress | None) -> list[Path]:
    paths = [root / name for name in wanted]
    if all(path.exists() for path in paths):
        return paths
    if None in source.files.values():
        for path in paths:
            fetch(source.url, path, check=source.check, progress=progress)
        return paths
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
        archive = Path(temporary) / "archive"
        fetch(source.url, archive, check=source.check, progress=progress)
        missing = {name: member for name, member in source.files.items() if member and not (root / name).exists()}
        unpack(archive, root, missing, source.url)
    return paths


def unpack(archive: Path, root: Path, wanted: dict[str, str], url: str) -> None:
    """Copy members of a tar or zip archive to files. Each file is written completely or not at all.

    ``wanted`` maps paths under ``root`` to names in the archive. Names in the archive never become paths, so an archive
    cannot write outside ``root``.

    Raises:
        DownloadError: the archive is damaged or lacks a member.
    """
    left = dict(wanted)
    seen = []
    try:
        for name, file in _members(archive):
            seen.append(name)
            for path, member in list(left.items()):
                if PurePosixPath(name) == PurePosixPath(member):
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    with replacing(root / path) as out:
                        shutil.copyfileobj(file, out)
                    del left[path]
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{url} is not a complete zip or tar archive ({error}); try again") from error
    if left:
        raise DownloadError(
            f"the archive from {url} lacks {', '.join(left.values())}; it has {', '.join(seen[:20]) or 'no files'}. "
            f"Create {', '.join(str(root / path) for path in left)} by hand."
        )


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if not info.is_dir():
                    with opened.open(info) as file:
                        yield info.filename, file
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and (content := tar.extractfile(member)) is not None:
                    yield member.name, content
