"""Feasibility of linear inequalities, in exact arithmetic by Fourier-Motzkin elimination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

MOST = 2_000  # inequalities; a larger system counts as feasible


@dataclass(frozen=True)
class Inequality:
    """A linear inequality: sum(factors * unknowns) <= bound, or < if ``strict``."""

    factors: tuple[tuple[str, Fraction], ...]
    bound: Fraction
    strict: bool = False

    @classmethod
    def of(cls, factors: Mapping[str, int], relation: str, bound: float) -> list[Inequality]:
        """Return a comparison with a number as inequalities. ``relation`` is <=, <, >=, > or =; an equality gives two
        inequalities."""
        up = tuple(sorted((name, Fraction(factor)) for name, factor in factors.items()))
        down = tuple((name, -factor) for name, factor in up)
        limit = Fraction(bound)
        found = [cls(up, limit, relation == "<")] if relation in ("<=", "<", "=") else []
        return found + ([cls(down, -limit, relation == ">")] if relation in (">=", ">", "=") else [])


def is_feasible(inequalities: Sequence[Inequality]) -> bool:
    """Return whether some real numbers satisfy all inequalities. A system that grows too large counts as feasible.

    >>> a_below_b, b_below_a = Inequality.of({"a": 1, "b": -1}, "<", 0), Inequality.of({"b": 1, "a": -1}, "<=", 0)
    >>> is_feasible(a_below_b), is_feasible(a_below_b + b_below_a)
    (True, False)
    """
    system = list(dict.fromkeys(inequalities))
    for name in sorted({name for each in system for name, _ in each.factors}):
        above = [each for each in system if dict(each.factors).get(name, 0) > 0]
        below = [each for each in system if dict(each.factors).get(name, 0) < 0]
        rest = [each for each in system if name not in dict(each.factors)]
        if len(rest) + len(above) * len(below) > MOST:
            return True
        system = list(dict.fromkeys(rest + [_eliminate(name, one, other) for one in above for other in below]))
    return all(each.bound > 0 or (each.bound == 0 and not each.strict) for each in system)


def _eliminate(name: str, above: Inequality, below: Inequality) -> Inequality:
    """Return the sum of two inequalities, scaled so that the unknown ``name`` cancels."""
    ones, others = dict(above.factors), dict(below.factors)
    p, q = ones[name], -others[name]
    names = sorted({*ones, *others} - {name})
    factors = {n: ones.get(n, Fraction(0)) / p + others.get(n, Fraction(0)) / q for n in names}
    kept = tuple((n, factor) for n, factor in factors.items() if factor)
    return Inequality(kept, above.bound / p + below.bound / q, above.strict or below.strict)
