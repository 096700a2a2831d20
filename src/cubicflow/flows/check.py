"""A numerical check of a flow, for results that look wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cubicflow.flows.batch_shapes import flatten_rows
from cubicflow.flows.flow import Flow
from cubicflow.transforms import NotInvertibleError

JACOBIAN_ROWS = 4  # rows on which the log-det is compared with autograd
LARGEST_JACOBIAN = 256  # features; a larger dense Jacobian takes long and adds little information
FAR = 6.0  # standard deviations; one normal number in five hundred million lies beyond


@dataclass(frozen=True)
class FlowCheck:
    """The result of :meth:`Flow.check`. ``str`` formats it as a table."""

    rows: int  # number of rows
    non_finite: int  # rows whose log density is not finite
    round_trip: float | None  # largest |x - inverse(forward(x))| / (1 + |x|); None without an inverse
    log_dets_cancel: float | None  # largest |log_det forward + log_det inverse|; None without an inverse
    jacobian_error: float | None  # largest error of log_det against the Jacobian of autograd, on a few rows
    far_tails: float  # share of rows with some noise beyond FAR standard deviations, or outside the base's support
    exact: bool = True  # False if some layer estimates its log-determinant; errors of log-dets then include that

    def __str__(self) -> str:
        def shown(value: float | None) -> str:
            return "not measured" if value is None else f"{value:.2g}"

        lines = [
            ("rows", f"{self.rows}"),
            ("log density not finite", f"{self.non_finite}"),
            ("round trip, largest relative error", shown(self.round_trip)),
            ("log-dets of both directions, largest sum", shown(self.log_dets_cancel)),
            ("log-det against autograd, largest error", shown(self.jacobian_error)),
            (f"rows in the far tails (beyond {FAR:g} sd)", f"{self.far_tails:.2%}"),
        ]
        lines += [] if self.exact else [("log-dets", "estimates")]
        width = max(len(label) for label, _ in lines)
        return "\n".join(f"{label:<{width}}  {value:>12}" for label, value in lines)


@torch.no_grad()
def check_flow(flow: Flow, x: Tensor, context: Tensor | None = None) -> FlowCheck:
    """Measure a flow on rows x of any batch shape. The check runs in evaluation mode."""
    was_training = flow.training
    flow.eval()
    try:
        x, context, _ = flatten_rows(x, flow.shape, context, flow.context_shape)
        z, log_det = flow.to_noise(x, context)
        log_prob = flow.noise_log_prob(z, flow.embed(context)) + log_det
        finite = log_prob.isfinite()
        round_trip, log_dets_cancel = _round_trip(flow, x, context, z, log_det, finite)
        far = (z.abs() > FAR).any(-1) | log_prob.isneginf()
        return FlowCheck(
            rows=len(x),
            non_finite=int((~finite).sum()),
            round_trip=round_trip,
            log_dets_cancel=log_dets_cancel,
            jacobian_error=_jacobian_error(flow, x, context, log_det),
            far_tails=float(far.double().mean()) if len(x) else 0.0,
            exact=flow.exact,
        )
    finally:
        flow.train(was_training)


def _round_trip(
    flow: Flow, x: Tensor, context: Tensor | None, z: Tensor, log_det: Tensor, finite: Tensor
) -> tuple[float | None, float | None]:
    """Return the errors of the inverse in the rows that are ``finite``, or None twice if there is no inverse."""
    try:
        back, log_det_back = flow.from_noise(z, context)
    except NotInvertibleError:
        return None, None
    error = ((back - x).abs() / (1 + x.abs())).flatten(1).amax(1) if len(x) else log_det
    return _largest(error[finite]), _largest((log_det + log_det_back).abs()[finite])


def _largest(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _jacobian_error(flow: Flow, x: Tensor, context: Tensor | None, log_det: Tensor) -> float | None:
    features = flow.base.features
    if features > LARGEST_JACOBIAN or not len(x):
        return None
    worst = 0.0
    for i in range(min(JACOBIAN_ROWS, len(x))):
        row_context = None if context is None else context[i : i + 1]

        def row_to_noise(row: Tensor, row_context: Tensor | None = row_context) -> Tensor:
            return flow.to_noise(row[None], row_context)[0][0]

        with torch.enable_grad():
            jacobian = torch.autograd.functional.jacobian(row_to_noise, x[i])
        expected = jacobian.reshape(features, features).double().slogdet().logabsdet
        worst = max(worst, float((expected - log_det[i]).abs()))
    return worst
