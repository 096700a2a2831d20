"""The verdict on each of the paper's claims, for records that support the claim and for records that do not."""

from __future__ import annotations

from typing import Any

import pytest
from paper.claims import AUTOREGRESSIVE, CLAIMS, FAILS, HOLDS, NOT_RUN
from paper.recipe_files import load_recipe


def verdict(beginning: str, experiment: str, results: dict[str, Any], **about: Any) -> str:
    (claim,) = [claim for claim in CLAIMS if claim.text.startswith(beginning)]
    assert claim.experiment == experiment
    judged = claim.judge({"results": results, **about})
    return NOT_RUN if judged is None else judged[1]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, HOLDS),
        ({"smallest_slope": 0.0}, FAILS),
        ({"largest_relative_jump_of_slope": 1e-3}, FAILS),
        ({"largest_round_trip_error": 1e-9}, FAILS),
    ],
)
def test_the_claim_of_smooth_and_invertible_splines(found: dict[str, float], expected: str) -> None:
    right = {"smallest_slope": 0.07, "largest_relative_jump_of_slope": 7e-8, "largest_round_trip_error": 5e-16}
    assert verdict("The cubic spline is increasing", "figure-1", right | found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, HOLDS),
        ({"quadratic_smallest_slope": 0.1}, FAILS),
        ({"cubic_largest_miss_of_a_knot": 1e-6}, FAILS),
        ({"cubic_smallest_slope": -1e-3}, FAILS),
    ],
)
def test_quadratics_cannot_pass_through_arbitrary_knots(found: dict[str, float], expected: str) -> None:
    right = {"quadratic_smallest_slope": -2.4, "cubic_largest_miss_of_a_knot": 0.0, "cubic_smallest_slope": 4e-5}
    assert verdict("A monotone quadratic spline", "appendix", {"three_bins": right | found}) == expected


@pytest.mark.parametrize(
    ("found", "expected"), [({}, HOLDS), ({"reached": False}, FAILS), ({"parameters": 100_001}, FAILS)]
)
def test_the_claim_about_plane_densities(found: dict[str, Any], expected: str) -> None:
    right = {"density": "225 Gaussians", "gap": 0.006, "reached": True, "parameters": 69_896}
    results = {"densities": [right, right | found]}
    assert verdict("Two coupling layers", "figure-2", results, settings={"most_parameters": 100_000}) == expected


def pair(dataset: str, verdict: str, first: str = "cubic", paper: str | None = None) -> dict[str, Any]:
    about = {"first": first, "second": "quadratic", "mean": 0.1, "error": 0.2, "seeds": 2}
    return {"dataset": dataset, "verdict": verdict, "paper": paper, **about}


@pytest.mark.parametrize(
    ("verdicts", "about", "expected"),
    [
        (("worse", "worse"), {}, HOLDS),  # as in the paper, for the paper's models and for cubicflow's
        (("worse", "better"), {}, "holds for some pairs"),
        (("indistinguishable", "better"), {}, FAILS),
        (("worse", "worse"), {"comparable": False}, "not comparable: not the published test rows"),
        (("worse", "worse"), {"left_out": "the data is not here"}, "cannot be rerun here"),
    ],
)
def test_the_claim_about_cubic_and_quadratic_on_bsds300(
    verdicts: tuple[str, str], about: dict[str, Any], expected: str
) -> None:
    dataset = {"left_out": None, "comparable": True, "provenance": "exact"} | about
    results = {
        "datasets": {"bsds300": dataset},
        "comparisons": [
            *(pair("bsds300", said, paper="worse") for said in verdicts),
            pair("miniboone", "better", paper="worse"),  # not part of the claim
        ],
    }
    assert verdict("BSDS300", "table-1", results) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("indistinguishable", "worse"), HOLDS),
        (("better", "indistinguishable"), "not on MINIBOONE"),
        (("better", "better"), FAILS),
    ],
)
def test_the_claim_that_coupling_layers_are_competitive(verdicts: tuple[str, str], expected: str) -> None:
    autoregressive = [
        pair(dataset, said, first="cubic-autoregressive")
        for dataset, said in zip(("miniboone", "bsds300"), verdicts, strict=True)
    ]
    relatives = [*autoregressive, pair("miniboone", "better", first="cubic-free")]
    results = {"relatives": relatives, "titles": {"cubic-autoregressive": "cubic autoregressive"}}
    assert verdict("Coupling layers keep up", "table-1", results) == expected


def test_the_claims_cover_every_autoregressive_model_of_the_recipe() -> None:
    models = load_recipe("table-1")["models"]
    found = [name for name, model in models.items() if model.get("flow", {}).get("layer") == "autoregressive"]
    assert sorted(AUTOREGRESSIVE) == sorted(found)


@pytest.mark.parametrize(
    ("mean", "about", "expected"),
    [
        (160.5, {"comparable": True}, "holds on BSDS300 (redrawn), not the published rows"),
        (159.7, {"comparable": True}, FAILS),
        (170.0, {"comparable": False}, NOT_RUN),
    ],
)
def test_autoregressive_flows_improve_on_the_papers_table(mean: float, about: dict[str, Any], expected: str) -> None:
    """The comparison is with the best entry of the paper's table. Later publications do not count."""
    published = {"tan": "159.80 ± 0.07", "trade": "165.00", "maf": "156.36 ± 0.28"}
    test = {"mean": mean, "error": 0.3}
    results = {
        "rows": [
            {"dataset": "bsds300", "model": "cubic-attention", "test": test},
            {"dataset": "bsds300", "model": "cubic", "test": {"mean": 200.0, "error": 0.1}},  # not part of the claim
        ],
        "titles": {"cubic-attention": "attention"},
        "datasets": {"bsds300": {"published": published, "provenance": "redrawn", **about}},
    }
    assert verdict("We intend to implement autoregressive", "table-1", results) == expected


@pytest.mark.parametrize(
    ("reached", "remarks", "expected"),
    [
        (True, "Shirts and shoes. Verdict: holds in part.", "holds in part"),
        (True, "Shirts and shoes. Verdict: holds.", HOLDS),
        (True, "Shirts and shoes.", "see the pictures"),
        (True, "", "see the pictures"),
        (False, "Shirts. Verdict: holds.", "see the pictures"),
    ],
)
def test_the_claim_about_images_needs_a_number_and_the_verdict_of_a_person(
    reached: bool, remarks: str, expected: str
) -> None:
    results = {"bits_per_dim": 2.887, "error": 0.017, "reached": reached}
    assert verdict("The same layers in a Glow-like flow", "figure-3", results, remarks=remarks) == expected
