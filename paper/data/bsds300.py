"""BSDS300: 8 x 8 patches of natural grey images, with added noise, without mean and last pixel (63 columns).

The published patches are an HDF5 file. From the images alone, the patches are *redrawn*: same recipe and sizes, other
positions. A full-covariance Gaussian scores 96.4 on the redrawn test patches and 96.7 on the published ones. Validation
patches come from only 20 images and are easier than the test patches (105.6), so early stopping on them can mislead.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.files import cache_folder, replacing
from paper.data.benchmark_table import (
    ARCHIVE,
    PUBLISHED,
    Benchmark,
    Form,
    Rows32,
    Splits,
    load_array,
    make_benchmark,
)

Grey = NDArray[np.uint8]

SIDE = 8
VALIDATION_FRACTION = 10  # one of ten training images is for validation
SPLIT_SEED = 42
# sha256 of the 300 files, sorted by their names in Berkeley's archive; each as name, a zero byte, content.
IMAGES_SHA256 = "44584b06a9d2f22028d345f087f99d2428a5b6c410e8bede069770a60a8a24ef"
_ROWS_AT_ONCE = 1 << 14  # patches; bounds the temporary arrays to 16 MB


class Images(NamedTuple):
    """Grey images in the order of their names, and the digest of their files."""

    train: list[Grey]
    test: list[Grey]
    sha256: str


def read_images(path: Path) -> Images:
    """Read the images of ``path``, a tar archive or a folder, with subfolders ``train`` and ``test``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "reading the BSDS300 images needs Pillow, which comes with matplotlib: pip install matplotlib"
        ) from error
    found: dict[tuple[str, str], bytes] = dict(_folder_files(path) if path.is_dir() else _archive_files(path))
    digest = hashlib.sha256()
    images: dict[str, list[Grey]] = {"test": [], "train": []}
    for (split, name), content in sorted(found.items()):
        digest.update(f"BSDS300/images/{split}/{name}".encode() + b"\0" + content)
        try:
            with Image.open(io.BytesIO(content)) as image:
                images[split].append(np.asarray(image.convert("L"), dtype=np.uint8))  # ITU-R 601 luma
        except OSError as error:
            raise ValueError(f"{path}: {split}/{name} is not a complete image; download the images again") from error
    if len(images["train"]) < 2 or not images["test"]:
        raise ValueError(
            f"{path} has {len(images['train'])} training images (train/*.jpg) and {len(images['test'])} test images "
            "(test/*.jpg); BSDS300 has 200 and 100; download it again"
        )
    if (len(images["train"]), len(images["test"])) == (200, 100) and digest.hexdigest() != IMAGES_SHA256:
        raise ValueError(f"{path}: the images' checksum is wrong: some are damaged; download the archive again")
    return Images(images["train"], images["test"], digest.hexdigest())


