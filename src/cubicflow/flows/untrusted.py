"""What a saved flow may ask for, and hold: sizes before memory, values before use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.flows.descriptions import OWN, TABLE_MODELS, parts_of

# Sizes are counts of numbers in some tensor. What has none, such as a base, may be as large as the rows of any table.
FREE_SIZE = 1 << 20
LARGEST_SHOWN = 10**30
PARTS_PER_TENSOR, FREE_PARTS = 4, 64  # layers without tensors stand beside those that have some


def why_too_large(description: Any, shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str | None:
    """Why a description cannot be that of tensors of these shapes, before anything is built from it, or None.

    >>> why_too_large({"type": "NormalMixture", "features": 2, "components": 10**8}, {"means": ((5, 2), torch.float32)})
    'it asks for components of 100000000, and the weights hold 10 numbers'
    """
    elements = sum(math.prod(shape) for shape, _ in shapes.values())
    for parts, part in enumerate(parts_of(description)):
        kind, columns, blocks = (part.get(key) for key in ("type", "outcomes", "num_blocks"))
        is_ours, is_table = (isinstance(kind, str) and kind in known for known in (OWN, TABLE_MODELS))
        if parts > PARTS_PER_TENSOR * len(shapes) + FREE_PARTS:
            return f"it describes more layers than the {len(shapes)} tensors of the weights can be of"
        # The count of repeated parts is the one number that costs time even where a shape costs no memory. The blocks
        # of a model of columns can be parts of one tensor.
        if isinstance(blocks, int) and blocks > (elements if is_table and part.get("core") == "mlp" else len(shapes)):
            return "it describes more layers than the weights hold"
        # Every column of a table has a head, with tensors of its own.
        if is_table and isinstance(columns, list) and len(columns) > len(shapes):
            return (
                f"it describes {len(columns):,} columns, more than the {len(shapes)} tensors of the weights can be of"
            )
        # What a number means to a class of the user's own is not known here.
        for name, value in part.items() if is_ours else ():
            largest = max(_whole_numbers(value), default=0)
            if name != "seed" and largest > max(elements, FREE_SIZE):
                return f"it asks for {name} of {_short(largest)}, and the weights hold {elements} numbers"
    return None


def _whole_numbers(value: Any) -> Iterator[int]:
    """Those of an argument; a list of modules has its own."""
    values = value if isinstance(value, list) else [value]
    return (one for one in values if isinstance(one, int))


def _short(number: int) -> str:
    """Python does not write whole numbers of thousands of digits."""
    return str(number) if number < LARGEST_SHOWN else "more than anything has"


def why_unusable(flow: nn.Module, tensors: Mapping[str, Tensor]) -> str | None:
    """Why tensors of the right shapes cannot be those of a flow that was built without them, or None.

    Floats are finite. Whole numbers say which column goes where: they are those of the description, or, where it leaves
    them open and they are still on the meta device, a permutation.
    """
    for name, found in tensors.items():
        if found.is_floating_point():
            # A sum, which is quick, is not finite if any number is not; nor is that of numbers that are very large.
            if not math.isfinite(found.sum()) and not torch.isfinite(found).all():
                return f"{name} holds numbers that are not finite; the run cannot be used, fit it again"
        elif found.dtype == torch.int64 and found.ndim:  # a single one is a count, as of a batch norm's batches
            expected = flow.get_buffer(name)
            if expected.device.type == "meta" and not _is_permutation(found.cpu()):
                return f"{name} is not a permutation"
            if expected.device.type != "meta" and not torch.equal(found.cpu(), expected):
                return f"{name} is not what the description of the flow says"
    return None


def _is_permutation(values: Tensor) -> bool:
    return values.ndim == 1 and torch.equal(values.sort().values, torch.arange(len(values)))


def is_usable(saved: Tensor, here: Sequence[Tensor]) -> bool:
    """Whether a saved tensor can take the place of those that are here. Floats are finite. Whole numbers say which
    column goes where: they are the same ones in some order, unless a single one counts something."""
    if saved.is_floating_point():
        return bool(torch.isfinite(saved).all())
    if saved.dtype != torch.int64 or not saved.ndim:
        return True
    return torch.equal(saved.flatten().sort().values.cpu(), here[0].flatten().sort().values.cpu())
