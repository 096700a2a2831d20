"""Fixtures of the data loaders: rows with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .numbered_rows import numbered


@pytest.fixture
def table() -> np.ndarray[Any, Any]:
    return numbered()
