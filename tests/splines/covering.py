"""Few settings of several options that contain every pair of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any


def covering_pairs(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return settings such that each pair of values of two different options is in at least one setting.

    A fault that one value or two values together cause is found as in the full product. 60 settings become about 15.
    """

    def pairs(setting: Iterable[Any]) -> set[Any]:
        return set(combinations(enumerate(setting), 2))

    settings = list(product(*options))
    missing = {pair for setting in settings for pair in pairs(setting)}
    chosen = []
    while missing:
        chosen.append(max(settings, key=lambda setting: len(pairs(setting) & missing)))
        missing -= pairs(chosen[-1])
    return chosen
