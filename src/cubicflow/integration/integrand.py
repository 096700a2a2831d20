"""The integrand: a user's function, called on batches. Every returned value is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Function = Callable[[Any], Any]  # (N, D) -> (N,)
ARRAYS = ("numpy", "torch")


class IntegrandError(ValueError):
    """An error raised if f raises an exception, or returns something other than finite real numbers, one per point.

    Attributes:
        integrator: the integrator, with the evaluations made before the error. ``error.integrator.run(f=repaired)``
            continues the run.

    >>> IntegrandError("f returned NaN").integrator is None
    True
    """

    def __init__(self, message: str, integrator: Any = None) -> None:
        super().__init__(message)
        self.integrator = integrator


class Integrand:
    """A user's function with its array type and its batch size.

    Args:
        function: takes points (N, D), returns N real numbers of any sign.
        arrays: ``"numpy"`` or ``"torch"``, the type of the points given to the function. It may return either type.
        batch_size: the largest number of points in one call.

    >>> Integrand(lambda x: x.sum(1), "numpy", 1000)(torch.ones(3, 2, dtype=torch.float64))
    tensor([2., 2., 2.], dtype=torch.float64)
    """

    def __init__(self, function: Function, arrays: str, batch_size: int) -> None:
        if not callable(function):
            raise TypeError(f"f must be a function of points (N, D), got {type(function).__name__}")
        if arrays not in ARRAYS:
            raise ValueError(f"arrays must be 'numpy' or 'torch', got {arrays!r}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.function, self.arrays, self.batch_size = function, arrays, batch_size

    def __call__(self, x: Tensor) -> Tensor:
        """Return f at points x: (N, D) -> (N,) in float64. Raises IntegrandError for values that are not finite."""
        with torch.no_grad():
            answer = self.function(x.numpy() if self.arrays == "numpy" else x)
        values = _as_tensor(answer, len(x))
        if not bool(values.isfinite().all()):
            bad = int((~values.isfinite()).sum())
            where = int((~values.isfinite()).nonzero()[0])
            raise IntegrandError(
                f"f returned {_name(values[where])} at {bad} of {len(x)} points, first at "
                f"{[round(v, 6) for v in x[where].tolist()]}; return 0 where f is not defined, or narrow the bounds"
            )
        return values


def _as_tensor(answer: Any, rows: int) -> Tensor:
    if isinstance(answer, Tensor):
        values = answer.detach().cpu()
    else:
        array = np.asarray(answer)
        if array.dtype == object or array.dtype.kind not in "fiubc":
            raise IntegrandError(f"f must return numbers, got {type(answer).__name__} of dtype {array.dtype}")
        values = torch.from_numpy(array.copy())
    if values.is_complex():
        raise IntegrandError(
            f"f returned complex numbers ({values.dtype}); integrate its real and imaginary parts separately"
        )
    if values.shape == (rows, 1):
        values = values[:, 0]
    if values.shape != (rows,):
        raise IntegrandError(
            f"f must return one value for each of the {rows} points it is given, shape ({rows},), got shape "
            f"{tuple(values.shape)}"
        )
    return values.double()


def _name(value: Tensor) -> str:
    return "NaN" if bool(value.isnan()) else "inf" if float(value) > 0 else "-inf"
