"""The mixture for few rows, and its three families of members. Every member is an exact flow.

normals     a mixture of correlated normals, by expectation-maximisation
marginals   a spline for each column, then a mixture of correlated normals
couplings   a spline for each column, then coupling layers

Each family has one member for each fold. Held-out rows determine the share of each family in the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
import torch

from cubicflow.distributions import NormalMixture
from cubicflow.estimator.cross_fitting import Folds, Schedule, stacking_weights, train
from cubicflow.estimator.expectation_maximisation import Normals, fit_normals
from cubicflow.estimator.weighted_rows import WeightedRows
from cubicflow.flows import Flow, Mixture
from cubicflow.nets import ResidualMLP
from cubicflow.nets.rng import seeded
from cubicflow.progress import Progress
from cubicflow.transforms import Compose, Coupling, ElementMap, Elementwise, LULinear, Transform
from cubicflow.transforms.coupling import alternating_mask
from cubicflow.weights import Floats

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # numbers of components
PRIOR_ROWS = (0.02, 0.2, 1.0, 4.0)  # strengths of the prior on covariances, in rows per column
ROWS_PER_COMPONENT = 4
FEWEST_ROWS = 50  # rows; with fewer rows, splines cannot improve on normals
LEAST_SHARE = 0.02  # share of the mixture; a family with a smaller share is left out


@dataclass(frozen=True)
class MemberSettings:
    """Sizes of the members; see :class:`~cubicflow.estimator.density.CubicFlowDensity`."""

    max_components: int
    marginals: Schedule
    couplings: Schedule
    seed: int
    num_layers: int = 2
    hidden_features: int = 32
    num_bins: int = 8
    dropout: float = 0.2


@dataclass(frozen=True)
class MemberFamily:
    """Members of one family, and the log density (N,) of each row under the member that left it out."""

    name: str
    flows: list[Flow]
    held_out: Floats


def fit_ensemble(
    rows: WeightedRows, folds: Folds, settings: MemberSettings, display: Progress
) -> tuple[Mixture, dict[str, float], Floats]:
    """Fit the members of all families. Return their mixture with the highest held-out likelihood, the share of each
    family, and the held-out log density of each judged row.
    """
    features = rows.x.shape[1]
    identities = [Compose([]) for _ in range(folds.members)]
    families = [_normals("normals", identities, rows, folds, settings, display)]
    if len(rows) >= FEWEST_ROWS:
        splines = [
            _gaussian(Elementwise(features, _element_map(settings)), rows, folds, m) for m in range(folds.members)
        ]
        display.notify("a spline for each column")
        train(splines, rows, folds, settings.marginals, display)
        families.append(_normals("marginals", [flow.transform for flow in splines], rows, folds, settings, display))
        if settings.num_layers and features > 1:
            display.notify("coupling layers")
            flows = [_coupled(flow, settings, member) for member, flow in enumerate(splines)]
            found = train(flows, rows, folds, settings.couplings, display)
            families.append(MemberFamily("couplings", flows, found))
    judged = folds.judged
    weights = stacking_weights([family.held_out[judged] for family in families], rows.weights[judged])
    kept = [(family, share) for family, share in zip(families, weights, strict=True) if share >= LEAST_SHARE]
    total = sum(share for _, share in kept)
    shares = {family.name: float(share / total) for family, share in kept}
    held_out = np.logaddexp.reduce(
        [family.held_out[judged] + np.log(shares[family.name]) for family, _ in kept], axis=0
    )
    flows = [flow for family, _ in kept for flow in family.flows]
    return Mixture(flows, [shares[family.name] for family, _ in kept for _ in family.flows]), shares, held_out


def _normals(
    name: str,
    transforms: Sequence[Transform],
    rows: WeightedRows,
    folds: Folds,
    settings: MemberSettings,
    display: Progress,
) -> MemberFamily:
    """Fit mixtures of normals to the rows after each member's transform.

    The number of components and the strength of the prior are those with the highest held-out likelihood.
    """
    spaces = []
    with torch.no_grad():
        for transform in transforms:
            z, log_det = transform(torch.as_tensor(rows.x, dtype=torch.get_default_dtype()))
            spaces.append((z.double().numpy(), log_det.double().numpy()))
    tried = []
    features = rows.x.shape[1]
    most = min(settings.max_components, len(rows) // ROWS_PER_COMPONENT)
    for prior_rows in PRIOR_ROWS:
        worse, before = 0, -np.inf
        for size in (size for size in SIZES if size <= max(most, 1)):
            found, held_out = [], np.full(len(rows), np.nan)
            for member, (z, log_det) in enumerate(spaces):
                unseen = folds.held_out(member)
                generator = np.random.default_rng((settings.seed, member))
                found.append(fit_normals(z[~unseen], rows.weights[~unseen], size, prior_rows * features, generator))
                held_out[unseen] = found[-1].log_prob(z[unseen]) + log_det[unseen]
            score = float(np.average(held_out[folds.judged], weights=rows.weights[folds.judged]))
            tried.append((score, found, held_out))
            worse = worse + 1 if score < before else 0
            before = max(before, score)
            if worse == 2:
                break
    _, best, held_out = max(tried, key=itemgetter(0))
    display.notify(f"{name}: {max(len(found.weights) for found in best)} components")
    flows = [Flow(normal_base(found), transform) for found, transform in zip(best, transforms, strict=True)]
    return MemberFamily(name, [flow.eval() for flow in flows], held_out)


def _gaussian(transform: Transform, rows: WeightedRows, folds: Folds, member: int) -> Flow:
    """Return a flow whose base is a normal with the mean and covariance of a member's rows.

    ``transform`` must still be the identity.
    """
    seen = ~folds.held_out(member)
    features = rows.x.shape[1]
    # With at most as many rows as columns, all rows lie in a hyperplane. Only a prior gives a width orthogonal to it.
    prior_rows = 0.0 if seen.sum() > features else float(features)
    normal = fit_normals(rows.x[seen], rows.weights[seen], 1, prior_rows, np.random.default_rng(0))
    return Flow(normal_base(normal), transform)


def _coupled(flow: Flow, settings: MemberSettings, member: int) -> Flow:
    """Return a copy of a member with coupling layers after its splines. Each coupling layer is still the identity."""
    features = flow.base.features
    splines = Elementwise(features, _element_map(settings))
    splines.load_state_dict(flow.transform.state_dict())
    base = NormalMixture(features, 1, correlated=True)
    base.load_state_dict(flow.base.state_dict())
    with seeded(settings.seed + member):
        return Flow(base, Compose([splines, *coupling_layers(features, settings)]))


def coupling_layers(features: int, settings: MemberSettings, context_features: int = 0) -> list[Transform]:
    """Return alternating linear and coupling layers. For a single feature there are only coupling layers.

    The coupling layer of a single feature is an elementwise map with params from the context.
    """
    network = partial(ResidualMLP, hidden_features=settings.hidden_features, num_blocks=1, dropout=settings.dropout)
    layers: list[Transform] = []
    for i in range(settings.num_layers):
        if features > 1:
            layers.append(LULinear(features, permute=False))
        mask = alternating_mask(features, even=i % 2 == 0) if features > 1 else [True]
        layers.append(Coupling(mask, network, _element_map(settings), context_features=context_features))
    return layers


def normal_base(found: Normals) -> NormalMixture:
    """Return a fitted mixture of normals as the base of a flow."""
    base = NormalMixture(found.means.shape[1], len(found.weights), correlated=True)
    return base.set_(*(torch.from_numpy(part) for part in (found.weights, found.means, found.covariances)))


def _element_map(settings: MemberSettings) -> ElementMap:
    return ElementMap("cubic", num_bins=settings.num_bins)
