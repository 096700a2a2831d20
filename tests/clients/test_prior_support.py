"""The map from a prior's support to all of space and back, compared with autograd and torch's bijections."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import (
    Gamma,
    HalfNormal,
    Independent,
    MultivariateNormal,
    Normal,
    Uniform,
    biject_to,
    constraints,
)

import cubicflow as cf
from cubicflow.clients.prior_support import PriorSupport, prior_bounds
from cubicflow.distributions import StandardNormal
from cubicflow.transforms import Compose, LULinear

LOW, HIGH = [-2.0, 1.0, -math.inf, -math.inf], [3.0, math.inf, 4.0, math.inf]


def supported() -> PriorSupport:
    return PriorSupport(LOW, HIGH).double()


def test_the_log_det_agrees_with_autograd_and_the_inverse_undoes_the_map() -> None:
    x = torch.tensor([[0.5, 3.0, -7.0, 2.0], [-1.999, 1.001, 3.999, -40.0]], dtype=torch.float64)
    support = supported()
    z, log_det = support(x)
    for row, wanted in zip(x, log_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda r: support(r[None])[0][0], row)
        torch.testing.assert_close(jacobian.diagonal().log().sum(), wanted)
    back, log_det_back = support.inverse(z)
    torch.testing.assert_close(back, x)
    torch.testing.assert_close(log_det_back, -log_det)


def test_the_inverse_agrees_with_torchs_bijection() -> None:
    z = torch.linspace(-6, 6, 13, dtype=torch.float64)[:, None].expand(-1, 4)
    x, log_det = supported().inverse(z)
    own = [
        biject_to(constraint)
        for constraint in (constraints.interval(-2.0, 3.0), constraints.greater_than(1.0), constraints.real)
    ]
    columns = (0, 1, 3)
    for column, map_ in zip(columns, own, strict=True):
        torch.testing.assert_close(x[:, column], map_(z[:, column]))
    slopes = sum(
        map_.log_abs_det_jacobian(z[:, column], map_(z[:, column])) for column, map_ in zip(columns, own, strict=True)
    )
    torch.testing.assert_close(log_det, slopes - z[:, 2])  # x = high - exp(-z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_stay_inside_and_a_point_on_a_bound_has_a_density(dtype: torch.dtype) -> None:
    support = PriorSupport([0.1, -7.0], [0.3, 1e3]).to(dtype)
    far = torch.tensor([[-200.0, -200.0], [200.0, 200.0], [20.0, -20.0]], dtype=dtype)
    x, _ = support.inverse(far)
    assert ((x > support.low) & (x < support.high)).all()
    z, log_det = support(torch.stack([support.low, support.high]))
    assert z.isfinite().all()
    assert log_det.isfinite().all()
    assert support(support.high[None] * 1.01)[1] == -math.inf


def test_gradients_are_finite_in_every_kind_of_column() -> None:
    for z in (torch.full((1, 4), 200.0, dtype=torch.float64), torch.full((1, 4), -200.0, dtype=torch.float64)):
        z.requires_grad_()
        x, log_det = supported().inverse(z)
        (log_det.sum() + x[:, [0, 3]].sum()).backward()
        assert z.grad is not None
        assert z.grad.isfinite().all()


@pytest.mark.parametrize(
    ("prior", "wanted"),
    [
        (Independent(Uniform(torch.tensor([0.0, -1.0]), torch.ones(2)), 1), [(0, 1), (-1, 1)]),
        (MultivariateNormal(torch.zeros(2), torch.eye(2)), [(-math.inf, math.inf)] * 2),
        (Independent(Gamma(torch.ones(2), torch.ones(2)), 1), [(0, math.inf)] * 2),
        (object(), [(-math.inf, math.inf)] * 2),
    ],
)
def test_the_bounds_of_a_prior_are_found(prior: object, wanted: list[tuple[float, float]]) -> None:
    assert prior_bounds(prior, 2) == wanted


def test_the_bounds_of_joined_priors_are_found() -> None:
    utils = pytest.importorskip("sbi.utils")
    one = torch.ones(1)
    box = utils.BoxUniform(torch.zeros(2), 2 * torch.ones(2))
    prior = utils.MultipleIndependent([Normal(0 * one, one), HalfNormal(one), box], validate_args=False)
    assert prior_bounds(prior, 4) == [(-math.inf, math.inf), (0, math.inf), (0, 2), (0, 2)]


def test_a_prior_of_other_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="the prior has 3 parameters, but the simulations have 2; give the prior"):
        prior_bounds(Independent(Uniform(torch.zeros(3), torch.ones(3)), 1), 2)


def test_the_support_of_a_flow_on_a_prior() -> None:
    flow = cf.Flow(StandardNormal(2), Compose([PriorSupport([0.0, -math.inf], [2.0, 1.0]), LULinear(2)]))
    rows = torch.tensor([[1.0, 0.5], [2.5, 0.5], [1.0, 1.5]])
    assert flow.distribution().support.check(rows).tolist() == [True, False, False]
    assert flow.log_prob(rows).isfinite().tolist() == [True, False, False]
