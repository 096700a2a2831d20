"""One pass over all rows: is everything finite, what are the scales, and which rows are they."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cubicflow.data.rows import Batch

NAMED = 5  # bad rows that a message names


@dataclass(frozen=True)
class Summary:
    """What training needs to know of the rows before it begins.

    Attributes:
        shape: of one row of x.
        context_features: C, or 0.
        mean, std: of each value of x, flattened, weighted, in float64; a constant value has std 0.
        mean_weight: the mean of the rows' weights, 1 where there are none.
        dtype: of x as it is stored.
        digest: of every value, so that other rows have another.
    """

    shape: tuple[int, ...]
    context_features: int
    mean: Tensor
    std: Tensor
    mean_weight: float
    dtype: torch.dtype
    digest: str


class NonFiniteRowsError(ValueError):
    """Some rows hold NaN or infinite values; the message names rows and columns."""


def summarise(batches: Iterable[Batch], names: Sequence[str] | None = None) -> Summary:
    """Refuse rows that are not finite and weights that are negative; return the scales of the rest.

    Means and squares are merged batch by batch (Chan, Golub and LeVeque), so a large offset costs no precision.
    """
    bad: list[str] = []
    num_bad = rows = 0
    weight = 0.0
    mean = squares = torch.zeros(0, dtype=torch.float64)
    shape: tuple[int, ...] = ()
    context_features, dtype = 0, torch.get_default_dtype()
    content = ContentDigest()
    for batch in batches:
        content.see(batch)
        x = batch.x.flatten(1)
        for label, part in (("column", x), ("context column", batch.context)):
            if part is not None and not bool(part.isfinite().all()):
                num_bad += int((~part.isfinite()).any(1).sum())
                bad += _bad_rows(part, rows, label, names if label == "column" else None, NAMED - len(bad))
        w = (x.new_ones(len(x)) if batch.weights is None else batch.weights).double()
        if not bool((w.isfinite() & (w >= 0)).all()):
            row = int((~(w.isfinite() & (w >= 0))).nonzero()[0])
            raise ValueError(f"weights must be finite and 0 or more; row {rows + row} has {float(w[row])}")
        if rows == 0:
            shape, dtype = tuple(batch.x.shape[1:]), batch.x.dtype
            context_features = 0 if batch.context is None else batch.context.shape[1]
            mean = squares = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        rows += len(x)
        total = float(w.sum())
        if total > 0 and not num_bad:
            values = x.double()
            batch_mean = (w[:, None] * values).sum(0) / total
            step = batch_mean - mean
            squares = squares + (w[:, None] * (values - batch_mean).square()).sum(0)
            squares = squares + step.square() * (weight * total / (weight + total))
            mean = mean + step * (total / (weight + total))
            weight += total
    if num_bad:
        more = f", and {num_bad - len(bad)} more" if num_bad > len(bad) else ""
        raise NonFiniteRowsError(
            f"{num_bad} of {rows} rows hold NaN or infinite values: {'; '.join(bad)}{more}. Remove or fill them first."
        )
    if rows == 0:
        raise ValueError("there are no rows")
    if weight == 0:
        raise ValueError("the weights of all rows are 0, so there is nothing to fit")
    std = (squares / weight).sqrt()
    return Summary(shape, context_features, mean.cpu(), std.cpu(), weight / rows, dtype, content.result())


class ContentDigest:
    """A digest of x, context and weights that does not depend on how the rows were cut into batches.

    >>> whole, cut = ContentDigest(), ContentDigest()
    >>> whole.see([torch.arange(6).reshape(3, 2)])
    >>> for part in torch.arange(6).reshape(3, 2).split(2):
    ...     cut.see([part])
    >>> whole.result() == cut.result()
    True
    """

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()  # of each part, as are the two below
        self.kinds: dict[int, str] = {}
        self.hashes: dict[int, Any] = {}

    def see(self, parts: Iterable[Tensor | None]) -> None:
        """The next rows: the same parts at every call."""
        for place, part in enumerate(parts):
            if part is not None:
                self.rows[place] += len(part)
                self.kinds.setdefault(place, f"{part.dtype} {tuple(part.shape[1:])}")
                # As bytes, because NumPy has no bfloat16.
                values = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
                self.hashes.setdefault(place, hashlib.sha256()).update(values)

    def result(self) -> str:
        """The digest of all rows seen."""
        total = hashlib.sha256()
        for place, values in sorted(self.hashes.items()):
            total.update(f"{place} {self.rows[place]} {self.kinds[place]} {values.hexdigest()} ".encode())
        return total.hexdigest()[:32]


def _bad_rows(part: Tensor, first_row: int, label: str, names: Sequence[str] | None, most: int) -> list[str]:
    """A phrase for each of the first rows that are not finite: which row, which columns."""
    bad = ~part.isfinite()
    phrases = []
    for row in bad.any(1).nonzero().flatten()[:most].tolist():
        columns = bad[row].nonzero().flatten().tolist()
        listed = ", ".join(repr(names[c]) if names else str(c) for c in columns[:NAMED])
        more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
        phrases.append(f"row {first_row + row} ({label}{'s' if len(columns) > 1 else ''} {listed}{more})")
    return phrases
