"""The same workloads in other packages (peers). A peer is imported at first use, and left out if not installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

SplineFunction = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]  # (x, params, inverse) -> (y, log_slope)

NAMES = ("nflows", "zuko", "normflows")
SAMPLED_AT_ONCE = 2**16
TAIL_BOUND = 4.0


def installed() -> list[str]:
    """Return the names of the installed peers."""
    return [name for name in NAMES if importlib.util.find_spec(name) is not None]


def spline_functions(num_bins: int) -> dict[str, SplineFunction]:
    """Return the splines of the installed peers: the cubic of nflows, which is the code of the paper's authors, and the
    rational-quadratic splines of nflows, normflows and zuko.

    Each spline reads the slices of our params that it needs.
    """
    k = num_bins
    functions: dict[str, SplineFunction] = {}
    found = installed()

    def widths_heights_slopes(params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return params[..., :k], params[..., k : 2 * k], params[..., : k - 1]

    def rational_quadratic(spline: Callable[..., tuple[Tensor, Tensor]]) -> SplineFunction:
        """Return a spline with the signature of nflows' function; normflows has a copy of that function."""
        return lambda x, params, inverse: spline(
            x, *widths_heights_slopes(params), inverse=inverse, tail_bound=TAIL_BOUND
        )

    if "nflows" in found:
        from nflows.transforms.splines.cubic import unconstrained_cubic_spline
        from nflows.transforms.splines.rational_quadratic import unconstrained_rational_quadratic_spline

        functions["nflows cubic"] = lambda x, params, inverse: unconstrained_cubic_spline(
            x,
            params[..., :k],
            params[..., k : 2 * k],
            params[..., 2 * k : 2 * k + 1],
            params[..., 2 * k + 1 :],
            inverse=inverse,
            tail_bound=TAIL_BOUND,
        )
        functions["nflows rational-quadratic"] = rational_quadratic(unconstrained_rational_quadratic_spline)
    if "normflows" in found:
        from normflows.utils import splines

        functions["normflows rational-quadratic"] = rational_quadratic(splines.unconstrained_rational_quadratic_spline)
    if "zuko" in found:
        from zuko.transforms import MonotonicRQSTransform

        def zuko_rq(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
            spline = MonotonicRQSTransform(*widths_heights_slopes(params), bound=TAIL_BOUND)
            if inverse:
                y = spline.inv(x)
                return y, -spline.log_abs_det_jacobian(y, x)
            y = spline(x)
            return y, spline.log_abs_det_jacobian(x, y)

        functions["zuko rational-quadratic"] = zuko_rq
    return functions


class PeerFlow(NamedTuple):
    """A peer's flow: its module, and functions for log_prob and sample."""

    module: Any
    log_prob: Callable[[Tensor], Tensor]
    sample: Callable[[int], Tensor]


def coupling_flows(
    features: int, num_layers: int, hidden: int, num_bins: int, device: torch.device
) -> dict[str, PeerFlow]:
    """Return each peer's flow that is closest to the paper's: linear layers and spline couplings in turn."""
    flows: dict[str, PeerFlow] = {}
    found = installed()
    if "nflows" in found:
        flows["nflows cubic"] = nflows_maker()(features, num_layers, hidden, num_bins, device)
    if "normflows" in found:
        flows["normflows rational-quadratic"] = _normflows(features, num_layers, hidden, num_bins, device)
    if "zuko" in found:
        import zuko

        settings = {"transforms": num_layers, "hidden_features": [hidden] * 5, "bins": num_bins, "passes": 2}
        flows["zuko rational-quadratic"] = _zuko(zuko.flows.NSF(features, **settings), device)
    return flows


def one_pass_rivals(features: int, hidden: int, device: torch.device) -> dict[str, PeerFlow]:
    """Return zuko's autoregressive and continuous flows. Their sampling or their density takes many network passes."""
    if "zuko" not in installed():
        return {}
    import zuko

    made = {
        "zuko MAF": lambda: zuko.flows.MAF(features, transforms=3, hidden_features=[hidden] * 2),
        "zuko NAF": lambda: zuko.flows.NAF(features, transforms=2, hidden_features=[hidden] * 2),
        "zuko CNF": lambda: zuko.flows.CNF(features, hidden_features=[hidden] * 2),
    }
    return {name: _zuko(make(), device) for name, make in made.items()}


def training_step(peer: PeerFlow, x: Tensor) -> Callable[[], Any]:
    """Return a function that takes one step of a user's typical training loop: loss, backward, clipping, Adam."""
    optimiser = torch.optim.Adam(peer.module.parameters(), lr=5e-4)

    def run() -> None:
        optimiser.zero_grad()
        loss = -peer.log_prob(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.module.parameters(), 5.0)
        optimiser.step()

    return run


def _zuko(flow: Any, device: torch.device) -> PeerFlow:
    flow = flow.to(device)
    return PeerFlow(flow, lambda x: flow().log_prob(x), lambda n: flow().sample((n,)))


def nflows_maker() -> Callable[[int, int, int, int, torch.device], PeerFlow]:
    """Import nflows, and return a function of (features, layers, hidden, bins, device) that builds its flow."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.nn.nets import ResidualNet
    from nflows.transforms import CompositeTransform, LULinear, RandomPermutation
    from nflows.transforms.coupling import PiecewiseCubicCouplingTransform
    from nflows.utils import create_alternating_binary_mask

    def make(features: int, num_layers: int, hidden: int, num_bins: int, device: torch.device) -> PeerFlow:
        layers: list[Any] = []
        for i in range(num_layers):
            layers += [
                RandomPermutation(features),
                LULinear(features, identity_init=True),
                PiecewiseCubicCouplingTransform(
                    create_alternating_binary_mask(features, even=i % 2 == 0),
                    lambda inputs, outputs: ResidualNet(inputs, outputs, hidden_features=hidden, num_blocks=2),
                    num_bins=num_bins,
                    tails="linear",
                    tail_bound=TAIL_BOUND,
                    apply_unconditional_transform=True,
                ),
            ]
        flow = Flow(CompositeTransform(layers), StandardNormal([features])).to(device)
        # Sample in batches, with nflows' own option: a million samples at once took many minutes on a GPU.
        return PeerFlow(flow, flow.log_prob, lambda n: flow.sample(n, batch_size=min(n, SAMPLED_AT_ONCE)))

    return make


def _normflows(features: int, num_layers: int, hidden: int, num_bins: int, device: torch.device) -> PeerFlow:
    import normflows

    layers: list[Any] = []
    for i in range(num_layers):
        layers += [
            normflows.flows.CoupledRationalQuadraticSpline(
                features, 2, hidden, num_bins=num_bins, reverse_mask=i % 2 == 1, tail_bound=TAIL_BOUND
            ),
            normflows.flows.LULinearPermute(features),
        ]
    flow = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(features, trainable=False), layers).to(device)

    def sample(n: int) -> Tensor:
        # Sample in batches, as for nflows, which has the same linear layer: a million at once took 163 s on a GPU.
        sizes = [min(SAMPLED_AT_ONCE, n - first) for first in range(0, n, SAMPLED_AT_ONCE)]
        return torch.cat([flow.sample(size)[0] for size in sizes])

    return PeerFlow(flow, flow.log_prob, sample)


def spline_params(rows: int, num_bins: int, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return x inside the tail bound of the peers, (rows,), and params for their largest spline, (rows, 2 K + 2)."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.tanh(torch.randn(rows, generator=generator))
    params = torch.randn(rows, 2 * num_bins + 2, generator=generator) / math.sqrt(2)
    return x.to(device), params.to(device)
