"""Small, briefly trained flows, and runtimes for exported files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cubicflow as cf

from .runtimes import trained_flow


@pytest.fixture(scope="session", autouse=True)
def _no_source_lines() -> Iterator[None]:
    """Trace without the source lines of every operator, which take half of the time of an export."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.fx.config.do_not_emit_stack_traces", True, raising=False)
        yield


@pytest.fixture(scope="session")
def conditional_flow() -> cf.Flow:
    return trained_flow(2)
