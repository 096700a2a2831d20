"""Continuous flows against matrix exponentials and SciPy's solver."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from cubicflow.nets import ConcatSquashMLP
from cubicflow.transforms import Continuous
from cubicflow.transforms.solvers import RK4, SolverError, find_steps, step

GENERATOR = torch.tensor([[0.4, -1.2, 0.0], [0.7, -0.3, 0.5], [0.1, 0.2, 0.6]], dtype=torch.float64)


class LinearField(nn.Module):
    """dx/dt = A x."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(GENERATOR.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :-1] @ self.matrix.T


def rows(n: int, features: int = 3) -> Tensor:
    return torch.randn(n, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("settings", [{"rtol": 1e-10, "atol": 1e-10}, {"solver": "rk4", "steps": 100}])
def test_a_linear_field_is_a_matrix_exponential(settings: dict, adjoint: bool) -> None:
    layer, x = Continuous(3, LinearField(), adjoint=adjoint, **settings), rows(7)
    matrix = GENERATOR.clone().requires_grad_()
    expected = x @ torch.linalg.matrix_exp(matrix).T
    z, log_det = layer(x)
    assert torch.allclose(z, expected, atol=1e-8)
    assert torch.allclose(log_det, matrix.trace().expand(7), atol=1e-9)
    assert torch.allclose(layer.inverse(z)[0], x, atol=1e-8)
    (z.square().sum() + log_det.sum()).backward()
    (expected.square().sum() + 7 * matrix.trace()).backward()
    assert torch.allclose(layer.network.matrix.grad, matrix.grad, atol=1e-6)


def test_the_error_of_fixed_steps_is_of_order_four() -> None:
    errors = []
    for steps in (4, 8, 16):
        z, _ = Continuous(3, LinearField(), solver="rk4", steps=steps)(rows(5))
        errors.append(float((z - rows(5) @ torch.linalg.matrix_exp(GENERATOR).T).abs().max().detach()))
    assert [14 < before / after < 18 for before, after in pairwise(errors)] == [True, True]


def test_the_solution_is_that_of_scipy() -> None:
    torch.manual_seed(1)
    layer = Continuous(2, ConcatSquashMLP(3, 2, hidden_features=16, identity_start=False), rtol=1e-8, atol=1e-8)
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(3)  # a field that bends

        def field(t: float, y: np.ndarray) -> np.ndarray:
            inputs = torch.tensor([[*y, t]])
            return layer.network(inputs)[0].numpy()

        z, _ = layer(rows(4, 2))
        for x, own in zip(rows(4, 2).numpy(), z.numpy(), strict=True):
            found = solve_ivp(field, (0, 1), x, method="DOP853", rtol=1e-11, atol=1e-11).y[:, -1]
            assert np.allclose(own, found, atol=1e-6)


def test_hutchinson_estimates_the_trace_without_bias_and_evaluation_is_exact() -> None:
    layer, n = Continuous(3, LinearField(), trace="hutchinson", solver="rk4", steps=4), 20_000
    assert not layer.exact
    torch.manual_seed(0)
    _, log_det = layer(rows(1).expand(n, -1))
    found, error = log_det.detach().mean(), log_det.detach().std() / math.sqrt(n)
    assert float(error) > 0
    assert abs(float(found) - float(GENERATOR.trace())) < 4 * float(error)
    _, log_det = layer.eval()(rows(5))
    assert torch.allclose(log_det, GENERATOR.trace().expand(5))


def test_each_row_chooses_its_steps() -> None:
    """A stiff row takes many steps, and a row beside it the few that it needs."""
    rates = torch.tensor([[-1.0], [-200.0]])
    settings = {"rtol": 1e-4, "atol": 1e-4, "max_steps": 500}
    steps, y = find_steps(lambda t, y: rates * y, torch.ones(2, 1), 0.0, 1.0, **settings)
    taken = torch.stack([h for _, h in steps]).count_nonzero(0).flatten()
    assert taken[0] < 8 < 40 < taken[1]
    assert torch.allclose(y[0], torch.tensor(-1.0).exp(), atol=1e-3)
    assert torch.allclose(sum(h for _, h in steps), torch.ones(2, 1))


def test_tolerances_below_rounding_count_as_rounding() -> None:
    _, y = find_steps(lambda t, y: y, torch.ones(1, 1), 0.0, 1.0, rtol=1e-15, atol=1e-15, max_steps=100)
    assert float(y) == pytest.approx(math.e, rel=1e-5)


def test_a_solver_that_does_not_converge_says_so() -> None:
    layer = Continuous(3, LinearField(), max_steps=5)
    with torch.no_grad():
        layer.network.matrix.mul_(100)
    with pytest.raises(SolverError, match=r"4 of 4 rows did not reach the end in 5 steps \(max_steps\); raise max_st"):
        layer(rows(4))


def test_rows_that_are_not_numbers_end() -> None:
    layer = Continuous(2, rtol=1e-6)
    x = torch.tensor([[math.nan, 0.0], [1.0, 2.0]])
    z, _ = layer(x)
    assert z[0].isnan().any()
    assert torch.allclose(z[1], x[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "euler"}, "solver must be 'dopri5' or 'rk4', got 'euler'"),
        ({"trace": "none"}, "trace must be 'exact' or 'hutchinson', got 'none'"),
        ({"rtol": 0.0}, "rtol must be a finite number, above 0, got 0.0"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
    ],
)
def test_refusals(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Continuous(2, **settings)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="activation must be 'tanh' or 'softplus', got 'relu'"):
        ConcatSquashMLP(3, 2, activation="relu")


def test_a_step_uses_its_first_slope() -> None:
    one = torch.ones(1, 1)
    evaluated, given = (step(RK4, lambda t, y: y, 0 * one, one, one, first)[0] for first in (None, one))
    assert torch.equal(evaluated, given)


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
def test_directional_derivatives_of_the_network(activation: str) -> None:
    torch.manual_seed(0)
    net = ConcatSquashMLP(3, 2, context_features=2, activation=activation, identity_start=False).double()
    x, directions, context = rows(5), rows(20, 2).view(4, 5, 2), rows(5, 2)
    outputs, derivatives = net.along(x, directions, context)
    assert torch.equal(outputs, net(x, context))
    for direction, found in zip(directions, derivatives, strict=True):
        tangent = torch.cat([direction, torch.zeros(5, 1)], dim=1)
        _, expected = torch.autograd.functional.jvp(lambda values: net(values, context), x, tangent)
        assert torch.allclose(found, expected)
