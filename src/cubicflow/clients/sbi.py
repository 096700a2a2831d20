"""Density estimators for sbi: :func:`posterior` for NPE and :func:`likelihood` for NLE, also in several rounds.

    inference = NPE(prior, density_estimator=posterior(prior=prior))      # sbi's training loop
    estimator = posterior(prior=prior).fit(theta, x)                      # cubicflow's training loop

sbi's ``build_posterior`` accepts both estimators. Shapes follow sbi: theta (N, D), x (N, *event).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.clients.prior_support import PriorSupport, prior_bounds
from cubicflow.extras import need
from cubicflow.flows import Flow, TabularConfig, tabular
from cubicflow.training import fit
from cubicflow.transforms import Compose, Standardise

need("sbi", "cubicflow.clients.sbi")

from sbi.neural_nets.estimators import ConditionalDensityEstimator  # noqa: E402 - it may be absent

__all__ = ["EstimatorBuilder", "FlowEstimator", "likelihood", "posterior"]

Z_SCORES = ("independent", "structured", "none")
# Tuned for ten thousand simulations of a few parameters, on held-out simulations. Dropout mattered most. The learning
# rate is high because the networks' outputs are scaled down.
FLOW_DEFAULTS: dict[str, Any] = {
    "layer": "autoregressive",
    "affine_first": True,
    "num_layers": 3,
    "hidden_features": 64,
    "dropout": 0.15,
}
LEARNING_RATE = 5e-3
LARGEST_BATCH = 256


class FlowEstimator(ConditionalDensityEstimator):  # type: ignore[misc]
    """A flow for p(input | condition) that sbi can train and sample.

    Args:
        flow: a flow whose context is the condition. Its embedding net is trained with it.

    >>> import cubicflow as cf
    >>> estimator = FlowEstimator(cf.flows.tabular(2, context_features=3, num_layers=2, hidden_features=16))
    >>> samples, log_prob = estimator.sample_and_log_prob((5,), torch.zeros(4, 3))
    >>> samples.shape, log_prob.shape
    (torch.Size([5, 4, 2]), torch.Size([5, 4]))
    """

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow, input_shape=torch.Size(flow.shape), condition_shape=torch.Size(flow.context_shape))

    @property
    def embedding_net(self) -> nn.Module:
        """The network from conditions to the contexts of the layers."""
        return self.net.embedding_net or nn.Identity()

    def log_prob(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the log density (sample_dim, batch_dim) of inputs (sample_dim, batch_dim, D) or (batch_dim, D)."""
        self._check("input", input, self.input_shape)
        self._check("condition", condition, self.condition_shape)
        found: Tensor = self.net.log_prob(input[None] if input.ndim == 2 else input, condition)
        return found

    def loss(self, input: Tensor, condition: Tensor, **_: Any) -> Tensor:
        """Return the negative log density (batch_dim,)."""
        return -self.log_prob(input, condition)[0]

    def sample(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> Tensor:
        """Draw samples (*sample_shape, batch_dim, D)."""
        self._check("condition", condition, self.condition_shape)
        samples: Tensor = self.net.sample(torch.Size(sample_shape).numel(), condition)
        return samples.reshape(*sample_shape, *samples.shape[1:])

    def sample_and_log_prob(self, sample_shape: Sequence[int], condition: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        """Draw samples (*sample_shape, batch_dim, D) with their log densities, in one pass."""
        self._check("condition", condition, self.condition_shape)
        samples, log_prob = self.net.sample_and_log_prob(torch.Size(sample_shape).numel(), condition)
        return samples.reshape(*sample_shape, *samples.shape[1:]), log_prob.reshape(*sample_shape, -1)

    def _check(self, name: str, given: Tensor, shape: torch.Size) -> None:
        if given.ndim <= len(shape) or given.shape[given.ndim - len(shape) :] != shape:
            wanted = ", ".join(["batch", *map(str, shape)])
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, and this estimator was built for {tuple(shape)}; give {name} "
                f"of shape ({wanted})"
            )


class EstimatorBuilder:
    """A builder that creates a density estimator from simulations, in sbi's protocol.

    Use :func:`posterior` or :func:`likelihood` to make a builder; they document the arguments.

    >>> builder = posterior(hidden_features=16)
    >>> estimator = builder(torch.randn(50, 2), torch.randn(50, 3))
    >>> estimator.sample((5,), torch.zeros(1, 3)).shape
    torch.Size([5, 1, 2])
    """

    def __init__(
        self,
        density_of: str,
        prior: Any = None,
        *,
        bounded: bool | None = None,
        embedding_net: nn.Module | None = None,
        z_score: str | None = "independent",
        **settings: Any,
    ) -> None:
        self.density_of = density_of
        self.prior = prior
        self.bounded = bounded
        self.embedding_net = nn.Identity() if embedding_net is None else embedding_net
        self.z_score = z_score or "none"
        self.settings = {**FLOW_DEFAULTS, **settings}
        TabularConfig.make(False, self.settings)  # raises for unknown settings before anything is simulated
        if self.z_score not in Z_SCORES:
            raise ValueError(f"z_score must be one of {', '.join(map(repr, Z_SCORES))}, got {z_score!r}")
        if bounded and prior is None:
            raise ValueError("bounded=True needs the prior's bounds; give prior=, or leave bounded= out")

    def __call__(self, theta: Tensor, x: Tensor) -> FlowEstimator:
        """Return an untrained estimator. Its standardisation is computed from these simulations."""
        theta, x = _finite("theta", theta), _finite("x", x)
        if len(theta) != len(x) or len(x) < 2:
            raise ValueError(f"theta and x need the same number of rows, 2 or more, got {len(theta)} and {len(x)}")
        inputs, condition = self._pair(theta, x)
        if inputs.ndim != 2:
            raise ValueError(
                f"{self.density_of} must have shape (N, D) to have a density, got {tuple(inputs.shape)}; flatten it"
            )
        support = self._support(inputs.shape[1])
        if outside := int((~support.contains(inputs)).sum()):
            raise ValueError(
                f"{outside} of {len(inputs)} rows of theta lie outside the prior's support; give the prior that theta "
                "was drawn from, or bounded=False"
            )
        embedding = Embedding(*self._standard(condition), deepcopy(self.embedding_net).cpu())
        core = tabular(inputs.shape[1], context_features=_embedded_features(embedding, condition[:2]), **self.settings)
        transform = Compose([support, Standardise.of(support(inputs)[0]), core.transform])
        return FlowEstimator(Flow(core.base, transform, context_shape=condition.shape[1:], embedding_net=embedding))

    def fit(self, theta: Tensor, x: Tensor, *, progress: bool = True, **settings: Any) -> FlowEstimator:
        """Return an estimator trained by maximum likelihood with :func:`cubicflow.training.fit`.

        The training has a cosine learning rate and averaged weights, and keeps the best weights on held-out
        simulations. sbi's ``build_posterior`` accepts the estimator.

        For a posterior, theta must be drawn from the prior, or from the prior restricted to a part of its support. For
        a likelihood, theta may come from any distribution, so each round of a sequential method fits all simulations so
        far. For the atomic loss of sequential NPE, use sbi's own training loop.

        Args:
            theta: parameters, (N, D).
            x: simulations, (N, *event). Rows with NaN or inf are left out for a posterior, with a warning, as in sbi.
                For a likelihood they raise ValueError, because leaving them out would bias the likelihood.
            progress: whether to show progress on standard error.
            settings: settings of :class:`~cubicflow.training.TrainingConfig`, such as ``time_budget`` in seconds.

        The returned estimator is on the device of theta, wherever it was trained.

        >>> theta = torch.randn(100, 2)
        >>> estimator = posterior(hidden_features=8).fit(theta, theta + 1, steps=5, progress=False)
        >>> estimator.log_prob(theta, theta + 1).shape
        torch.Size([1, 100])
        """
        device = torch.as_tensor(theta).device
        theta, x = self._valid(theta, x)
        estimator = self(theta, x)
        inputs, condition = self._pair(theta.float(), x.float())
        settings = {"learning_rate": LEARNING_RATE, "batch_size": min(LARGEST_BATCH, len(x) // 8 + 1), **settings}
        fit(estimator.net, (inputs, condition), progress=progress, **settings)
        estimator.to(device).eval()
        return estimator

    def _pair(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of the density, and their conditions."""
        return (theta, x) if self.density_of == "theta" else (x, theta)

    def _support(self, features: int) -> PriorSupport:
        bounds = [(-math.inf, math.inf)] * features
        if self.prior is not None and self.bounded is not False:
            bounds = prior_bounds(self.prior, features)
        open_columns = [i for i, pair in enumerate(bounds) if any(map(math.isinf, pair))]
        if self.bounded and open_columns:
            raise ValueError(
                f"bounded=True, but the prior lacks a bound in columns {open_columns}; give a prior on a box, such "
                "as sbi's BoxUniform, or leave bounded= out"
            )
        low, high = zip(*bounds, strict=True)
        return PriorSupport(low, high)

    def _standard(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation in the shape of one condition. A constant element has deviation 1."""
        shape = condition.shape[1:]
        if self.z_score == "none":
            return torch.zeros(shape), torch.ones(shape)
        rows = condition.double()
        over = 0 if self.z_score == "independent" else tuple(range(rows.ndim))
        mean, std = rows.mean(over), rows.std(over)
        constant = rows.amax(over) == rows.amin(over)
        std = torch.where(constant, 1, std)
        return mean.expand(shape).float().clone(), std.expand(shape).float().clone()

    def _valid(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return theta and x without the simulations that have NaN or inf in x."""
        theta, x = torch.as_tensor(theta).cpu(), torch.as_tensor(x).cpu()
        valid = x.flatten(1).isfinite().all(1) if x.ndim > 1 else x.isfinite()
        if bool(valid.all()) or len(theta) != len(x):
            return theta, x
        bad = f"{int((~valid).sum())} of {len(x)} simulations have NaN or inf in x"
        if self.density_of == "x":
            raise ValueError(
                f"{bad}; leaving them out would bias a likelihood, so replace NaN and inf by a number outside the "
                "range of x"
            )
        if not valid.any():
            raise ValueError(f"{bad}, so no simulation is left for training; check the simulator")
        warnings.warn(f"{bad}; they are left out of training", stacklevel=3)
        return theta[valid], x[valid]


def posterior(
    prior: Any = None,
    *,
    bounded: bool | None = None,
    embedding_net: nn.Module | None = None,
    z_score_x: str | None = "independent",
    **settings: Any,
) -> EstimatorBuilder:
    """Return a builder of p(theta | x), for ``NPE(prior, density_estimator=posterior(prior=prior))``.

    The density is 0 outside the prior's support. So all samples lie in the support, and sbi need not correct for leaked
    probability. The flow models the logit of a parameter with two bounds. For a parameter with one bound, it models the
    logarithm of the distance from the bound.

    Args:
        prior: the prior given to sbi. Without a prior, or for a prior without bounds, the density is on all of R^D.
        bounded: True raises ValueError for a prior without two bounds for every parameter; False ignores the bounds.
        embedding_net: a network from a standardised x to features, trained with the flow.
        z_score_x: how x is standardised, in sbi's terms: ``"independent"``, ``"structured"`` or ``"none"``.
        settings: settings of :class:`~cubicflow.flows.TabularConfig`, such as ``num_layers``, ``hidden_features`` or
            ``num_bins``.

    >>> from sbi.utils import BoxUniform
    >>> prior = BoxUniform(torch.zeros(2), torch.ones(2))
    >>> theta = prior.sample((100,))
    >>> estimator = posterior(prior=prior).fit(theta, theta + torch.randn(100, 2), steps=5, progress=False)
    >>> samples = estimator.sample((1000,), torch.zeros(1, 2))
    >>> bool(prior.support.check(samples).all()), estimator.log_prob(torch.full((1, 2), 1.5), torch.zeros(1, 2))
    (True, tensor([[-inf]], grad_fn=<...>))
    """
    return EstimatorBuilder("theta", prior, bounded=bounded, embedding_net=embedding_net, z_score=z_score_x, **settings)


def likelihood(
    *, embedding_net: nn.Module | None = None, z_score_theta: str | None = "independent", **settings: Any
) -> EstimatorBuilder:
    """Return a builder of p(x | theta), for ``NLE(prior, density_estimator=likelihood())``.

    Args:
        embedding_net: a network from a standardised theta to features, trained with the flow.
        z_score_theta: how theta is standardised: ``"independent"``, ``"structured"`` or ``"none"``.
        settings: settings of :class:`~cubicflow.flows.TabularConfig`.

    >>> theta = torch.randn(100, 2)
    >>> estimator = likelihood().fit(theta, theta.sum(1, keepdim=True), steps=5, progress=False)
    >>> estimator.input_shape, estimator.condition_shape
    (torch.Size([1]), torch.Size([2]))
    """
    return EstimatorBuilder("x", embedding_net=embedding_net, z_score=z_score_theta, **settings)


class Embedding(nn.Module):
    """A network that standardises conditions before it embeds them in vectors (N, C)."""

    def __init__(self, mean: Tensor, std: Tensor, net: nn.Module) -> None:
        super().__init__()
        self.mean, self.std, self.net = nn.Buffer(mean), nn.Buffer(std), net

    def standardise(self, condition: Tensor) -> Tensor:
        """Return conditions with mean 0 and standard deviation 1."""
        return (condition - self.mean) / self.std

    def forward(self, condition: Tensor) -> Tensor:
        embedded: Tensor = self.net(self.standardise(condition))
        return embedded.flatten(1) if embedded.ndim > 1 else embedded[:, None]


def _finite(name: str, values: Tensor) -> Tensor:
    values = torch.as_tensor(values)
    if not values.is_floating_point():
        values = values.float()
    if values.ndim < 2:
        raise ValueError(f"{name} must have shape (N, ...), a row for each simulation, got {tuple(values.shape)}")
    if bad := int((~values.flatten(1).isfinite().all(1)).sum()):
        raise ValueError(f"{bad} of {len(values)} rows of {name} have NaN or inf; leave these simulations out")
    return values.float()


@torch.no_grad()
def _embedded_features(embedding: Embedding, conditions: Tensor) -> int:
    """Return the number of features that the embedding net outputs, found by a call with two conditions."""
    training = embedding.training
    try:
        features = int(embedding.eval()(conditions).shape[1])
    except RuntimeError as error:
        raise ValueError(
            f"embedding_net does not accept a batch of shape {tuple(conditions.shape)}, two standardised conditions: "
            f"{' '.join(str(error).split())}; give a network for conditions of shape {tuple(conditions.shape[1:])}"
        ) from error
    embedding.train(training)
    return features
