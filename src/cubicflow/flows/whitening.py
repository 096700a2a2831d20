"""Initialise the first layer of a flow from the mean and covariance of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.flows.flow import Flow
from cubicflow.flows.support import data_ends
from cubicflow.transforms import Compose
from cubicflow.transforms.transform import is_unbounded

RIDGE = 1e-8  # added to the diagonal of the correlations, so that linearly dependent columns do not divide by zero


@torch.no_grad()
def whiten(flow: Flow, rows: Tensor | NDArray[Any], weights: Tensor | NDArray[Any] | None = None) -> Flow:
    """Set the first layer of a flow so that its outputs for these rows have mean 0 and unit covariance. Return the
    flow.

    A constant column keeps scale 1. A linear layer without a bias cannot shift, so the mean does not become 0. A
    :class:`~cubicflow.transforms.Standardise` cannot mix columns, so correlations remain.

    Gradient descent learns correlations slowly. For strongly correlated columns (pixels, positions, spectra) whitening
    saves thousands of steps. Later layers do not change, and training of the first layer continues as before.

    Args:
        flow: a flow that begins with a layer that has a method ``whiten_``: an
            :class:`~cubicflow.transforms.LULinear` or a ``Standardise``, such as flows made by ``tabular``.
        rows: (N, D), the rows that the flow will be fitted to.
        weights: (N,), the weights of the rows, 0 or more and not all 0.

    >>> import cubicflow as cf
    >>> x = torch.randn(500, 3) @ torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.5, 0.5, 2.0]])
    >>> z, _ = whiten(cf.flows.tabular(3, num_layers=1), x).to_noise(x)
    >>> torch.allclose(torch.cov(z.T), torch.eye(3), atol=1e-2)
    True
    """
    layer = flow.transform[0] if isinstance(flow.transform, Compose) and len(flow.transform) else flow.transform
    set_first_layer = getattr(layer, "whiten_", None)
    if set_first_layer is None:
        raise ValueError(
            f"whiten needs a flow that begins with an LULinear or a Standardise, such as flows.tabular(...); this flow "
            f"begins with a layer of class {type(layer).__name__}"
        )
    ends = data_ends(flow)
    if ends is not None and not is_unbounded(ends):
        raise ValueError(
            "whiten would move the box on which this flow has a density; a flow on a box needs no whitening"
        )
    features = flow.base.features
    if rows.ndim != 2 or rows.shape[1] != features or len(rows) < 2:
        raise ValueError(f"rows must have shape (N, {features}), N at least 2, got {tuple(rows.shape)}")
    rows, shares = _weighted(_wide(rows), None if weights is None else _wide(weights))
    mean = shares @ rows  # (D,)
    covariance = ((rows - mean) * shares[:, None]).T @ (rows - mean)  # (D, D)
    if not np.isfinite(covariance).all():
        raise ValueError("rows and their squares must be finite; drop rows that are not finite, or rescale the columns")
    # Constant columns are found by their range: the mean of equal numbers is rounded, so their variance is seldom 0.
    # The comparison is in the flow's dtype, because the layer cannot distinguish numbers that are equal in this dtype.
    seen = torch.from_numpy(rows).to(flow.base.anchor.dtype)
    constant = (seen.amax(0) == seen.amin(0)).numpy()
    covariance[constant, :] = covariance[:, constant] = 0.0
    covariance[constant, constant] = 1.0
    scale = np.sqrt(np.diag(covariance))
    set_first_layer(mean, scale, covariance / np.outer(scale, scale) + RIDGE * np.eye(features))
    return flow


def _wide(values: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = torch.as_tensor(values).detach().cpu().double().numpy()
    return wide


def _weighted(
    rows: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows with a positive weight, and the share of each of these rows."""
    if weights is None:
        return rows, np.full(len(rows), 1 / len(rows))
    if weights.shape != (len(rows),):
        raise ValueError(f"weights must have shape ({len(rows)},), one for each row, got {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights must be finite, 0 or more and not all 0; leave out rows that should not count")
    counted = weights > 0
    shares = weights[counted] / weights.max()  # the division keeps the sum below from overflowing
    return rows[counted], shares / shares.sum()
