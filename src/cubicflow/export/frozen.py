"""A copy of a model for export: of one precision, on the CPU, in evaluation mode, with LU factors multiplied out.

An exported graph is never trained. So values that depend only on parameters are computed once, here. This also keeps
triangular solves out of the graph; ONNX has no operator for them.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

from cubicflow.distributions import Base
from cubicflow.transforms import Transform

Model = TypeVar("Model", bound=nn.Module)


@torch.no_grad()
def frozen(model: Model, dtype: torch.dtype = torch.float32) -> Model:
    """Return a copy of a model for export. The given model does not change.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, num_layers=2, hidden_features=8).double()
    >>> copy = frozen(flow)
    >>> [type(part).__name__ for part in copy.transform.transforms][0], copy.base.anchor.dtype
    ('FixedLinear', torch.float32)
    """
    copy = deepcopy(model).to("cpu", dtype).eval().requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Transform | Base):
                setattr(module, name, child.fixed())
    return copy


def sizes_of(model: nn.Module) -> set[int]:
    """Return the axis sizes and the element counts of all tensors in a model."""
    state = model.state_dict().values()
    return {size for value in state for size in (*value.shape, math.prod(value.shape))}
