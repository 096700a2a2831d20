"""Files on this machine, in an object store, or in any file system that fsspec supports.

A place is a string: a path, or a URL such as ``s3://bucket/folder``. Places are pickled for workers; file systems are
not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

import pyarrow as pa
from fsspec.utils import glob_translate  # torch requires fsspec
from pyarrow import fs

from cubicflow.extras import install
from cubicflow.files import NotPlainError, temporary_name
from cubicflow.owned_folder import Files, LocalFiles
from cubicflow.tables import TableError
from cubicflow.tables.read import URL, URL_AS_PATH, file_system, without_secrets

MAGIC = frozenset("*?[")
HIDDEN = re.compile(r"(^|/)[._]")
ENDINGS = (".parquet", ".pq")


class Stamp(NamedTuple):
    """The size of a file in bytes, and its modification time in nanoseconds; None if the store has no such time."""

    size: int
    changed: int | None


@contextmanager
def readable_errors(place: str) -> Iterator[None]:
    """Convert errors of file systems to a TableError: one line that names the place and says what to check."""
    try:
        yield
    except TableError:
        raise
    except NotPlainError as error:
        raise TableError(str(error)) from None
    except PermissionError as error:
        raise TableError(
            f"{shown(place)}: no permission: {_line(error)}; check the owner and the credentials"
        ) from None
    except FileNotFoundError:
        raise TableError(f"{shown(place)}: there is no such file or folder; check the name") from None
    except ImportError as error:
        more = f"use: {install('fsspec')}, or install the package of this kind of store"
        raise TableError(f"{shown(place)}: {_line(error)}; {more}") from None
    except Exception as error:
        is_remote = URL.fullmatch(place) is not None  # each fsspec file system has its own exception classes
        if not (is_remote or isinstance(error, pa.ArrowException | OSError | ValueError)):
            raise
        advice = "; check the address and the credentials" if is_remote else ""
        raise TableError(f"{shown(place)}: {_line(error)}{advice}") from None


def shown(place: str) -> str:
    """Return a place without its credentials, for messages and files.

    >>> shown("s3://key:secret@bucket/a.parquet?region=eu"), shown("a/b.parquet")
    ('s3://bucket/a.parquet', 'a/b.parquet')
    """
    return without_secrets(place) if URL.fullmatch(place) else place


def opened(place: str) -> tuple[Any, str]:
    """Return the file system of a place, and the path in that file system."""
    if URL_AS_PATH.fullmatch(place):
        raise TableError(f"{place}: a URL has two slashes after its scheme; give it as text, not as a Path")
    if not URL.fullmatch(place):
        return fs.LocalFileSystem(), str(Path(place).absolute())
    return _store(place)


@lru_cache(maxsize=64)  # opening a store takes a connection
def _store(url: str) -> tuple[Any, str]:
    with readable_errors(url):
        return file_system(url)


def is_local(place: str) -> bool:
    """Return whether a place is on this machine's own file system."""
    return isinstance(opened(place)[0], fs.LocalFileSystem)


def stamp(place: str) -> Stamp:
    """Return the current :class:`Stamp` of a file. Raises TableError if there is no such file."""
    store, path = opened(place)
    with readable_errors(place):
        info = store.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise TableError(f"{shown(place)}: there is no such file; check the name")
    if info.type == fs.FileType.Directory:
        raise TableError(f"{shown(place)}: this is a folder; give the path of a file")
    if info.type != fs.FileType.File:  # opening a pipe without a writer would block
        raise TableError(f"{shown(place)}: this is not a plain file; remove it")
    return Stamp(info.size or 0, info.mtime_ns)


# --- the files of a table ---


