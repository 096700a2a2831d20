"""Where tensors are made, and in which dtype, for one thread alone: torch's defaults are those of the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Functions that make tensors: of the default dtype, and of the dtype of what they are given.
FLOATING = frozenset({torch.empty, torch.zeros, torch.ones, torch.eye, torch.linspace, torch.logspace, torch.rand,
                      torch.randn, torch.empty_strided, torch.hann_window})  # fmt: skip
DRAWING = frozenset({torch.rand, torch.randn})
ANY = frozenset({torch.tensor, torch.as_tensor, torch.full, torch.arange, torch.range, torch.randint, torch.randperm,
                 torch.scalar_tensor, torch.tril_indices, torch.triu_indices})  # fmt: skip

MAKING = FLOATING | ANY
FILLING = frozenset({Tensor.uniform_, Tensor.normal_, Tensor.zero_, Tensor.fill_, nn.init.uniform_, nn.init.normal_,
                     nn.init.kaiming_uniform_})  # fmt: skip
SCALING = frozenset({Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__, Tensor.mul, Tensor.div, Tensor.sqrt})


class making(TorchFunctionMode):  # noqa: N801 - used like a function
    """Inside, new tensors that are not told otherwise are on this device, and floats are in this dtype. Whole numbers
    can have another device, where they have values.

    >>> with making(torch.float64, torch.device("meta"), whole_numbers="cpu"):
    ...     x, number = torch.nn.Linear(1, 2).weight, torch.tensor(3)
    >>> x.dtype, x.device.type, number
    (torch.float64, 'meta', tensor(3))
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, *, whole_numbers: str | None = None) -> None:
        super().__init__()
        self.dtype, self.device = dtype, device
        self.whole_numbers = device if whole_numbers is None else torch.device(whole_numbers)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        filled = args[0] if args else (kwargs or {}).get("tensor")  # which torch.nn.init passes by name
        if func in FILLING and isinstance(filled, Tensor) and filled.device.type == "meta":
            return filled  # there are no values to write
        if func in SCALING and any(isinstance(arg, Tensor) and arg.device.type == "meta" for arg in args):
            # Nor any to compute, and for that torch would import its compiler, which takes seconds.
            shapes = [arg.shape if isinstance(arg, Tensor) else () for arg in args]
            # by NumPy: torch.broadcast_shapes imports sympy
            return torch.empty(np.broadcast_shapes(*shapes), dtype=self.dtype, device="meta")
        if func not in MAKING:  # most calls
            return func(*args, **kwargs) if kwargs else func(*args)
        given = dict(kwargs or {})
        told = given.get("dtype") is not None or isinstance(args[0] if args else None, Tensor)
        if func in FLOATING and not told:
            given["dtype"] = self.dtype
        if given.get("device") is None:
            given["device"] = self.device if func in FLOATING else self.whole_numbers
        if func in DRAWING and torch.device(given["device"]).type == "meta":
            # The same of values to draw.
            func, given = torch.empty, {name: value for name, value in given.items() if name != "generator"}
        made = func(*args, **given)
        if func in FLOATING or not made.is_floating_point():
            return made
        return made.to(self.device) if told else func(*args, **{**given, "dtype": self.dtype, "device": self.device})
