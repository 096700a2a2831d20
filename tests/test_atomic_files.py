"""Atomic writes: a file has its old or its new content, never a part of the new one."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cubicflow.atomic_files import replacing, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as file:
        file.write(b"one")
        assert not path.exists()
        assert Path(file.name).parent == tmp_path
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("text where bytes should be")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["file"]


def test_the_new_file_can_be_read_and_changed_before_the_replacement(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as file:
        file.write(b"?bc")
        file.seek(0)
        assert file.read() == b"?bc"
        file.seek(0)
        file.write(b"a")
    assert (tmp_path / "file").read_bytes() == b"abc"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def test_threads_can_write_the_same_file(tmp_path: Path) -> None:
    contents = [bytes([i]) * 100_000 for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomically(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert names(tmp_path) == ["file"]


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "gone" / "file", b"x")
    assert names(tmp_path) == []
