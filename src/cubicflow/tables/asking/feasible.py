"""Whether linear inequalities can hold together, in exact arithmetic (Fourier and Motzkin's elimination)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

MOST = 2_000  # inequalities; beyond, nothing is said


@dataclass(frozen=True)
class Linear:
    """sum of factors x unknowns <= bound, or < where it is ``strict``."""

    factors: tuple[tuple[str, Fraction], ...]
    bound: Fraction
    strict: bool = False

    @classmethod
    def of(cls, factors: Mapping[str, int], relation: str, bound: float) -> list[Linear]:
        """A comparison with a number, by <=, <, >=, > or =."""
        up = tuple(sorted((name, Fraction(factor)) for name, factor in factors.items()))
        down = tuple((name, -factor) for name, factor in up)
        limit = Fraction(bound)
        found = [cls(up, limit, relation == "<")] if relation in ("<=", "<", "=") else []
        return found + ([cls(down, -limit, relation == ">")] if relation in (">=", ">", "=") else [])


def is_feasible(inequalities: Sequence[Linear]) -> bool:
    """Whether some real numbers meet all of them.

    >>> a_below_b, b_below_a = Linear.of({"a": 1, "b": -1}, "<", 0), Linear.of({"b": 1, "a": -1}, "<=", 0)
    >>> is_feasible(a_below_b), is_feasible(a_below_b + b_below_a)
    (True, False)
    """
    left = list(dict.fromkeys(inequalities))
    for name in sorted({name for each in left for name, _ in each.factors}):
        above = [each for each in left if dict(each.factors).get(name, 0) > 0]
        below = [each for each in left if dict(each.factors).get(name, 0) < 0]
        rest = [each for each in left if name not in dict(each.factors)]
        if len(rest) + len(above) * len(below) > MOST:
            return True
        left = list(dict.fromkeys(rest + [_without(name, one, other) for one in above for other in below]))
    return all(each.bound > 0 or (each.bound == 0 and not each.strict) for each in left)


def _without(name: str, above: Linear, below: Linear) -> Linear:
    """What two inequalities say together of the other unknowns."""
    ones, others = dict(above.factors), dict(below.factors)
    p, q = ones[name], -others[name]
    names = sorted({*ones, *others} - {name})
    factors = {n: ones.get(n, Fraction(0)) / p + others.get(n, Fraction(0)) / q for n in names}
    kept = tuple((n, factor) for n, factor in factors.items() if factor)
    return Linear(kept, above.bound / p + below.bound / q, above.strict or below.strict)
