"""Kill a piece of work at every filesystem operation, or at random moments.

A worker counts the operations that Python reports to its audit hooks, and exits without clean-up just before a given
operation.
"""

from __future__ import annotations

import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helpers.counts import Counts
from tests.helpers.forks import KILLED, die_at, forked

FEWEST_SECONDS = 0.01


class Scene(ABC):
    """A piece of work that is killed again and again.

    Attributes:
        name: the name of the work, for the lines of failures.
        folder: the folder whose operations are counted.
        seconds: the time of the whole work.
    """

    name: str
    folder: Path
    seconds: float

    @abstractmethod
    def prepare(self) -> None:
        """Bring the files into the state before the work."""

    @abstractmethod
    def work(self) -> None:
        """Do the work."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Return whether the files are those of work that nobody kills."""

    @abstractmethod
    def check(self, counts: Counts, what: str) -> None:
        """Check that the work can go on after a kill. ``what`` describes the kill, for the line of a failure."""

    def kill(self, arm: Callable[[], None]) -> int:
        """Do the work in a process that kills itself as ``arm`` says, and return its exit status."""
        self.prepare()

        def armed() -> None:
            arm()
            self.work()

        return forked(armed).status

    def kill_everywhere(self) -> Counts:
        """Kill the work at every operation, the first one included."""
        counts = Counts()
        for operation in range(10_000):
            status = self.kill(lambda at=operation: die_at(at, self.folder))
            if status != KILLED:
                if status or not self.is_whole():
                    counts.fail(f"{self.name}: ends with status {status} where nobody kills it")
                break
            self.check(counts, f"{self.name}, killed at operation {operation}")
            counts.add("killed at an operation")
        return counts

    def kill_at_random(self, number: int, rng: random.Random) -> Counts:
        """Kill the work at random moments."""
        counts, longest = Counts(), 1.5 * self.seconds
        while counts.total() < number:
            moment = rng.uniform(0.001, longest)

            def alarm(moment: float = moment) -> None:
                signal.setitimer(signal.ITIMER_REAL, moment)  # without a handler, the signal ends the process at once

            status = self.kill(alarm)
            if status == -signal.SIGALRM:
                self.check(counts, f"{self.name}, killed after {moment:.4f} seconds")
                counts.add("killed at a random moment")
            elif status == 0:  # the work ended before the kill
                longest = max(0.9 * longest, FEWEST_SECONDS)
            else:
                counts.fail(f"{self.name}: ends with status {status} within {moment:.4f} seconds")
        return counts


def kill_all(scenes: Sequence[Scene], number: int, rng: random.Random) -> Counts:
    """Kill works at every operation, and then at random moments until there are ``number`` kills."""
    counts = Counts()
    for scene in scenes:
        counts.join(scene.kill_everywhere())
    for i, scene in enumerate(scenes):
        left = max(number - counts.total(), 0)
        counts.join(scene.kill_at_random(-(-left // (len(scenes) - i)), rng))
    return counts
