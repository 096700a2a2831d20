"""Continuous flows: neural ordinary differential equations, and FFJORD."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cubicflow.arguments import config_of, number, one_of, positive
from cubicflow.nets import ConcatSquashMLP
from cubicflow.nets.network_factory import NetworkFactory, make_network
from cubicflow.nets.rng import current_generator
from cubicflow.transforms.solvers import DORMAND_PRINCE, RK4, Field, find_steps, step
from cubicflow.transforms.transform import Transform, check_inputs

SOLVERS = ("dopri5", "rk4")
TRACES = ("exact", "hutchinson")


class Continuous(Transform):
    """A continuous flow (Chen et al. 2018): z = x(1) for dx/dt = f(x, t), x(0) = x, with a network f.

    **It is invertible** if f is Lipschitz in x, as the default network is: through each point passes one solution (the
    theorem of Picard and Lindelof), and the inverse follows it back from t = 1. The log-determinant is the integral of
    the trace of df/dx along the solution (their theorem 1).

    - ``trace="exact"`` computes the trace by D directional derivatives at every evaluation of f.
    - ``trace="hutchinson"`` is FFJORD (Grathwohl et al. 2019): in training mode e' (df/dx) e, with one random vector e
      of signs for each row, which is an unbiased estimate by one derivative. In evaluation mode the trace is exact.

    - ``solver="dopri5"``: steps of Dormand and Prince, whose lengths each row chooses so that errors stay below
      atol + rtol |x|. So a row's density does not depend on the other rows of a batch. The map and its inverse agree to
      this tolerance, and so does ``log_det`` with the map's Jacobian.
    - ``solver="rk4"``: ``steps`` equal steps of the classical method of order 4, without control of the error.

    Gradients are those of the steps that were taken, by backpropagation. With ``adjoint``, only the states between
    steps are kept, and each step is repeated in the backward pass: the memory is that of one step. (Chen et al. solve
    the adjoint equation instead, whose solution differs from the gradient by the error of the solver.)

    Args:
        features: D.
        network: f, from D values and the time, and the context, to D slopes: a module, or a factory as in
            :class:`~cubicflow.transforms.Coupling`. The default starts at 0, where the layer is the identity.
        context_features: C.
        trace, solver, adjoint: as above.
        steps: of "rk4".
        rtol, atol, max_steps: of "dopri5". A row that needs more steps raises a SolverError.

    >>> x = torch.randn(4, 3)
    >>> z, log_det = Continuous(3)(x)
    >>> torch.allclose(z, x), log_det.shape
    (True, torch.Size([4]))
    """

    one_pass = False  # each step uses all weights, and values decide the number of steps

    def __init__(
        self,
        features: int,
        network: nn.Module | NetworkFactory = ConcatSquashMLP,
        *,
        context_features: int = 0,
        trace: str = "exact",
        solver: str = "dopri5",
        steps: int = 20,
        rtol: float = 1e-5,
        atol: float = 1e-5,
        max_steps: int = 1000,
        adjoint: bool = False,
    ) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.context_features = context_features
        self.trace, self.solver = one_of("trace", trace, TRACES), one_of("solver", solver, SOLVERS)
        self.adjoint = adjoint
        self.exact = trace == "exact"
        self.steps, self.max_steps = positive("steps", steps), positive("max_steps", max_steps)
        self.rtol, self.atol = number("rtol", rtol, above=0), number("atol", atol, above=0)
        self.network = make_network(network, features + 1, features, context_features)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._solution(x, context, 0.0, 1.0)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._solution(z, context, 1.0, 0.0)

    def _solution(self, x: Tensor, context: Tensor | None, start: float, end: float) -> tuple[Tensor, Tensor]:
        check_inputs(self, x, context)
        field = self._field(x, context)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        y = torch.cat([wide, torch.zeros_like(wide[:, :1])], dim=1)  # values and log_det, (N, D + 1)
        method, fixed = RK4, (end - start) / self.steps
        if self.solver == "rk4":
            times = (torch.full_like(y[:, :1], start + i * fixed) for i in range(self.steps))
            steps = [(t, torch.full_like(t, fixed)) for t in times]
        else:
            method, control = DORMAND_PRINCE, config_of(self, "rtol", "atol", "max_steps")
            steps, last = find_steps(field, y, start, end, **control)
            if not torch.is_grad_enabled():
                steps, y = [], last
        for t, h in steps:
            if self.adjoint and torch.is_grad_enabled():
                y, _ = checkpoint(step, method, field, t, h, y, use_reentrant=False, preserve_rng_state=False)
            else:
                y, _ = step(method, field, t, h, y)
        return y[:, :-1].to(x.dtype), y[:, -1]

    def _field(self, x: Tensor, context: Tensor | None) -> Field:
        """Return the slopes of values and log_det, (N, D + 1), as a function of t, (N, 1), and of both."""
        if self.trace == "hutchinson" and self.training:
            directions = torch.empty_like(x).bernoulli_(0.5, generator=current_generator(x.device))[None] * 2 - 1
        else:
            directions = torch.eye(self.features, dtype=x.dtype, device=x.device)[:, None].expand(-1, len(x), -1)

        def field(t: Tensor, y: Tensor) -> Tensor:
            inputs = torch.cat([y[:, :-1], t], dim=1).to(x.dtype)
            slopes, derivatives = self._along(inputs, directions, context)
            trace = (derivatives * directions).sum((0, 2))
            return torch.cat([slopes, trace[:, None]], dim=1).to(y.dtype)

        return field

    def _along(self, inputs: Tensor, directions: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return f, (N, D), and its derivatives in K directions, (K, N, D)."""
        if isinstance(self.network, ConcatSquashMLP):
            return self.network.along(inputs, directions, context)

        def network(values: Tensor) -> Tensor:
            rows = torch.cat([values, inputs[:, -1:]], dim=1)
            outputs: Tensor = self.network(rows) if context is None else self.network(rows, context)
            return outputs

        def along(direction: Tensor) -> tuple[Tensor, Tensor]:
            found = torch.func.jvp(network, (inputs[:, :-1],), (direction,))
            return found[0], found[1]

        outputs, derivatives = torch.func.vmap(along)(directions)
        return outputs[0], derivatives
