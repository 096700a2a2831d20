"""Which device the tests of kernels run on."""

from __future__ import annotations

import os
import sys

import pytest

# Triton reads this when it is imported, which any test may do. Workers of xdist have what the first process set.
if "PYTEST_XDIST_WORKER" not in os.environ and not any("cuda" in argument for argument in sys.argv):
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where GPU kernels are tested: cpu runs them in Triton's interpreter",
    )
