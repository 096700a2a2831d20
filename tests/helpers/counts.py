"""Counts of an attack: its attempts by outcome, and a line for each failure."""

from __future__ import annotations

import sys
from collections import Counter

OFTEN = 100  # attempts between progress lines


class Counts(Counter[str]):
    """A counter of attempts by outcome. ``failures`` holds a line for each failed attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []

    def add(self, outcome: str) -> None:
        self[outcome] += 1
        if self.total() % OFTEN == 0:
            sys.stderr.write(f"so far: {self.summary()}\n")

    def fail(self, line: str) -> None:
        self.failures.append(line)
        sys.stderr.write(f"FAILURE {line}\n")

    def join(self, other: Counts) -> None:
        self.update(other)
        self.failures += other.failures
        sys.stderr.write(f"so far: {self.summary()}\n")

    def summary(self) -> str:
        """Return one line with the attempts, the failures and the other outcomes."""
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.items()))
        return f"{self.total():,} attempts, {len(self.failures):,} failures ({outcomes})"
