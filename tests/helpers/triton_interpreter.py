"""Make Triton's interpreter, which runs kernels on the CPU, four times as fast."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest


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
