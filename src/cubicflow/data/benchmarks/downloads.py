"""Fetching the tables where there is a network.

The archive of published arrays has a known md5. UCI publishes no checksums and we know none that we could confirm: a
file from there is checked by what the loader finds in it (header, columns, and the published number of rows, without
which the table is labelled partial). The BSDS300 images are checked one by one when they are read.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from cubicflow.atomic_files import replacing
from cubicflow.data.fetch import Check, DownloadError, Progress, checksum, fetch
from cubicflow.data.folders import data_folder

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"


@dataclass(frozen=True)
class Source:
    """One address, and the files it gives: path under the data folder -> name inside the archive.

    A name of None is the download itself, kept as it comes.
    """

    url: str
    files: dict[str, str | None]
    check: Check | None = None


# One archive holds all five tables, so all are unpacked: it is large and should be fetched once.
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
    """Download one table's files into ``folder`` (see :func:`data_folder`); files that are there are left alone.

    ``"published"`` is the archive of arrays as they were published, for all five tables at once; ``"raw"`` the files
    they were made from. Without ``source``: published, except for GAS, whose published form is a pickle.
    ``progress(done, total)`` is called with bytes, ``total`` being None where the server does not say.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "power").mkdir()
    ...     (Path(folder) / "power" / "data.npy").touch()  # so that there is nothing to fetch
    ...     [path.name for path in download("power", folder)]
    ['data.npy']
    """
    key = name.lower()
    if key not in RAW_FILES:
        raise ValueError(f"there is no benchmark table {name!r}; there are {', '.join(sorted(RAW_FILES))}")
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
    """Copy members out of a tar or zip archive, by name, each complete or not at all.

    Destinations are ours and never the archive's, so no archive can write elsewhere.
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
        raise DownloadError(f"{url} did not give a whole zip or tar archive ({error}); try again") from error
    if left:
        raise DownloadError(
            f"the archive from {url} lacks {', '.join(left.values())}; it holds {', '.join(seen[:20]) or 'nothing'}. "
            f"Put {', '.join(str(root / path) for path in left)} there by hand."
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
