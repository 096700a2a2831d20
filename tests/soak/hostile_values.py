"""Hostile JSON values in place of numbers, names and lists, and random damage to the bytes of files."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

DEEP = 900  # nesting depth near the limit of Python's JSON parser
WORDS = ("", "x", "nan", "0", "../../etc/passwd", "/dev/zero", "\x1b[31m", "\0", "=1+1", "a" * 10_000, "é", "\ud800")
NUMBERS = (0, 1, -1, 2, 7, 0.5, -0.0, 1e-320, 1e38, 1e308, -1e308, 2**31, 2**53, 2**63, 10**18, 10**400, float("nan"),
           float("inf"), -float("inf"))  # fmt: skip
Path = tuple[str | int, ...]


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def hostile(rng: random.Random) -> Any:
    """Return a random hostile value of any type."""
    match rng.randrange(8):
        case 0 | 1 | 2:
            return rng.choice(NUMBERS)
        case 3:
            return rng.choice(WORDS)
        case 4:
            return rng.choice([None, True, False, [], {}, [[]], {"": None}, {"type": "Flow"}, {"type": ["Flow"]}])
        case 5:
            return [rng.choice(NUMBERS)] * rng.choice([1, 2, 3, 4, 7, 1000, 200_000])
        case 6:
            return _deep(rng.choice([3, 100, DEEP]))
        case _:
            return {rng.choice(WORDS): rng.choice(NUMBERS) for _ in range(3)}


def places(value: Any, before: Path = ()) -> Iterator[Path]:
    """Yield the path of every value inside a JSON value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*before, key)
        yield from places(item, (*before, key))


def changed(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with some parts replaced, removed, doubled, renamed or exchanged."""
    result = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        known = list(places(result))
        if not known:
            return hostile(rng)
        *way, last = rng.choice(known)
        parent = result
        for key in way:
            parent = parent[key]
        old = parent[last]
        match rng.randrange(7):
            case 0 | 1:
                parent[last] = hostile(rng)
            case 2 if isinstance(old, int | float) and not isinstance(old, bool) and abs(old) < 1e300:
                parent[last] = rng.choice([-old, old + 1, old - 1, old * 1000, old / 3, float(old), str(old)])
            case 2:
                parent[last] = [old]
            case 3:
                del parent[last]
            case 4 if isinstance(parent, list):
                parent.insert(last, copy.deepcopy(old))
            case 4:
                parent[rng.choice(WORDS)] = parent.pop(last)
            case 5 if isinstance(old, list):
                old.reverse()
                old.extend(old[: rng.randrange(3)])
            case _:
                *other_way, other = rng.choice(known)
                try:
                    donor = result
                    for key in other_way:
                        donor = donor[key]
                    parent[last] = copy.deepcopy(donor[other])
                except (KeyError, IndexError, TypeError):  # the donor is in a part that has already changed
                    parent[last] = hostile(rng)
    return result


def as_text(value: Any) -> bytes:
    """Return non-standard JSON, with Python's NaN and infinities and with lone surrogates."""
    return json.dumps(value).encode()


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes with some flipped, cut, doubled, inserted or set to zero."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(data) + 1)
        length = rng.choice([1, 2, 8, 100])
        match rng.randrange(6):
            case 0 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[place:]
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = data[place : place + length] or b"\0"
            case 4:
                data[place:place] = rng.randbytes(length)
            case _:
                data[place : place + length] = bytes(len(data[place : place + length]))
    return bytes(data)
