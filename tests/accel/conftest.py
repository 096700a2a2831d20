"""Fixtures of the tests of kernels."""

from __future__ import annotations

from tests.helpers.triton_interpreter import quick_interpreter, small_chunks

__all__ = ["quick_interpreter", "small_chunks"]
