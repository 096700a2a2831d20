"""Checks that scores and samples are finite. Finite weights that are far too large can give NaN and inf."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.table_error import TableError


def checked_scores(scores: Floats) -> Floats:
    """Return log likelihoods (N,) unchanged. Raises TableError for NaN and inf; -inf is allowed, for a row of
    probability 0.

    >>> checked_scores(np.array([-1.0, -np.inf])).tolist()
    [-1.0, -inf]
    """
    if bad := int((np.isnan(scores) | np.isposinf(scores)).sum()):
        raise TableError(
            f"the log likelihood of {bad:,} of {len(scores):,} rows is not a number: the rows hold values far beyond "
            "the fitted values, or the weights of the model are too large; remove such rows, or fit again"
        )
    return scores


def check_drawn(*drawn: Tensor) -> None:
    """Raise TableError unless all numbers are finite.

    >>> check_drawn(torch.tensor([0.5, torch.nan]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cubicflow.tables.table_error.TableError: the samples of this run are not finite: ...
    """
    if not all(bool(torch.isfinite(numbers).all()) for numbers in drawn):
        raise TableError("the samples of this run are not finite: its weights are too large; fit the model again")
