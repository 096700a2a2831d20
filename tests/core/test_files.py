"""Atomic writes: a file has its old or its new content, never a part of the new one."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers.forks import KILLED, die_at, forked

from cubicflow.files import replacing, replacing_together, write_atomically


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


# --- several files ---


def write_together(paths: list[Path], content: bytes) -> None:
    with replacing_together() as new_file:
        for path in paths:
            with new_file(path) as file:
                file.write(content)


@pytest.mark.parametrize("there", [(), (0,), (1, 2), (0, 1, 2)])
def test_several_files_are_replaced_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[int, ...]
) -> None:
    """A rename of each file in turn fails."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for i in there:
        paths[i].write_bytes(b"old")
    before = names(tmp_path)
    replace = Path.replace

    for failing in paths:

        def fail_once(self: Path, target: Path, failing: Path = failing) -> Path:
            if target == failing and self.read_bytes() == b"new":
                raise PermissionError
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", fail_once)
        with pytest.raises(PermissionError):
            write_together(paths, b"new")
        assert names(tmp_path) == before
        assert all(paths[i].read_bytes() == b"old" for i in there)
    monkeypatch.setattr(Path, "replace", replace)
    write_together(paths, b"new")
    assert [path.read_bytes() for path in paths] == [b"new"] * 3
    assert names(tmp_path) == ["a", "b", "c"]


@pytest.mark.parametrize("there", [(0,), (0, 1, 2)])
def test_a_kill_leaves_no_mixture_of_old_and_new_files(tmp_path: Path, there: tuple[int, ...]) -> None:
    """The process is killed just before each operation on the file system in turn."""
    kills, seen = 0, set()
    while True:
        folder = tmp_path / str(kills)
        folder.mkdir()
        paths = [folder / name for name in ("a", "b", "c")]
        for i in there:
            paths[i].write_bytes(b"old")

        def work(paths: list[Path] = paths, folder: Path = folder, at: int = kills) -> None:
            die_at(at, folder)
            write_together(paths, b"new")

        ended = forked(work)
        found = {path.read_bytes() for path in paths if path.exists()}
        if ended.status == 0:
            break
        assert ended.status == KILLED, ended.errors
        assert found in ({b"old"}, {b"new"}, set())
        write_together(paths, b"new")
        assert [path.read_bytes() for path in paths] == [b"new"] * 3
        seen |= found
        kills += 1
    assert found == {b"new"}
    assert seen == {b"old", b"new"}


def test_a_folder_in_the_way_of_the_last_file(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    paths[0].write_bytes(b"old")
    paths[1].mkdir()
    with pytest.raises(OSError, match="directory"):
        write_together(paths, b"new")
    assert paths[0].read_bytes() == b"old"
    assert names(tmp_path) == ["a", "b"]
