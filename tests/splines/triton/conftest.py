"""Common fixtures of the Triton tests: the device, the families, inputs and comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.helpers.triton_interpreter import patch_once_a_launch, skip_overflow_checks

from cubicflow.splines.backends import triton as backend

from .calls import FAMILIES, SMALL_CHUNKS


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def device(request) -> str:
    device = request.config.getoption("--device")
    if device == "cpu" and not backend._interpreted():
        pytest.skip("Triton was imported without TRITON_INTERPRET=1, which tests/conftest.py sets")
    return device


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if backend._interpreted():
            patch_once_a_launch(patch)
            skip_overflow_checks(patch)
        yield


@pytest.fixture
def small_chunks(monkeypatch) -> None:
    """In the interpreter, read more than ten bins in chunks of four bins. The time of a call is proportional to the
    number of bins in all chunks.
    """
    from cubicflow.splines.backends.triton import launch

    if launch.INTERPRETED:
        for function in (launch.forward, launch.backward):
            monkeypatch.setattr(function, "__defaults__", (launch.DEFAULT._replace(**SMALL_CHUNKS),))
