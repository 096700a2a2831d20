"""What a model of a table gives: numbers, or a refusal. Finite weights that are far too large can give others."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.table_error import TableError


def checked_scores(scores: Floats) -> Floats:
    """Log likelihoods (N,) as they are. The probability of a row may be 0, and its log -inf; NaN and inf are refused.

    >>> checked_scores(np.array([-1.0, -np.inf])).tolist()
    [-1.0, -inf]
    """
    if bad := int((np.isnan(scores) | np.isposinf(scores)).sum()):
        raise TableError(
            f"the log likelihood of {bad:,} of {len(scores):,} rows is not a number: either values far beyond the "
            "fitted ones, or weights that are too large to be used"
        )
    return scores


def check_drawn(*drawn: Tensor) -> None:
    """Refuse what was drawn, or is drawn from, unless it is finite.

    >>> check_drawn(torch.tensor([0.5, torch.nan]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cubicflow.tables.table_error.TableError: the samples of this run are not finite: ...
    """
    if not all(bool(torch.isfinite(numbers).all()) for numbers in drawn):
        raise TableError("the samples of this run are not finite: its weights are too large to be used; fit it again")
