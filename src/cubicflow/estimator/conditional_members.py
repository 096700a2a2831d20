"""Members of a conditional density: flows that start as a linear regression with normal residuals."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import numpy as np
import torch
from torch import nn

from cubicflow.estimator.cross_fitting import Folds
from cubicflow.estimator.density_members import MemberSettings, coupling_layers, normal_base
from cubicflow.estimator.expectation_maximisation import Normals, shrunk
from cubicflow.estimator.weighted_rows import WeightedRows
from cubicflow.flows import Flow
from cubicflow.nets import ResidualMLP
from cubicflow.nets.residual_net import ResidualBlock
from cubicflow.nets.rng import seeded
from cubicflow.transforms import Compose, Coupling, ElementMap
from cubicflow.weights import Floats

RIDGES = (1e-3, 1.0, 10.0, 100.0, 1e3)  # ridge penalties, in rows of standardised context


def regressions(rows: WeightedRows, folds: Folds) -> list[tuple[Floats, Normals]]:
    """Return the coefficients (C + 1, D) of a ridge regression and the normal of its residuals, for each member.

    The ridge penalty is the one with the highest likelihood of held-out rows.
    """
    tried = []
    for ridge in RIDGES:
        found, held_out = [], np.full(len(rows), np.nan)
        for member in range(folds.members):
            unseen = folds.held_out(member)
            coefficients, normal = _regress(_with_one(rows, ~unseen), rows.x[~unseen], rows.weights[~unseen], ridge)
            held_out[unseen] = normal.log_prob(rows.x[unseen] - _with_one(rows, unseen) @ coefficients)
            found.append((coefficients, normal))
        score = float(np.average(held_out[folds.judged], weights=rows.weights[folds.judged]))
        tried.append((score, found))
    return max(tried, key=itemgetter(0))[1]


def make_member(coefficients: Floats, residuals: Normals, settings: MemberSettings, number: int) -> Flow:
    """Return a flow of x given context: an affine map, then splines, with params from networks of the context."""
    features, context_features = coefficients.shape[1], len(coefficients) - 1
    width = 2 * context_features + settings.hidden_features
    network = partial(ResidualMLP, hidden_features=width, num_blocks=1, dropout=settings.dropout)
    with seeded(settings.seed + number):
        affine = Coupling([True] * features, network, ElementMap("affine"), context_features=context_features)
        _initialise_linear(affine.network, -coefficients)
        layers = [affine, *coupling_layers(features, settings, context_features)]
    return Flow(normal_base(residuals), Compose(layers))


@torch.no_grad()
def _initialise_linear(network: nn.Module, coefficients: Floats) -> None:
    """Initialise a residual network so that its outputs are the params of an affine map: a linear shift and a log-scale
    of 0.

    The shift is (1, context) @ coefficients. The first hidden units are c and -c for every context feature c. Since
    c = relu(c) - relu(-c), the weights of the last layer combine them to a linear function. The other hidden units keep
    their random weights.
    """
    block = network.blocks[0] if isinstance(network, ResidualMLP) else None
    assert isinstance(network, ResidualMLP) and isinstance(block, ResidualBlock)  # noqa: PT018, S101 - built above
    first, last, second = network.first, network.last, block.second
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)  # noqa: PT018, S101
    count = len(coefficients) - 1
    first.weight[: 2 * count] = torch.cat([torch.eye(count), -torch.eye(count)])
    first.bias[: 2 * count] = 0
    for parameter in second.parameters():
        parameter.zero_()
    slopes = torch.from_numpy(coefficients[1:].T).to(last.weight) / network.scale  # (D, C)
    shifts = slice(0, None, 2)  # params are (shift, log-scale) of the first feature, then of the second, and so on
    last.weight[shifts, :count] = slopes
    last.weight[shifts, count : 2 * count] = -slopes
    last.bias[shifts] = torch.from_numpy(coefficients[0]).to(last.bias) / network.scale


def _with_one(rows: WeightedRows, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    assert rows.context is not None  # noqa: S101 - for the type checker: a conditional density has context
    return np.concatenate([np.ones((int(chosen.sum()), 1)), rows.context[chosen]], axis=1)


def _regress(context: Floats, x: Floats, weights: Floats, ridge: float) -> tuple[Floats, Normals]:
    penalty = ridge * np.eye(context.shape[1])
    penalty[0, 0] = 0  # the intercept has no penalty
    weighted = context * weights[:, None]
    coefficients: Floats = np.linalg.lstsq(context.T @ weighted + penalty, weighted.T @ x)[0].astype(np.float64)
    residuals = x - context @ coefficients
    mean = np.average(residuals, axis=0, weights=weights)
    centred = residuals - mean
    # Residuals of fitted rows are too small. The leave-one-out residual of a row with leverage h is larger by the
    # factor 1 / (1 - h): the jack-knife.
    inverse = np.linalg.pinv(context.T @ weighted + penalty)
    leverage = np.minimum(np.einsum("ni,ij,nj->n", context, inverse, weighted), 0.9)
    centred = centred / (1 - leverage)[:, None]
    total = weights.sum()
    covariance = (centred * weights[:, None]).T @ centred / total
    return coefficients, Normals(np.ones(1), mean[None], shrunk(covariance, float(total))[None])
