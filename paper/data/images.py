"""Fashion-MNIST: 70,000 grey-scale images of clothes, 28 x 28 pixels, as uint8 (Xiao et al., 2017; MIT licence)."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cubicflow.downloads import DownloadError, Progress, fetch
from paper.data.folders import MissingDataError, data_folder, find, how_to_choose_folder

Bytes = NDArray[np.uint8]

FOLDER = "fashion-mnist"
URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# sha256 of the unpacked bytes. Mirrors serve the same content in different gzip files.
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images (n, height, width) and labels (n,), all uint8. The validation images are the last images of the training
    file.

    >>> pictures, labels = np.zeros((4, 28, 28), np.uint8), np.zeros(4, np.uint8)
    >>> images = ImageSet(pictures[:3], pictures[3:], pictures, labels[:3], labels[3:], labels)
    >>> images.train.shape, images.validation_labels.shape
    ((3, 28, 28), (1,))
    """

    train: Bytes
    validation: Bytes
    test: Bytes
    train_labels: Bytes
    validation_labels: Bytes
    test_labels: Bytes


def load_fashion_mnist(folder: str | Path | None = None, *, validation: int = 6000, verify: bool = True) -> ImageSet:
    """Read the four idx files, gzipped or not, from ``fashion-mnist`` in ``folder``.

    Args:
        folder: the data folder. Default: the folder in CUBICFLOW_DATA, else ``data`` in the cache folder.
        validation: number of validation images. They are the last training images, so the split never changes.
        verify: whether to check the files' sha256. False accepts other content.

    Raises:
        MissingDataError: files are missing.

    >>> try:
    ...     load_fashion_mnist("no/such/folder")
    ... except MissingDataError as error:
    ...     print(str(error)[:28])
    Fashion-MNIST was not found.
    """
    root = data_folder(folder)
    paths = {stem: find(root, [f"{FOLDER}/{stem}.gz", f"{FOLDER}/{stem}"]) for stem in SHA256}
    missing = [str(root / FOLDER / f"{stem}.gz") for stem, path in paths.items() if path is None]
    if missing:
        raise MissingDataError(
            f"Fashion-MNIST was not found. Missing: {', '.join(missing)}. The files are at {URL}/ (and at "
            "https://github.com/zalandoresearch/fashion-mnist); to download them: "
            f"paper.data.images.download_fashion_mnist(folder). {how_to_choose_folder(root)}"
        )
    images, labels, test, test_labels = (
        read_idx(path, sha256=SHA256[stem] if verify else None) for stem, path in paths.items() if path is not None
    )
    for pictures, names, split in ((images, labels, "train"), (test, test_labels, "t10k")):
        if pictures.ndim != 3 or names.shape != pictures.shape[:1]:
            raise ValueError(
                f"the {split} files do not match: images have shape {pictures.shape}, labels have shape {names.shape}; "
                "download both again"
            )
    if not 0 <= validation < len(images):
        raise ValueError(
            f"validation must be at least 0 and below {len(images)}, the number of training images; got {validation}"
        )
    cut = len(images) - validation
    return ImageSet(images[:cut], images[cut:], test, labels[:cut], labels[cut:], test_labels)


def read_idx(path: Path, *, sha256: str | None = None) -> Bytes:
    """Read an idx file of unsigned bytes; a file named ``*.gz`` is unpacked.

    Raises ValueError if the file is damaged, or if the unpacked bytes do not have the digest ``sha256``.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))  # one axis of length 3
    ...     file.flush()
    ...     read_idx(Path(file.name))
    array([7, 8, 9], dtype=uint8)
    """
    content = _unpacked(path)
    if sha256 is not None and (found := _sha256(content)) != sha256:
        raise ValueError(
            f"{path}: the unpacked bytes have sha256 {found}, expected {sha256}: the file is damaged, or it is "
            "not Fashion-MNIST (MNIST's files have the same names). Download it again, or pass verify=False"
        )
    # Header: two zero bytes, the type (8 is unsigned byte), the number of axes, their lengths as big-endian uint32.
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(
            f"{path} is not an idx file of unsigned bytes: it starts with {content[:4].hex(' ')!r}; download it again"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4))
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{path} has {len(content) - start} values, but its header says {shape}; download it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()  # the buffer is read-only


def download_fashion_mnist(folder: str | Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Download the four files, about 30 MB, into ``folder``, and return their paths. Existing files are kept.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / FOLDER).mkdir()
    ...     for stem in SHA256:  # the files exist, so nothing is downloaded
    ...         (Path(folder) / FOLDER / f"{stem}.gz").touch()
    ...     len(download_fashion_mnist(folder))
    4
    """
    paths = {stem: data_folder(folder) / FOLDER / f"{stem}.gz" for stem in SHA256}
    for stem, path in paths.items():
        if not path.exists():
            fetch(f"{URL}/{path.name}", path, check=partial(_check_unpacked, SHA256[stem]), progress=progress)
    return list(paths.values())


def _check_unpacked(sha256: str, path: Path) -> None:
    try:
        found = _sha256(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error) as error:
        raise DownloadError(
            f"the download is not a complete gzip file ({error}). It was not kept; try again."
        ) from error
    if found != sha256:
        raise DownloadError(
            f"the download's unpacked sha256 is {found}, expected {sha256}. It was not kept; try again."
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file ({error}); download it again") from error
