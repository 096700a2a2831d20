"""The integrand: a user's function, called on batches. Every returned value is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cubicflow.arguments import whole_number

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
        self.function, self.arrays = function, arrays
        self.batch_size = whole_number("batch_size", batch_size, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Return f at points x: (N, D) -> (N,) in float64. Raises IntegrandError for values that are not finite."""
        try:
            with torch.no_grad():
                values = _as_tensor(self.function(x.numpy() if self.arrays == "numpy" else x), len(x))
        except IntegrandError:
            raise
        except Exception as error:
            raise IntegrandError(self._raised(error, x)) from error
        if not bool(values.isfinite().all()):
            bad = int((~values.isfinite()).sum())
            where = int((~values.isfinite()).nonzero()[0])
            raise IntegrandError(
                f"f returned {_name(values[where])} at {bad} of {len(x)} points, first at "
                f"{[round(v, 6) for v in x[where].tolist()]}; return 0 where f is not defined, or narrow the bounds"
            )
        return values

    def _raised(self, error: Exception, x: Tensor) -> str:
        text = f"f raised {type(error).__name__}: {' '.join(str(error).split())}"
        if not isinstance(error, (TypeError, AttributeError)):
            return text
        if self.arrays == "numpy":
            return f"{text}; f gets a NumPy array of shape {tuple(x.shape)}; arrays='torch' gives a tensor"
        return f"{text}; f gets a tensor of shape {tuple(x.shape)}; arrays='numpy' gives a NumPy array"


def _as_tensor(answer: Any, rows: int) -> Tensor:
    if isinstance(answer, Tensor):
        values = answer.detach().cpu()
    else:
        array = np.asarray(answer)
        if array.dtype == object or array.dtype.kind not in "fiubc":
            raise IntegrandError(f"f must return numbers, got {type(answer).__name__} of dtype {array.dtype}")
        # torch has no long double.
        values = torch.from_numpy(array.astype(np.float64) if array.dtype.kind == "f" else array.copy())
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
