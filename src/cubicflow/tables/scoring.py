"""The log likelihood of rows under a flow, in the data's own units.

A column with a density counts per unit. A column with masses counts the probability of its step: the integral over u
in (0, 1) of the density of code + u, taken as the mean over sixteen fixed offsets. Nothing is random: a row has one
score.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.flows import Flow, Mixture
from cubicflow.tables.encoder import Numbers, TableEncoder
from cubicflow.tables.offsets import COUNT, offsets

Floats = NDArray[np.float64]
ROWS_AT_ONCE = 1 << 12


@torch.no_grad()
def log_likelihood(flow: Flow | Mixture, encoder: TableEncoder, numbers: Numbers) -> Floats:
    """log p of every row, given its context, in nats."""
    weight = next(flow.parameters(), torch.empty(0))
    places = offsets(encoder.mass_features) if encoder.mass_features else [None]
    result = np.empty(len(numbers.y))
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        context = None
        if numbers.context is not None:
            context = torch.from_numpy(numbers.context[rows]).to(weight.device, weight.dtype)
        scores = []
        for place in places:
            x, log_det = encoder.to_flow(numbers.y[rows], place)
            log_prob = flow.log_prob(torch.from_numpy(x).to(weight.device, weight.dtype), context)
            scores.append(log_prob.double().cpu().numpy() + log_det)
        result[rows] = scores[0] if len(scores) == 1 else np.logaddexp.reduce(scores, axis=0) - math.log(COUNT)
    return result
