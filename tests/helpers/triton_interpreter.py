"""Make Triton's interpreter, which runs kernels on the CPU, four times as fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

# A number of bins that kernels read in chunks, with one bin in the last chunk. A test that uses it needs the fixture
# `small_chunks`.
MANY = 13 if "TRITON_INTERPRET" in os.environ else 33
SMALL_CHUNKS = {"max_row_bins": 10, "max_column_bins": 10, "chunk": 4, "column_chunk": 4}


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> Iterator[None]:
    from cubicflow.splines.backends.triton import _interpreted

    with pytest.MonkeyPatch.context() as patch:
        if find_spec("triton") and _interpreted():
            patch_once_a_launch(patch)
            skip_overflow_checks(patch)
        yield


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter, read more than ten bins in chunks of four bins. The time of a call is proportional to the
    number of bins in all chunks.
    """
    from cubicflow.splines.backends.triton import launch

    if launch.INTERPRETED:
        monkeypatch.setattr(launch, "DEFAULT", launch.DEFAULT._replace(**SMALL_CHUNKS))
        for function in (launch.forward, launch.backward):
            monkeypatch.setattr(function, "__defaults__", (launch.DEFAULT,))


def patch_once_a_launch(patch: pytest.MonkeyPatch) -> None:
    """Let the interpreter patch each module of ``triton.language`` once a launch.

    The interpreter replaces some two hundred functions of the language before a launch, and restores them after it. It
    replaces them again whenever a kernel calls a function, which takes most of its time and changes nothing: the
    functions are those already in place.
    """
    from triton import language
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):  # other versions of Triton stay slow
        return
    plain = interpreter._patch_lang
    patched: set[str] = set()  # modules that the current launch has patched

    @cache
    def visible_from(module: str) -> set[str]:
        values = [id(value) for value in vars(sys.modules[module]).values()]
        return {part.__name__ for part in (language, language.core) if id(part) in values}

    def patch_lang(function: Any) -> Any:
        seen = visible_from(function.__module__)
        if seen <= patched:
            return interpreter._LangPatchScope()  # nothing to restore
        is_launch = not patched
        patched.update(seen)
        scope = plain(function)
        restore = scope.restore

        def restore_at_the_end() -> None:
            patched.clear()
            restore()

        if is_launch:
            scope.restore = restore_at_the_end
        return scope

    patch.setattr(interpreter, "_patch_lang", patch_lang)


def skip_overflow_checks(patch: pytest.MonkeyPatch) -> None:
    """Let the interpreter add integers without a check for overflow.

    The check takes a quarter of the time. Tests have at most a million elements, whose indices fit in 32 bits.
    """
    from triton.runtime import interpreter

    builder = getattr(interpreter, "interpreter_builder", None)
    if builder is not None and hasattr(builder.options, "sanitize_overflow"):
        patch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
