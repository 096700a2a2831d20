"""Seeds: from one seed, each purpose gets random numbers of its own."""

from __future__ import annotations

import secrets
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio; the step of splitmix64


class Stream(IntEnum):
    """Purposes that draw random numbers from one seed. Runs resume with these numbers, so none may change."""

    SPLIT = 1  # into training and validation rows
    EPOCH = 2  # the order of the rows
    INITIALISE = 3  # the first batch, from which layers choose a start
    STEP = 4
    VALIDATION = 5
    NOISE = 11  # inside the steps of a table's columns
    BLOCK = 12  # rows that are drawn together


def derive_seed(seed: int, *keys: int) -> int:
    """Return a different seed, below 2^64, for every tuple of keys.

    >>> derive_seed(0, 1) == derive_seed(0, 1), derive_seed(0, 1) == derive_seed(0, 2)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *keys]).generate_state(1, np.uint64)[0])


def fresh_seed() -> int:
    """Return a seed from the system's randomness, below 2^62."""
    return secrets.randbits(62)


def scramble(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each integer, by a step of splitmix64. Different integers have different hashes."""
    with np.errstate(over="ignore"):  # overflow is intended: arithmetic is modulo 2^64
        z = numbers + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform_hash(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a hash in [0, 1) of each integer: number i gets what splitmix64 returns at step i from the seed.

    >>> values = uniform_hash(np.arange(100_000, dtype=np.uint64), seed=1)
    >>> bool(abs(values.mean() - 0.5) < 0.005)
    True
    """
    with np.errstate(over="ignore"):
        state = (numbers - np.uint64(1)) * GOLDEN + np.uint64(seed)
    return (scramble(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
