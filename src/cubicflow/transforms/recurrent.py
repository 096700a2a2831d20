"""The recurrent transformation of TAN."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.transform import Transform, check_inputs


class Recurrent(Transform):
    """The recurrent transformation of transformation autoregressive networks (Oliva et al. 2018, section 2.2):
    z_i = r(y x_i + w's_i + b), with the state s_i = relu(u x_{i-1} + V s_{i-1} + a), where x_{-1} = 0 and s_{-1} = 0.

    **It is invertible for all parameters.** y is an exponential, and r is a leaky relu, t for t >= 0 and alpha t below,
    with an exponential alpha. Both increase from the real line onto itself, and s_i follows from x_0 .. x_{i-1}, which
    the inverse knows when it computes x_i. The Jacobian is triangular: log|det| is D log y plus log alpha for every
    z_i < 0. (The paper keeps alpha below 1, which invertibility does not need.)

    Both directions take D steps of a state of ``state_features`` numbers. The layer starts as the identity.

    The other transformations of the paper are these: a linear one, :class:`~cubicflow.transforms.LULinear`; the
    recurrent shift z_i = x_i + m(h_i), an additive :class:`~cubicflow.transforms.Autoregressive` layer with a
    :class:`~cubicflow.nets.CausalGRU`; and an :class:`~cubicflow.transforms.Elementwise` leaky relu. Its conditionals
    are a base, :class:`~cubicflow.distributions.AutoregressiveMixture`.

    Args:
        features: D.
        state_features: the size of the state.
        context_features: C. A linear map of the context is added to a.
        seed: the seed of u.

    >>> x = torch.randn(4, 3)
    >>> z, log_det = Recurrent(3)(x)
    >>> torch.equal(z, x), log_det.shape
    (True, torch.Size([4]))
    """

    def __init__(self, features: int, state_features: int = 16, *, context_features: int = 0, seed: int = 0) -> None:
        super().__init__()
        self.features = self.inverse_passes = positive("features", features)
        self.state_features = positive("state_features", state_features)
        self.context_features, self.seed = context_features, seed
        self.log_y, self.log_alpha, self.b = (nn.Parameter(torch.zeros(())) for _ in range(3))
        self.w, self.a = (nn.Parameter(torch.zeros(state_features)) for _ in range(2))
        self.u = nn.Parameter(normal_start((state_features,), seed, self.a))
        self.v = nn.Parameter(torch.eye(state_features))
        self.of_context = nn.Linear(context_features, state_features, bias=False) if context_features else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, s, before = self._start(x, context)
        sums: list[Tensor] = []  # the arguments of r
        for value in x.unbind(1):
            s = self._next(before, s, a)
            sums.append(self.log_y.exp() * value + s @ self.w + self.b)
            before = value
        t = torch.stack(sums, dim=1)
        return torch.where(t < 0, self.log_alpha.exp() * t, t), self._log_det(t)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, s, before = self._start(z, context)
        t = torch.where(z < 0, torch.exp(-self.log_alpha) * z, z)
        columns: list[Tensor] = []
        for value in t.unbind(1):
            s = self._next(before, s, a)
            before = (value - s @ self.w - self.b) * torch.exp(-self.log_y)
            columns.append(before)
        return torch.stack(columns, dim=1), -self._log_det(t)

    def _start(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return a, (S,) or (N, S), the state s_{-1}, (N, S), and the feature x_{-1}, (N,)."""
        check_inputs(self, x, context)
        a = self.a if self.of_context is None else self.a + self.of_context(context)
        return a, x.new_zeros(x.shape[0], self.state_features), x.new_zeros(x.shape[0])

    def _next(self, before: Tensor, s: Tensor, a: Tensor) -> Tensor:
        return F.relu(before[:, None] * self.u + s @ self.v.T + a)

    def _log_det(self, t: Tensor) -> Tensor:
        return self.features * self.log_y + torch.where(t < 0, self.log_alpha, 0.0).sum(1)
