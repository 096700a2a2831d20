"""The paper's claims, each with the evidence and the verdict from our records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.markdown import markdown_table

from paper.table_1_summary import number

Record = Mapping[str, Any]
NOT_RUN = "not yet run"
HOLDS, FAILS = "holds", "does not hold here"
VERDICT = "Verdict: "  # in the remarks of a person who looked at the pictures
ROWS = {"whole": "", "redrawn": "; rows redrawn", "partial": "; part of the training rows"}
LATER = ("trade", "rational-quadratic")  # published after the paper
WITH_AUTOREGRESSION = ("autoregressive", "symmetries")  # names of lines of table 1


@dataclass(frozen=True)
class Claim:
    """A claim, the experiment that tests it, and a function of the experiment's record.

    The function returns (evidence, verdict), or None if the record has no evidence yet.
    """

    text: str
    experiment: str
    judge: Callable[[Record], tuple[str, str] | None]


def claims_table(records: Mapping[str, Record]) -> str:
    """Return a Markdown table of all claims, with the evidence for or against each."""
    rows = []
    for claim in CLAIMS:
        record = records.get(claim.experiment)
        evidence, verdict = (claim.judge(record) if record else None) or ("", NOT_RUN)
        rows.append([claim.text, f"**{verdict}**", evidence])
    return markdown_table(["the paper says", "our verdict", "our evidence"], rows)


def _smooth_and_invertible(record: Record) -> tuple[str, str]:
    found = record["results"]
    smooth = found["largest_relative_jump_of_slope"] < 1e-6
    holds = found["smallest_slope"] > 0 and smooth and found["largest_round_trip_error"] < 1e-12
    evidence = (
        f"smallest slope {found['smallest_slope']:.3g}, jump at a knot {found['largest_relative_jump_of_slope']:.1g}, "
        f"round trip to {found['largest_round_trip_error']:.1g}"
    )
    return evidence, HOLDS if holds else FAILS


def _quadratic_cannot(record: Record) -> tuple[str, str]:
    found = record["results"]["three_bins"]
    passes = found["cubic_largest_miss_of_a_knot"] < 1e-12 and found["cubic_smallest_slope"] >= 0
    holds = found["quadratic_smallest_slope"] < 0 and passes
    evidence = (
        f"through flat, steep, flat the best quadratic needs a slope of {found['quadratic_smallest_slope']:.2f}; the "
        f"cubic passes through the knots and never falls"
    )
    return evidence, HOLDS if holds else FAILS


def _plane(record: Record) -> tuple[str, str]:
    rows = record["results"]["densities"]
    bound = record["settings"]["most_parameters"]
    holds = all(row["reached"] and row["parameters"] <= bound for row in rows)
    gaps = ", ".join(f"{row['density']} {row['gap']:.3f}" for row in rows)
    return f"nats below the truth: {gaps}; {max(r['parameters'] for r in rows):,} parameters", HOLDS if holds else FAILS


def _cubic_against_quadratic(dataset: str, record: Record) -> tuple[str, str] | None:
    about = record["results"]["datasets"][dataset]
    if about["left_out"]:
        return "", "cannot be rerun here"
    pairs = [pair for pair in record["results"]["comparisons"] if pair["dataset"] == dataset]
    if not pairs:
        return None
    evidence = "; ".join(f"{pair['first']} - {pair['second']}: {_difference(pair, ' nats')}" for pair in pairs)
    if not about["comparable"]:
        return evidence, "not comparable: not the published test rows"
    agree = {pair["verdict"] == pair["paper"] for pair in pairs}
    verdict = "holds for some pairs" if len(agree) == 2 else HOLDS if agree == {True} else FAILS
    return evidence + ROWS[about["provenance"]], verdict


def _difference(pair: Mapping[str, Any], unit: str = "") -> str:
    seeds = "1 seed" if pair["seeds"] == 1 else f"{pair['seeds']} seeds"
    return f"{pair['mean']:+.3f} ± {pair['error']:.3f}{unit} ({seeds}), {pair['verdict']}"


def _coupling_keeps_up(record: Record) -> tuple[str, str] | None:
    pairs = record["results"]["layers"]
    if not pairs:
        return None
    evidence = "; ".join(f"{pair['dataset'].upper()} {_difference(pair, ' nats')}" for pair in pairs)
    behind = [pair["dataset"].upper() for pair in pairs if pair["verdict"] == "better"]
    verdict = HOLDS if not behind else FAILS if len(behind) == len(pairs) else f"not on {', '.join(behind)}"
    best = "our best autoregressive layers minus our best coupling layers"
    return f"{best}: {evidence}. Settings of coupling layers were searched on BSDS300 only", verdict


def _autoregressive_improves(record: Record) -> tuple[str, str] | None:
    """Compare with the best figures of the paper's own table, for datasets whose test rows are comparable."""
    results = record["results"]
    evidence, better_on = [], []
    for line in (line for line in results["lines"] if line["name"] in WITH_AUTOREGRESSION):
        for dataset, model in line["models"].items():
            about = results["datasets"][dataset]
            if not about["comparable"]:
                continue
            (row,) = (row for row in results["rows"] if (row["dataset"], row["model"]) == (dataset, model))
            found, rows = row["carried"] or row["test"], "carried over" if row["carried"] else about["provenance"]
            best = max(number(value) for name, value in about["published"].items() if name not in LATER)
            where = f"{dataset.upper()} ({rows})"
            nats = f"{found['mean']:.2f} ± {found['error']:.2f} nats against {best:.2f}"
            evidence.append(f"{line['title']}, {where}: {nats}")
            better_on += [where] if found["mean"] - found["error"] > best and where not in better_on else []
    if not evidence:
        return None
    return "; ".join(evidence), f"holds on {'; '.join(better_on)}" if better_on else FAILS


def _images(record: Record) -> tuple[str, str]:
    found = record["results"]
    bits = f"{found['bits_per_dim']:.3f} ± {found['error']:.3f} bits per dimension"
    judged = record["remarks"].partition(VERDICT)[2].rstrip(". ") if found["reached"] else ""
    return f"{bits}; the samples of Figure 3, below", judged or "see the pictures"


CLAIMS = (
    Claim(
        "The cubic spline is increasing, has a continuous derivative, and is inverted exactly.",
        "figure-1",
        _smooth_and_invertible,
    ),
    Claim(
        "A monotone quadratic spline cannot pass through arbitrary knots; the cubic can.", "appendix", _quadratic_cannot
    ),
    Claim(
        "Two coupling layers without linear layers learn 225 Gaussians and portraits with few parameters.",
        "figure-2",
        _plane,
    ),
    Claim("POWER: cubic and quadratic tie.", "table-1", partial(_cubic_against_quadratic, "power")),
    Claim("GAS: cubic beats quadratic.", "table-1", partial(_cubic_against_quadratic, "gas")),
    Claim("HEPMASS: cubic beats quadratic.", "table-1", partial(_cubic_against_quadratic, "hepmass")),
    Claim("MINIBOONE: cubic beats quadratic.", "table-1", partial(_cubic_against_quadratic, "miniboone")),
    Claim("BSDS300: quadratic beats cubic.", "table-1", partial(_cubic_against_quadratic, "bsds300")),
    Claim("Coupling layers keep up with autoregressive ones, with one pass either way.", "table-1", _coupling_keeps_up),
    Claim(
        "We intend to implement autoregressive flows with these transformations, which may further improve the state "
        "of the art.",
        "table-1",
        _autoregressive_improves,
    ),
    Claim("The same layers in a Glow-like flow draw convincing clothes.", "figure-3", _images),
)
