"""What the paper claims, and what our records say to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cubicflow.reproduce.experiment import markdown_table

Records = Mapping[str, Mapping[str, Any]]
NOT_RUN = "not yet run"
HOLDS, FAILS = "holds", "does not hold here"


@dataclass(frozen=True)
class Claim:
    """A claim, and a function that finds (evidence, verdict) in the records, or None without a run."""

    text: str
    judge: Callable[[Records], tuple[str, str] | None]


def claims_table(records: Records) -> str:
    """All claims with the evidence for or against them."""
    rows = []
    for claim in CLAIMS:
        evidence, verdict = claim.judge(records) or ("", NOT_RUN)
        rows.append([claim.text, evidence, verdict])
    return markdown_table(["the paper says", "our evidence", "our verdict"], rows)


def _smooth_and_invertible(records: Records) -> tuple[str, str] | None:
    if "figure-1" not in records:
        return None
    found = records["figure-1"]["results"]
    smooth = found["largest_relative_jump_of_slope"] < 1e-6
    holds = found["smallest_slope"] > 0 and smooth and found["largest_round_trip_error"] < 1e-12
    evidence = (
        f"smallest slope {found['smallest_slope']:.3g}, jump at a knot {found['largest_relative_jump_of_slope']:.1g}, "
        f"round trip to {found['largest_round_trip_error']:.1g}"
    )
    return evidence, HOLDS if holds else FAILS


def _quadratic_cannot(records: Records) -> tuple[str, str] | None:
    if "appendix" not in records:
        return None
    found = records["appendix"]["results"]["three_bins"]
    passes = found["cubic_largest_miss_of_a_knot"] < 1e-12 and found["cubic_smallest_slope"] >= 0
    holds = found["quadratic_smallest_slope"] < 0 and passes
    evidence = (
        f"through flat, steep, flat the best quadratic needs a slope of {found['quadratic_smallest_slope']:.2f}; the "
        f"cubic passes through, nowhere falling"
    )
    return evidence, HOLDS if holds else FAILS


def _plane(records: Records) -> tuple[str, str] | None:
    if "figure-2" not in records:
        return None
    record = records["figure-2"]
    rows = record["results"]["densities"]
    bound = record["settings"]["most_parameters"]
    holds = all(row["reached"] and row["parameters"] <= bound for row in rows)
    gaps = ", ".join(f"{row['density']} {row['gap']:.3f}" for row in rows)
    return f"nats below the truth: {gaps}; {max(r['parameters'] for r in rows):,} parameters", HOLDS if holds else FAILS


def _cubic_against_quadratic(dataset: str) -> Callable[[Records], tuple[str, str] | None]:
    def judge(records: Records) -> tuple[str, str] | None:
        if "table-1" not in records:
            return None
        summary = records["table-1"]["results"]
        about = summary["datasets"][dataset]
        if about["left_out"]:
            return "", "cannot be rerun here"
        pairs = [pair for pair in summary["comparisons"] if pair["dataset"] == dataset]
        if not pairs:
            return None
        evidence = "; ".join(
            f"{pair['first']} - {pair['second']}: {pair['mean']:+.3f} ± {pair['error']:.3f} nats ({_seeds(pair)}), "
            f"{pair['verdict']}"
            for pair in pairs
        )
        if not about["comparable"]:
            return evidence, "not comparable: not the published test rows"
        agree = {pair["verdict"] == pair["paper"] for pair in pairs}
        verdict = "only for one of the two" if len(agree) == 2 else HOLDS if agree == {True} else FAILS
        return f"{evidence}; data {about['provenance']}", verdict

    return judge


def _seeds(pair: Mapping[str, Any]) -> str:
    return f"{pair['seeds']} {'seed' if pair['seeds'] == 1 else 'seeds'}"


def _coupling_keeps_up(records: Records) -> tuple[str, str] | None:
    if "table-1" not in records:
        return None
    pairs = [p for p in records["table-1"]["results"]["relatives"] if p["first"] == "cubic-autoregressive"]
    if not pairs:
        return None
    evidence = "; ".join(
        f"{pair['dataset'].upper()} {pair['mean']:+.3f} ± {pair['error']:.3f} ({_seeds(pair)}), {pair['verdict']}"
        for pair in pairs
    )
    behind = [pair["dataset"].upper() for pair in pairs if pair["verdict"] == "better"]
    if not behind:
        verdict = HOLDS
    elif len(behind) == len(pairs):
        verdict = FAILS
    else:
        verdict = f"not on {', '.join(behind)}"
    return f"autoregressive minus coupling, nats, paired: {evidence}", verdict


def _images(records: Records) -> tuple[str, str] | None:
    if "figure-3" not in records:
        return None
    found = records["figure-3"]["results"]
    bits = f"{found['bits_per_dim']:.3f} ± {found['error']:.3f} bits per dimension"
    said = records["figure-3"]["remarks"]
    return f"{bits}; {said or 'samples above'}", HOLDS if found["reached"] and said else "see the pictures"


CLAIMS = (
    Claim(
        "The cubic spline is increasing, has a continuous derivative, and is inverted exactly.", _smooth_and_invertible
    ),
    Claim("A monotone quadratic spline cannot pass through arbitrary knots; the cubic can.", _quadratic_cannot),
    Claim("Two coupling layers without linear layers learn 225 Gaussians and portraits with few parameters.", _plane),
    Claim("POWER: cubic and quadratic tie.", _cubic_against_quadratic("power")),
    Claim("GAS: cubic beats quadratic.", _cubic_against_quadratic("gas")),
    Claim("HEPMASS: cubic beats quadratic.", _cubic_against_quadratic("hepmass")),
    Claim("MINIBOONE: cubic beats quadratic.", _cubic_against_quadratic("miniboone")),
    Claim("BSDS300: quadratic beats cubic.", _cubic_against_quadratic("bsds300")),
    Claim("Coupling layers keep up with autoregressive ones, with one pass either way.", _coupling_keeps_up),
    Claim("The same layers in a Glow-like flow draw convincing clothes.", _images),
)