def find_files(place: str) -> list[str]:
    """Return the Parquet files at a place, sorted by name.

    The place is a file, a folder, which is searched recursively, or a pattern with ``*``, ``?``, ``[...]``, or ``**``
    for any number of folders. Names that begin with . or _ are ignored: by convention they are not data.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.parquet", "a.parquet", "c.csv"):
    ...         Path(folder, name).touch()
    ...     [Path(file).name for file in find_files(f"{folder}/*.parquet")]
    ['a.parquet', 'b.parquet']
    """
    address, query = _split(place)
    if _is_web(address):
        return _checked([place])  # a web server does not list its files
    parts = address.split("/")
    first = next((i for i, part in enumerate(parts) if not MAGIC.isdisjoint(part)), len(parts))
    pattern = "/".join(parts[first:])
    folder = "/".join(parts[:first]) or ("/" if address.startswith("/") else "")
    with readable_errors(place):
        store, root = opened(f"{folder}{query}" if folder else ".")
        kind = fs.FileType.Directory if pattern else store.get_file_info(root).type
        if kind == fs.FileType.File:
            return _checked([place])
        if kind == fs.FileType.NotFound:
            raise FileNotFoundError
        is_deep = not pattern or "/" in pattern or pattern == "**"
        found = store.get_file_info(fs.FileSelector(root, recursive=is_deep, allow_not_found=True))
    names = [info.path.removeprefix(root).lstrip("/") for info in found if info.type != fs.FileType.Directory]
    matches = re.compile(glob_translate(pattern or "**")).match
    chosen = [
        name
        for name in names
        if matches(name) and not HIDDEN.search(name) and (pattern or name.lower().endswith(ENDINGS))
    ]
    if not chosen:
        raise TableError(f"{shown(place)}: there is no Parquet file; check the name, and put a pattern in quotes")
    return _checked([below(f"{folder}{query}", name) for name in sorted(chosen, key=lambda name: name.split("/"))])


def _is_web(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


def _checked(files: list[str]) -> list[str]:
    other = next((file for file in files if not urlsplit(file).path.lower().endswith(ENDINGS)), None)
    if other is not None:
        raise TableError(
            f"{shown(other)}: this is not a Parquet file, and an engine reads only Parquet; convert the file to "
            "Parquet, or leave the engine out"
        )
    return files


def _split(place: str) -> tuple[str, str]:
    """Split a URL into its address and its query, which may be empty. A path has no query."""
    if not URL.fullmatch(place):
        return place, ""
    address, mark, query = place.partition("?")
    return address, mark + query


# --- the files of one folder ---


def below(folder: str, name: str) -> str:
    """Return the place of a file in a folder.

    >>> below("s3://bucket/scores?region=eu", "part-0"), below("scores", "part-0")
    ('s3://bucket/scores/part-0?region=eu', 'scores/part-0')
    """
    if not URL.fullmatch(folder):
        return str(Path(folder, name))
    address, query = _split(folder)
    return f"{address.rstrip('/')}/{name}{query}"


def upload(store: Any, path: str, content: bytes) -> None:
    """Write a file of a store under a temporary name, then rename it: a stream that fails leaves a part of a file."""
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/{temporary_name(name)}"
    with store.open_output_stream(temporary) as stream:
        stream.write(content)
    store.move(temporary, path)


def can_create(store: Any) -> bool:
    """Return whether a store can create a file and not replace one: some file systems of fsspec can."""
    files = getattr(getattr(store, "handler", None), "fs", None)  # the fsspec file system, if it is one
    return files is not None and "mode" in signature(files.pipe_file).parameters


class StoreFiles:
    """The files of a folder in an object store, or in any file system that fsspec supports. There are no locks."""

    def __init__(self, place: str) -> None:
        if _is_web(place):
            raise TableError(f"{shown(place)}: a web server takes no files; give a folder or an object store")
        self.place = place

    def _at(self, name: str) -> tuple[Any, str]:
        store, path = opened(self.place)
        return store, f"{path.rstrip('/')}/{name}"

    def make(self) -> None:
        store, path = opened(self.place)
        store.create_dir(path, recursive=True)

    def names(self) -> dict[str, bool]:
        store, path = opened(self.place)
        found = store.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return dict(sorted((info.path.rpartition("/")[2], info.type == fs.FileType.Directory) for info in found))

    def open(self, name: str) -> IO[bytes]:
        store, path = self._at(name)
        return cast("IO[bytes]", store.open_input_file(path))

    def write(self, name: str, content: bytes) -> None:
        upload(*self._at(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Only fsspec can ask a store to create a file and not to replace one. Elsewhere the last of several processes
        creates the file, and those before it find out when they read it."""
        store, path = self._at(name)
        if not can_create(store):
            upload(store, path, content)
            with self.open(name) as file:
                return file.read() == content
        try:
            store.handler.fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, names: Sequence[str]) -> None:
        for store, path in map(self._at, names):
            with suppress(FileNotFoundError):
                store.delete_file(path)

    def locked(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is locked
        return nullcontext()


def files_of(folder: str) -> Files:
    """Return the files of a folder at a place.

    >>> files_of("no/such/folder").names()
    {}
    """
    return LocalFiles(Path(opened(folder)[1])) if is_local(folder) else StoreFiles(folder)


def _line(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    return text[:300] or type(error).__name__
