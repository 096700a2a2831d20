"""What an attack counts: its attempts by their outcome, and its failures in words."""

from __future__ import annotations

import sys
from collections import Counter

OFTEN = 100  # attempts between lines that say how far an attack is


class Counts(Counter[str]):
    """Attempts by outcome. ``failures`` has a line for each that must not be."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []

    def add(self, outcome: str) -> None:
        self[outcome] += 1
        if self.total() % OFTEN == 0:
            sys.stderr.write(f"so far: {self.said()}\n")

    def fail(self, line: str) -> None:
        self.failures.append(line)
        sys.stderr.write(f"FAILURE {line}\n")

    def join(self, other: Counts) -> None:
        self.update(other)
        self.failures += other.failures
        sys.stderr.write(f"so far: {self.said()}\n")

    def said(self) -> str:
        """One line: all attempts, the failures, and what became of the rest."""
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.items()))
        return f"{self.total():,} attempts, {len(self.failures):,} failures ({outcomes})"
