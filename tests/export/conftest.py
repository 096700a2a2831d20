"""Small, briefly trained flows, and runtimes for exported files."""

from __future__ import annotations

import pytest

import cubicflow as cf

from .runtimes import trained_flow


@pytest.fixture(scope="session")
def conditional_flow() -> cf.Flow:
    return trained_flow(2)
