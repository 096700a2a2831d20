"""Summary of all rows from one pass: checks of finiteness, the mean weight, and a digest of the content."""

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

MOST_NAMED = 5  # bad rows, and columns of a bad row, that a message names


@dataclass(frozen=True)
class Summary:
    """Summary of the rows that training needs before the first step.

    Attributes:
        shape: shape of one row of x.
        context_features: C, the number of context columns; 0 without context.
        mean_weight: mean of the row weights; 1 without weights.
        dtype: the stored dtype of x.
        digest: digest of all values.
    """

    shape: tuple[int, ...]
    context_features: int
    mean_weight: float
    dtype: torch.dtype
    digest: str


def summarise(batches: Iterable[Batch], names: Sequence[str] | None = None) -> Summary:
    """Return the summary of all rows.

    Raises ValueError if some rows have NaN or infinite values, with the numbers of rows and columns; if there are no
    rows; and if weights are negative, not finite, or all 0.
    """
    bad: list[str] = []
    num_bad = rows = 0
    weight = 0.0
    shape: tuple[int, ...] = ()
    context_features, dtype = 0, torch.get_default_dtype()
    content = ContentDigest()
    for batch in batches:
        content.see(batch)
        x = batch.x.flatten(1)
        context = None if batch.context is None else batch.context.flatten(1)
        for label, part in (("column", x), ("context column", context)):
            if part is not None and not bool(part.isfinite().all()):
                num_bad += int((~part.isfinite()).any(1).sum())
                bad += _bad_rows(part, rows, label, names if label == "column" else None, MOST_NAMED - len(bad))
        w = torch.ones(len(x)) if batch.weights is None else batch.weights
        if len(wrong := (~(w.isfinite() & (w >= 0))).nonzero()):
            row = int(wrong[0])
            raise ValueError(f"weights must be finite and 0 or more; row {rows + row} has {float(w[row])}")
        if rows == 0:
            shape, dtype = tuple(batch.x.shape[1:]), batch.x.dtype
            context_features = 0 if batch.context is None else batch.context.shape[1]
        rows += len(x)
        weight += float(w.double().sum())
    if num_bad:
        more = f", and {num_bad - len(bad)} more" if num_bad > len(bad) else ""
        raise ValueError(
            f"{num_bad} of {rows} rows have NaN or infinite values: {'; '.join(bad)}{more}. Remove or fill them first."
        )
    if rows == 0:
        raise ValueError("there are no rows; give at least one")
    if weight == 0:
        raise ValueError("the weights of all rows are 0, so there is nothing to fit; give some rows a positive weight")
    return Summary(shape, context_features, weight / rows, dtype, content.result())


class ContentDigest:
    """Digest of x, context and weights that does not depend on the batch size.

    >>> whole, cut = ContentDigest(), ContentDigest()
    >>> whole.see([torch.arange(6).reshape(3, 2)])
    >>> for part in torch.arange(6).reshape(3, 2).split(2):
    ...     cut.see([part])
    >>> whole.result() == cut.result()
    True
    """

    def __init__(self) -> None:
        # One entry for each part, by its index: 0 for x, 1 for context, 2 for weights.
        self.rows: Counter[int] = Counter()
        self.kinds: dict[int, str] = {}  # dtype and shape of a row
        self.hashes: dict[int, Any] = {}

    def see(self, parts: Iterable[Tensor | None]) -> None:
        """Add the next rows. Every call must have the same parts."""
        for place, part in enumerate(parts):
            if part is not None:
                self.rows[place] += len(part)
                self.kinds.setdefault(place, f"{part.dtype} {tuple(part.shape[1:])}")
                # Viewed as bytes, because NumPy has no bfloat16.
                values = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
                self.hashes.setdefault(place, hashlib.sha256()).update(values)

    def result(self) -> str:
        """Return the digest of all rows so far."""
        total = hashlib.sha256()
        for place, values in sorted(self.hashes.items()):
            total.update(f"{place} {self.rows[place]} {self.kinds[place]} {values.hexdigest()} ".encode())
        return total.hexdigest()[:32]


def _bad_rows(part: Tensor, first_row: int, label: str, names: Sequence[str] | None, most: int) -> list[str]:
    """Return a phrase with row and columns for each of the first ``most`` rows that are not finite."""
    bad = ~part.isfinite()
    phrases = []
    for row in bad.any(1).nonzero().flatten()[:most].tolist():
        columns = bad[row].nonzero().flatten().tolist()
        listed = ", ".join(repr(names[c]) if names else str(c) for c in columns[:MOST_NAMED])
        more = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
        phrases.append(f"row {first_row + row} ({label}{'s' if len(columns) > 1 else ''} {listed}{more})")
    return phrases
