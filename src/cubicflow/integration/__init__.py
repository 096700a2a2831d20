"""Integrals of functions that can be evaluated: :func:`integrate`, and :class:`Integrator` to go on.

Points are drawn in rounds. Each round is drawn from a blend of samplers of the unit cube, fitted to all points so far:

- even points, for the first round;
- a mixture of products of one-dimensional densities, vegas's grid made plural (``product_mixture.py``);
- a flow, where products do not suit the integrand and there are points enough to train it (``flow_sampler.py``).

Shapes: points are (N, D) in float64, weights and values (N,). Samplers know the unit cube alone; ``bounds.py`` knows
the way from there to boxes, lines and circles.

Invariants:

- Every point has the weight f / sum_t n_t q_t over all rounds t of its fold (``evaluations.py``), so every evaluation
  counts, and the weights sum to the estimate.
- The samplers of a fold are fitted to the points of another one, never to its own. The estimate has no bias from a
  density that was fitted to the very points it weighs.
- A round is made of replicates, independent randomised nets of points. The error is their spread.

What can go wrong: a narrow peak that no point of the first rounds has met is missing from the estimate and from the
error. Weights that few points dominate make the error a guess; the result then has a warning.
"""

from cubicflow.integration.bounds import Bounds, Circle, Line
from cubicflow.integration.integral import Integral
from cubicflow.integration.integrand import IntegrandError
from cubicflow.integration.integrator import Integrator, integrate

__all__ = ["Bounds", "Circle", "Integral", "IntegrandError", "Integrator", "Line", "integrate"]
