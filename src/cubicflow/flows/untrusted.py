"""Checks of a saved flow from an untrusted source: its sizes before memory is used, its values before they are used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.flows.descriptions import BUILT_IN, TABLE_MODELS, parts_of

# A size in a description is bounded by the count of numbers in the tensors. Modules without tensors, such as a base,
# may have sizes up to SIZE_ALLOWANCE.
SIZE_ALLOWANCE = 1 << 20
LARGEST_SHOWN = 10**30  # larger numbers are not written out in messages
PARTS_PER_TENSOR, PARTS_ALLOWANCE = 4, 64  # modules per tensor and on top; some modules have no tensors


def why_too_large(description: Any, shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str | None:
    """Return why a description is too large for tensors of these shapes, or None. Nothing is built for this check.

    >>> why_too_large({"type": "NormalMixture", "features": 2, "components": 10**8}, {"means": ((5, 2), torch.float32)})
    'the flow has components=100000000, but the weights hold only 10 numbers'
    """
    elements = sum(math.prod(shape) for shape, _ in shapes.values())
    for parts, part in enumerate(parts_of(description)):
        kind, columns, blocks = (part.get(key) for key in ("type", "outcomes", "num_blocks"))
        is_built_in, is_table = (isinstance(kind, str) and kind in known for known in (BUILT_IN, TABLE_MODELS))
        if parts > PARTS_PER_TENSOR * len(shapes) + PARTS_ALLOWANCE:
            return f"the flow has more layers than the {len(shapes)} tensors of the weights allow"
        # The number of blocks costs time even on the meta device. In a model of columns with core "mlp" all blocks can
        # be slices of one tensor, so the number of elements is the bound.
        if isinstance(blocks, int) and blocks > (elements if is_table and part.get("core") == "mlp" else len(shapes)):
            return "the flow has more layers than the weights hold"
        # Every column of a table has a head, and every head has its own tensors.
        if is_table and isinstance(columns, list) and len(columns) > len(shapes):
            return f"the model has {len(columns):,} columns, but the weights hold only {len(shapes)} tensors"
        # The meaning of numbers in a registered class is unknown, so only built-in classes are checked.
        for name, value in part.items() if is_built_in else ():
            largest = max(_whole_numbers(value), default=0)
            if name != "seed" and largest > max(elements, SIZE_ALLOWANCE):
                return f"the flow has {name}={_short(largest)}, but the weights hold only {elements} numbers"
    return None


def _whole_numbers(value: Any) -> Iterator[int]:
    """Yield the integers of one argument. Integers inside nested modules are checked with those modules."""
    values = value if isinstance(value, list) else [value]
    return (one for one in values if isinstance(one, int))


def _short(number: int) -> str:
    """Return the number as text. Python refuses to write integers with thousands of digits."""
    return str(number) if number < LARGEST_SHOWN else "10^30 or more"


def why_unusable(flow: nn.Module, tensors: Mapping[str, Tensor], *, registered: bool = False) -> str | None:
    """Return why tensors of the right shapes cannot belong to a flow, or None.

    Floats must be finite. Integers are indices of columns. Indices must equal the flow's own values. If the description
    does not determine these values, they are on the meta device, and the indices must be a permutation. A flow with
    ``registered`` classes is on the CPU. A constant in it, such as a mask, may be infinite where the constructor makes
    the same number, and the meaning of its integers is not known.
    """
    state = flow.state_dict()
    for name, found in tensors.items():
        expected = state[name]
        if found.is_floating_point():
            # The sum is a quick test: it is not finite if any number is not. Very large finite numbers can also make it
            # infinite, so isfinite decides.
            if not math.isfinite(found.sum()):
                fine = found.isfinite() | (found == expected) if registered else found.isfinite()
                if not bool(fine.all()):
                    return f"{name} holds numbers that are not finite; the run cannot be used, so fit again"
        elif found.dtype == torch.int64 and found.ndim and not registered:  # a scalar is a counter, as in a batch norm
            if expected.is_meta and not _is_permutation(found.cpu()):
                return f"{name} is not a permutation"
            if not expected.is_meta and not torch.equal(found.cpu(), expected):
                return f"{name} does not match the description of the flow"
    return None


def _is_permutation(values: Tensor) -> bool:
    return values.ndim == 1 and torch.equal(values.sort().values, torch.arange(len(values)))


def is_usable(saved: Tensor, here: Sequence[Tensor]) -> bool:
    """Return whether a saved tensor can replace the tensors ``here``. Floats must be finite. Integers are indices of
    columns and must be the same numbers in any order. An integer scalar is a counter and may have any value."""
    if saved.is_floating_point():
        return bool(torch.isfinite(saved).all())
    if saved.dtype != torch.int64 or not saved.ndim:
        return True
    return torch.equal(saved.flatten().sort().values.cpu(), here[0].flatten().sort().values.cpu())
