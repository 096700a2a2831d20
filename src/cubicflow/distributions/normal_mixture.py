"""A trainable mixture of normals."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.distributions.base import LOG_SQRT_2PI, Base
from cubicflow.nets.precision import widened
from cubicflow.nets.rng import normal_start


class NormalMixture(Base):
    """A mixture of normals with trainable weights, means and scales.

    The mixture starts near the standard normal, with equal weights and unit scales. The means start a little apart,
    because equal components would stay equal during training.

    A correlated component is a sheared diagonal normal: (I + S)(z - mean) / scale is standard normal, where S is
    strictly lower triangular. This is the LDL' decomposition of the precision matrix. The determinant therefore depends
    on the scales only, and S = 0 is the diagonal normal.

    Samples are differentiable with respect to means, scales and shears. They are not differentiable with respect to the
    weights, because a draw picks one component.

    Args:
        features: D.
        components: the number of normals.
        correlated: give every component a full covariance; otherwise covariances are diagonal.
        spread: the standard deviation of the initial means.
        seed: the seed of the initial means.

    >>> NormalMixture(2, components=3).sample(5).shape
    torch.Size([5, 2])
    """

    def __init__(
        self, features: int, components: int = 5, *, correlated: bool = False, spread: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(features)
        self.components = positive("components", components)
        self.correlated = correlated
        self.spread = spread
        self.seed = seed
        self.logits = nn.Parameter(torch.zeros(components))
        self.means = nn.Parameter(spread * normal_start((components, features), seed, self.logits))
        self.log_scales = nn.Parameter(torch.zeros(components, features))
        # The strict lower triangle holds S. The rest is unused.
        self.shears = nn.Parameter(torch.zeros(components, features, features)) if correlated else None

    @torch.no_grad()
    def set_(self, weights: Tensor, means: Tensor, covariances: Tensor) -> NormalMixture:
        """Set the weights (K,), means (K, D) and covariances (K, D, D), and return the mixture. A mixture that is not
        ``correlated`` uses only the diagonals of the covariances."""
        variances = covariances.diagonal(dim1=-2, dim2=-1)
        if self.shears is None:
            scales = variances.sqrt()
        else:
            factor = torch.linalg.cholesky(covariances)  # (I + S)^-1 diag(scale)
            scales = factor.diagonal(dim1=-2, dim2=-1)
            eye = torch.eye(self.features, dtype=factor.dtype, device=factor.device)
            whiten = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
            self.shears.copy_((scales[..., None] * whiten).tril(-1))
        self.logits.copy_(weights.log())
        self.means.copy_(means)
        self.log_scales.copy_(scales.log())
        return self

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        self._check(z, temperature)
        if temperature == 0:
            return torch.where((z == self._mode()).all(-1), torch.inf, -torch.inf)
        log_scales = self.log_scales + math.log(temperature)
        offsets = z[..., None, :] - self.means  # (..., K, D)
        if self.shears is not None:
            offsets = offsets + torch.einsum("kij,...kj->...ki", self.shears.tril(-1), offsets)
        parts = (offsets * torch.exp(-log_scales)).square() / 2 + log_scales + LOG_SQRT_2PI
        return torch.logsumexp(self.logits.log_softmax(0) - parts.sum(-1), dim=-1)

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        self._check_temperature(temperature)
        if temperature == 0:
            return self._mode().expand(n, -1)
        weights = self.logits.softmax(0).detach()
        picks = torch.multinomial(weights, n, replacement=True, generator=generator) if n else torch.zeros(0).long()
        picks = picks.to(weights.device)
        offsets = temperature * self.log_scales.exp()[picks] * self._normal(n, generator)
        if self.shears is not None:
            shears = self.shears.tril(-1)[picks]  # the solver takes the diagonal to be 1
            columns = widened(offsets)[..., None]
            columns = torch.linalg.solve_triangular(shears.to(columns), columns, upper=False, unitriangular=True)
            offsets = columns[..., 0].to(offsets.dtype)
        return self.means[picks] + offsets

    def as_normal(self) -> tuple[Tensor, Tensor] | None:
        if self.components > 1 or (self.correlated and self.features > 1):
            return None
        return self.means[0], self.log_scales[0].exp()

    def fixed(self) -> FixedMixture:
        return FixedMixture(self)

    def _mode(self) -> Tensor:
        """Return the component mean with the highest density: an approximation of the mode of the mixture."""
        return self.means[self.log_prob(self.means).argmax()]


class FixedMixture(Base):
    """A mixture of normals whose samples are a function of given noise.

    ``noise`` has shape (N, features + 1): standard normal numbers, and in the last column a uniform number that selects
    the component.

    >>> base = FixedMixture(NormalMixture(2, components=3))
    >>> base.from_noise(torch.tensor([[0.0, 0.0, 0.1]])).shape
    torch.Size([1, 2])
    """

    noise = "standard normal; the last column uniform on [0, 1)"

    def __init__(self, mixture: NormalMixture) -> None:
        super().__init__(mixture.features)
        self.mixture = mixture
        weights = mixture.logits.detach().double().softmax(0)
        self.ends = nn.Buffer(weights.cumsum(0)[:-1].to(mixture.means.dtype))  # cumulative weights without the last
        scales = mixture.log_scales.detach().double().exp()  # (K, D)
        whiten = torch.eye(mixture.features, dtype=torch.float64).expand(len(scales), -1, -1)
        if mixture.shears is not None:
            whiten = whiten + mixture.shears.detach().double().tril(-1)
        self.factors = nn.Buffer((torch.linalg.inv(whiten) * scales[:, None, :]).to(mixture.means.dtype))  # (K, D, D)

    @property
    def noise_features(self) -> int:
        return self.features + 1

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        return self.mixture.log_prob(z, temperature)

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        return self.mixture.sample(n, temperature, generator)

    def from_noise(self, noise: Tensor) -> Tensor:
        picks = (noise[:, -1:] >= self.ends).long().sum(1)  # (N,)
        offsets = (self.factors[picks] * noise[:, None, :-1]).sum(2)
        return self.mixture.means[picks] + offsets
