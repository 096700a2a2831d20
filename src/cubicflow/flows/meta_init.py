"""The default device and dtype of new tensors, for one thread only. Torch's own defaults hold for the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Functions that make tensors. Those in FLOATING use the default dtype. Those in ANY infer the dtype from their
# arguments.
FLOATING = frozenset({torch.empty, torch.zeros, torch.ones, torch.eye, torch.linspace, torch.logspace, torch.rand,
                      torch.randn, torch.empty_strided, torch.hann_window})  # fmt: skip
DRAWING = frozenset({torch.rand, torch.randn})
ANY = frozenset({torch.tensor, torch.as_tensor, torch.full, torch.arange, torch.range, torch.randint, torch.randperm,
                 torch.scalar_tensor, torch.tril_indices, torch.triu_indices})  # fmt: skip

MAKING = FLOATING | ANY
FILLING = frozenset({Tensor.uniform_, Tensor.normal_, Tensor.zero_, Tensor.fill_, nn.init.uniform_, nn.init.normal_,
                     nn.init.kaiming_uniform_})  # fmt: skip
SCALING = frozenset(
    {Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__, Tensor.mul, Tensor.div, Tensor.div_, Tensor.sqrt}
)


class default_tensor_type(TorchFunctionMode):  # noqa: N801 - used like a function
    """A context in which new tensors are on this device by default, and new floating-point tensors have this dtype.
    Integer tensors can have another device: on the meta device they would lose their values.

    >>> with default_tensor_type(torch.float64, torch.device("meta"), whole_numbers="cpu"):
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
        filled = args[0] if args else (kwargs or {}).get("tensor")  # torch.nn.init passes the tensor by name
        if func in FILLING and isinstance(filled, Tensor) and filled.device.type == "meta":
            return filled  # a meta tensor has no values to write
        if func in SCALING and any(isinstance(arg, Tensor) and arg.device.type == "meta" for arg in args):
            # A meta tensor has no values to compute. Without this shortcut torch would import its compiler, which takes
            # seconds. Shapes are broadcast by NumPy, because torch.broadcast_shapes imports sympy.
            shapes = [arg.shape if isinstance(arg, Tensor) else () for arg in args]
            return torch.empty(np.broadcast_shapes(*shapes), dtype=self.dtype, device="meta")
        if func not in MAKING:  # the common case
            return func(*args, **kwargs) if kwargs else func(*args)
        given = dict(kwargs or {})
        has_dtype = given.get("dtype") is not None or isinstance(args[0] if args else None, Tensor)
        if func in FLOATING and not has_dtype:
            given["dtype"] = self.dtype
        device = given.get("device") or self.device
        if given.get("device") is None:
            given["device"] = self.device if func in FLOATING else self.whole_numbers
        if func in DRAWING and torch.device(given["device"]).type == "meta":
            # A meta tensor has no values to draw.
            func, given = torch.empty, {name: value for name, value in given.items() if name != "generator"}
        made = func(*args, **given)
        if func in FLOATING or not made.is_floating_point():
            return made
        if has_dtype:
            return made.to(device)
        return func(*args, **{**given, "dtype": self.dtype, "device": device})
