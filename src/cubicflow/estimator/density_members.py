"""The three kinds of members a density is made of, each an exact flow, and the mixture of them all.

normals     a mixture of correlated normals, by expectation-maximisation
marginals   the same, behind a spline for each column that makes the column's own distribution simple
couplings   those splines, then coupling layers

Each kind has one member for each fold. How much of each kind to take is decided by the rows its members have not seen.
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
from cubicflow.estimator.weighted_rows import Floats, WeightedRows
from cubicflow.flows import Flow, Mixture
from cubicflow.nets import ResidualMLP
from cubicflow.nets.draws import seeded
from cubicflow.training.progress import Progress
from cubicflow.transforms import Compose, Coupling, ElementMap, Elementwise, LULinear, Transform
from cubicflow.transforms.coupling import alternating_mask

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BORROWED = (0.02, 0.2, 1.0, 4.0)  # rows for each column
ROWS_PER_COMPONENT = 4
FEWEST_ROWS = 50  # with fewer, there is nothing that splines could learn beyond normals
LEAST_SHARE = 0.02  # of the mixture; a kind below it is left out


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
class Kind:
    """The members of one kind, and the log density of each row under the one that has not seen it."""

    name: str
    flows: list[Flow]
    held_out: Floats


@dataclass(frozen=True)
class Ensemble:
    """All members as one density, the ``shares`` of the kinds in it, and what the judged rows score when held out."""

    flow: Mixture
    shares: dict[str, float]
    held_out: Floats


def fit_ensemble(rows: WeightedRows, folds: Folds, settings: MemberSettings, shown: Progress) -> Ensemble:
    """The members of all kinds, in the mixture that held-out rows like best."""
    features = rows.x.shape[1]
    blank = [Compose([]) for _ in range(folds.members)]
    kinds = [_normals("normals", blank, rows, folds, settings, shown)]
    if len(rows) >= FEWEST_ROWS:
        splines = [
            _gaussian(Elementwise(features, _element_map(settings)), rows, folds, m) for m in range(folds.members)
        ]
        shown.say("a spline for each column")
        train(splines, rows, folds, settings.marginals, shown)
        kinds.append(_normals("marginals", [flow.transform for flow in splines], rows, folds, settings, shown))
        if settings.num_layers and features > 1:
            shown.say("coupling layers")
            flows = [_coupled(flow, settings, member) for member, flow in enumerate(splines)]
            found = train(flows, rows, folds, settings.couplings, shown)
            kinds.append(Kind("couplings", flows, found))
    judged = folds.judged
    weights = stacking_weights([kind.held_out[judged] for kind in kinds], rows.weights[judged])
    kept = [(kind, share) for kind, share in zip(kinds, weights, strict=True) if share >= LEAST_SHARE]
    total = sum(share for _, share in kept)
    shares = {kind.name: float(share / total) for kind, share in kept}
    held_out = np.logaddexp.reduce([kind.held_out[judged] + np.log(shares[kind.name]) for kind, _ in kept], axis=0)
    flows = [flow for kind, _ in kept for flow in kind.flows]
    flow = Mixture(flows, [shares[kind.name] for kind, _ in kept for _ in kind.flows])
    return Ensemble(flow, shares, held_out)


def _normals(
    name: str,
    transforms: Sequence[Transform],
    rows: WeightedRows,
    folds: Folds,
    settings: MemberSettings,
    shown: Progress,
) -> Kind:
    """Mixtures of normals on the far side of each member's transform; their size, and how much the components borrow
    from one another, are those that held-out rows like best."""
    spaces = []
    with torch.no_grad():
        for transform in transforms:
            z, log_det = transform(torch.as_tensor(rows.x, dtype=torch.get_default_dtype()))
            spaces.append((z.double().numpy(), log_det.double().numpy()))
    tried = []
    features = rows.x.shape[1]
    most = min(settings.max_components, len(rows) // ROWS_PER_COMPONENT)
    for borrowed in BORROWED:
        worse, before = 0, -np.inf
        for size in (size for size in SIZES if size <= max(most, 1)):
            found, held_out = [], np.full(len(rows), np.nan)
            for member, (z, log_det) in enumerate(spaces):
                mine = folds.held_out(member)
                generator = np.random.default_rng((settings.seed, member))
                found.append(fit_normals(z[~mine], rows.weights[~mine], size, borrowed * features, generator))
                held_out[mine] = found[-1].log_prob(z[mine]) + log_det[mine]
            score = float(np.average(held_out[folds.judged], weights=rows.weights[folds.judged]))
            tried.append((score, found, held_out))
            worse = worse + 1 if score < before else 0
            before = max(before, score)
            if worse == 2:
                break
    _, best, held_out = max(tried, key=itemgetter(0))
    shown.say(f"{name}: {max(len(found.weights) for found in best)} components")
    flows = [Flow(normal_base(found), transform) for found, transform in zip(best, transforms, strict=True)]
    return Kind(name, [flow.eval() for flow in flows], held_out)


def _gaussian(transform: Transform, rows: WeightedRows, folds: Folds, member: int) -> Flow:
    """A normal with the mean and covariance of a member's rows, seen through a transform that is still the identity."""
    seen = ~folds.held_out(member)
    features = rows.x.shape[1]
    # no more rows than columns lie in a plane: only borrowed ones can say how wide the density is across it
    borrowed = 0.0 if seen.sum() > features else float(features)
    normal = fit_normals(rows.x[seen], rows.weights[seen], 1, borrowed, np.random.default_rng(0))
    return Flow(normal_base(normal), transform)


def _coupled(flow: Flow, settings: MemberSettings, member: int) -> Flow:
    """A copy of a member with coupling layers, each still the identity, after its splines."""
    features = flow.base.features
    splines = Elementwise(features, _element_map(settings))
    splines.load_state_dict(flow.transform.state_dict())
    base = NormalMixture(features, 1, correlated=True)
    base.load_state_dict(flow.base.state_dict())
    with seeded(settings.seed + member):
        return Flow(base, Compose([splines, *coupling_layers(features, settings)]))


def coupling_layers(features: int, settings: MemberSettings, context_features: int = 0) -> list[Transform]:
    """Linear and coupling layers in turn; of a single feature only the latter, which context tells what to do."""
    network = partial(ResidualMLP, hidden_features=settings.hidden_features, num_blocks=1, dropout=settings.dropout)
    layers: list[Transform] = []
    for i in range(settings.num_layers):
        if features > 1:
            layers.append(LULinear(features, permute=False))
        mask = alternating_mask(features, even=i % 2 == 0) if features > 1 else [True]
        layers.append(Coupling(mask, network, _element_map(settings), context_features=context_features))
    return layers


def normal_base(found: Normals) -> NormalMixture:
    """A fitted mixture of normals as the base of a flow."""
    base = NormalMixture(found.means.shape[1], len(found.weights), correlated=True)
    return base.set_(*(torch.from_numpy(part) for part in (found.weights, found.means, found.covariances)))


def _element_map(settings: MemberSettings) -> ElementMap:
    return ElementMap("cubic", num_bins=settings.num_bins)
