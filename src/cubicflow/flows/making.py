"""Where tensors are made, and in which dtype, for one thread alone: torch's defaults are those of the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# Functions that make tensors: of the default dtype, and of the dtype of what they are given.
FLOATING = frozenset({torch.empty, torch.zeros, torch.ones, torch.eye, torch.linspace, torch.logspace, torch.rand,
                      torch.randn, torch.empty_strided, torch.hann_window})  # fmt: skip
ANY = frozenset({torch.tensor, torch.as_tensor, torch.full, torch.arange, torch.range, torch.randint, torch.randperm,
                 torch.scalar_tensor, torch.tril_indices, torch.triu_indices})  # fmt: skip


class making(TorchFunctionMode):  # noqa: N801 - used like a function
    """Inside, new tensors that are not told otherwise are on this device, and in this dtype if they are floats.

    >>> with making(torch.float64, torch.device("meta")):
    ...     x, number = torch.nn.Linear(1, 2).weight, torch.tensor(3)
    >>> x.dtype, x.device.type, number.dtype
    (torch.float64, 'meta', torch.int64)
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.dtype, self.device = dtype, device

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func not in FLOATING and func not in ANY:
            return func(*args, **given)
        if given.get("device") is None:
            given["device"] = self.device
        told = given.get("dtype") is not None or isinstance(args[0] if args else None, Tensor)
        if func in FLOATING and not told:
            given["dtype"] = self.dtype
        made = func(*args, **given)
        by_default = made.dtype == torch.get_default_dtype() != self.dtype and not told
        return func(*args, **{**given, "dtype": self.dtype}) if func in ANY and by_default else made
