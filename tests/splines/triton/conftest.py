"""Common fixtures of the Triton tests: the device, the families, inputs and comparisons."""

from __future__ import annotations

import pytest
from tests.helpers.triton_interpreter import quick_interpreter, small_chunks

from cubicflow.splines.backends import triton as backend

from .calls import FAMILIES

__all__ = ["quick_interpreter", "small_chunks"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def device(request) -> str:
    device = request.config.getoption("--device")
    if device == "cpu" and not backend._interpreted():
        pytest.skip("Triton was imported without TRITON_INTERPRET=1, which tests/conftest.py sets")
    return device