def _archive_files(path: Path) -> Iterator[tuple[tuple[str, str], bytes]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                key = _split_and_name(PurePosixPath(member.name))
                if key is not None and (file := archive.extractfile(member)) is not None:
                    yield key, file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete tar archive ({error}); download it again") from error


def _folder_files(path: Path) -> Iterator[tuple[tuple[str, str], bytes]]:
    for file in path.glob("*/*.jpg"):
        key = _split_and_name(PurePosixPath(file.relative_to(path).as_posix()))
        if key is not None:
            yield key, file.read_bytes()


def _split_and_name(path: PurePosixPath) -> tuple[str, str] | None:
    # Archives made on a Mac have a file "._name.jpg" next to each image. That file is not an image.
    if path.suffix != ".jpg" or path.name.startswith(".") or path.parent.name not in ("train", "test"):
        return None
    return path.parent.name, path.name


def redraw(images: Images, rows: tuple[int, int, int], seed: int) -> Splits:
    """Draw the patches of all three splits, each split with its own random stream."""
    order = np.random.RandomState(SPLIT_SEED).permutation(len(images.train))  # the published split
    held_out = max(1, len(order) // VALIDATION_FRACTION)
    sources = (
        [images.train[i] for i in order[:-held_out]],
        [images.train[i] for i in order[-held_out:]],
        images.test,
    )
    return Splits(*(draw_patches(s, n, [seed, i]) for i, (s, n) in enumerate(zip(sources, rows, strict=True))))


def draw_patches(images: Sequence[Grey], n: int, seed: int | list[int]) -> Rows32:
    """Draw ``n`` patches: a uniform image with replacement, a uniform position in it, and noise for each pixel."""
    # RandomState's streams never change; Generator's may change between versions of NumPy.
    random = np.random.RandomState(seed)
    heights, widths = np.array([image.shape for image in images]).T
    if min(heights.min(), widths.min()) < SIDE:
        raise ValueError(f"images must be at least {SIDE} x {SIDE} pixels, got {heights.min()} x {widths.min()}")
    pixels = np.concatenate([image.ravel() for image in images])
    first_pixel = np.cumsum(heights * widths) - heights * widths
    image = random.randint(len(images), size=n)
    row = (random.random_sample(n) * (heights[image] - SIDE + 1)).astype(np.intp)
    column = (random.random_sample(n) * (widths[image] - SIDE + 1)).astype(np.intp)
    corner = first_pixel[image] + row * widths[image] + column
    patch_row, patch_column = np.divmod(np.arange(SIDE**2), SIDE)
    result = np.empty((n, SIDE**2 - 1), dtype=np.float32)
    # Noise is drawn row by row, so the result does not depend on the block size.
    for start in range(0, n, _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        at = corner[block, None] + patch_row * widths[image[block], None] + patch_column
        patches = (pixels[at] + random.random_sample(at.shape)) / 256
        patches -= patches.mean(axis=1, keepdims=True)
        result[block] = patches[:, :-1]
    return result


def _read_raw(paths: tuple[Path, ...], seed: int) -> Benchmark:
    images = read_images(paths[0])
    splits = cached_redraw(images, PUBLISHED["bsds300"][:3], seed)
    counts = f"{len(images.train)} training and {len(images.test)} test images"
    redrawn = f"patches drawn with seed {seed} from {counts}, by the published recipe"
    benchmark = make_benchmark("bsds300", splits, source=paths[0].name, redrawn=redrawn)
    if images.sha256 == IMAGES_SHA256:
        return benchmark
    note = f"Patches of {counts} in {paths[0].name}, which are not BSDS300's 200 and 100."
    return dataclasses.replace(benchmark, provenance="partial", note=note)


def cached_redraw(images: Images, rows: tuple[int, int, int], seed: int) -> Splits:
    """Return the result of :func:`redraw` from the cache folder, or draw it and save it there if possible.

    The name of the folder contains the images' digest, the seed and the sizes.
    """
    sizes = "-".join(map(str, rows))
    folder = cache_folder() / "bsds300" / f"{images.sha256[:16]}-seed{seed}-{sizes}"
    paths = [folder / f"{split}.npy" for split in Splits._fields]
    with suppress(OSError, ValueError):  # a missing or damaged file is drawn again and replaced
        kept = [load_array(path) for path in paths]
        if [a.shape for a in kept] == [(n, SIDE**2 - 1) for n in rows] and all(a.dtype == np.float32 for a in kept):
            return Splits(*(array.astype(np.float32, copy=False) for array in kept))
    splits = redraw(images, rows, seed)
    with suppress(OSError):  # the cache is optional: the result does not depend on it
        folder.mkdir(parents=True, exist_ok=True)
        for path, array in zip(paths, splits, strict=True):
            with replacing(path) as file:
                np.save(file, array, allow_pickle=False)
    return splits


def _read_published(paths: tuple[Path, ...], _: int) -> Benchmark:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            f"reading {paths[0]} needs h5py: pip install h5py. Without it, form='raw' redraws the patches from the "
            "images"
        ) from error
    with h5py.File(paths[0], "r") as file:
        if missing := set(Splits._fields) - set(file):
            raise ValueError(
                f"{paths[0]} is not BSDS300.hdf5: it lacks {', '.join(sorted(missing))}; download it again"
            )
        splits = Splits(*(np.asarray(file[split], dtype=np.float32) for split in Splits._fields))
    return make_benchmark("bsds300", splits, source=paths[0].name)


FORMS = (
    Form("published", (("BSDS300/BSDS300.hdf5", "bsds300/BSDS300.hdf5"),), ARCHIVE, _read_published),
    Form(
        "raw",
        (
            tuple(
                f"{folder}/{name}"
                for folder in ("bsds300", "BSDS300")
                for name in ("BSDS300-images.tgz", "images.tar", "images")
            ),
        ),
        "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/BSDS300-images.tgz",
        _read_raw,
    ),
)
