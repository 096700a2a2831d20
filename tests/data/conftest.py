"""Fixtures of the data loaders: an empty cache, a local web server and rows with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.helpers.web_site import cache, site

from .numbered_rows import numbered

__all__ = ["cache", "site"]


@pytest.fixture
def table() -> np.ndarray[Any, Any]:
    return numbered()
