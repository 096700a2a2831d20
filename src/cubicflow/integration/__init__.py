"""Adaptive Monte Carlo integration: :func:`integrate`, and :class:`Integrator` to add evaluations later.

Points are drawn in rounds. Each round is drawn from a blend of samplers on the unit cube, fitted to all points so far:

- a uniform sampler, for the first round;
- a mixture of products of one-dimensional densities, a generalisation of vegas's grid (``product_mixture.py``);
- a flow, if products fit the integrand badly and there are enough points to train a flow (``flow_sampler.py``).

Shapes: points are (N, D) in float64, weights and values (N,). Samplers work on the unit cube only; ``bounds.py`` maps
the unit cube to boxes, lines and circles.

Invariants:

- Every point has the weight f / sum_t n_t q_t over all rounds t of its fold (``evaluations.py``). So every evaluation
  is used, and the weights sum to the estimate.
- The samplers of a fold are fitted to the points of another fold, never to the fold's own points. So the estimate has
  no bias from a density that was fitted to the points it weighs.
- A round consists of replicates: independent randomised nets of points. The error is computed from their spread.

What can go wrong: a narrow peak that no point of the first rounds hits is missing from the estimate and from the error.
If a few points dominate the weights, the error is unreliable, and the result has a warning.
"""

from cubicflow.integration.bounds import Bounds, Circle, Line
from cubicflow.integration.integral import Integral
from cubicflow.integration.integrand import IntegrandError
from cubicflow.integration.integrator import Integrator, integrate

__all__ = ["Bounds", "Circle", "Integral", "IntegrandError", "Integrator", "Line", "integrate"]
