"""The programs in examples/, each with --quick. Their figures are compared with known values."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def names_of(example: str) -> dict[str, Any]:
    """Return the names that a program defines."""
    return runpy.run_path(str(EXAMPLES / f"{example}.py"))


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Return a function that runs an example, and returns its names with its figures as ``figures``."""

    def run_quickly(name: str) -> dict[str, Any]:
        names = names_of(name)
        picture = tmp_path / "picture.png"
        figures = names["main"](quick=True, picture=picture)
        assert picture.stat().st_size > 5_000
        return {**names, "figures": figures}

    return run_quickly


def test_every_example_is_tested() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert {name for name in names if f'run("{name}")' not in text} == {"portrait"}  # it has a test of its own


def test_own_flow_learns_more_than_a_normal(run: Callable[[str], dict[str, Any]]) -> None:
    found = run("own_flow")
    torch.manual_seed(1)
    x = found["two_rings"](20_000)
    normal = torch.distributions.MultivariateNormal(x.mean(0), x.T.cov())
    below = float((found["true_log_prob"](x) - normal.log_prob(x)).mean())
    figures = found["figures"]
    assert -4 * figures["standard error"] < figures["nats below the truth"] < below / 2


def test_own_flows_log_density_agrees_with_its_jacobian() -> None:
    """The log density is compared with the Jacobian of the whole map. The inverse restores the input."""
    flow = names_of("own_flow")["OwnFlow"](3).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))

    def to_noise(x: torch.Tensor) -> torch.Tensor:
        for layer in flow.layers:
            x, _ = layer(x)
        return x

    for x in torch.randn(5, 1, 2).double():
        jacobian = torch.autograd.functional.jacobian(to_noise, x)[0, :, 0]
        normal = torch.distributions.Normal(0.0, 1.0).log_prob(to_noise(x)).sum()
        torch.testing.assert_close(flow.log_prob(x)[0], normal + jacobian.slogdet().logabsdet)
        z = to_noise(x)
        for layer in reversed(flow.layers):
            z, _ = layer.inverse(z)
        torch.testing.assert_close(z, x)


def test_importance_sampling_is_unbiased_and_reduces_the_error(run: Callable[[str], dict[str, Any]]) -> None:
    figures = run("importance_sampling")["figures"]
    for sampler in ("plain Monte Carlo", "flow"):
        row = figures[sampler]
        assert abs(row["estimate"] - figures["truth"]["estimate"]) < 4 * row["error"]
    assert figures["flow"]["error"] < figures["plain Monte Carlo"]["error"]


def test_the_camels_integral_agrees_with_a_grid() -> None:
    """The closed form agrees with a sum of the same function over a grid."""
    names = names_of("importance_sampling")
    middle = (torch.arange(40).double() + 0.5) / 40
    grid = torch.cartesian_prod(*[middle] * names["DIMENSIONS"])
    total = float(names["log_camel"](grid).exp().mean())
    assert total == pytest.approx(names["true_integral"](), rel=1e-4)


def test_synthetic_rows_carry_the_dependence(run: Callable[[str], dict[str, Any]]) -> None:
    """A classifier learns more from them than from rows with independent columns, and they are no copies."""
    found = run("synthetic_rows")["figures"]
    assert found["shuffled"][0] < found["synthetic"][0] <= 1
    assert found["distance"][0] > 0.5 * found["distance_real"][0]


def test_anomalies_are_found(run: Callable[[str], dict[str, Any]]) -> None:
    """212 of 331 rows are malignant, so chance has a precision of 0.64 and an area of 0.5."""
    for figures in run("anomaly")["figures"].values():
        assert 0.8 < figures["precision"][0] <= 1
        assert 0.8 < figures["area"][0] <= 1


def test_intervals_have_their_coverage(run: Callable[[str], dict[str, Any]]) -> None:
    """The tolerance is 4 standard errors of a share of 89 rows."""
    for row in run("conditional")["figures"].values():
        for promised in (0.5, 0.8, 0.9):
            assert abs(row[f"{promised:.0%}"] - promised) < 4 * (promised * (1 - promised) / 89) ** 0.5
