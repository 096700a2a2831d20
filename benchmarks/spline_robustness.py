"""Failures and errors of spline inverses: cubicflow's, nflows' and a pure closed form.

    python -m benchmarks.spline_robustness

Every method inverts a million inputs for each K, logit scale and precision: 1,000 random splines (params normal x
scale) with 1,000 inputs each. Half of the inputs are uniform in x. The other half are uniform within a random bin, so
that narrow bins are tested too. y is the method's forward map of x, and x̂ is the method's inverse of y. The columns:

    nonfinite    inputs whose x̂ or log-slope is NaN or infinite
    outside      inputs whose x̂ is outside [0, 1]
    backward     the worst |g(x̂) - y| in units of epsilon x (1 + the steepest secant among x̂'s bin and its neighbours)
    round_trip   the worst |x̂ - x|

g is an independent implementation of the spline in this file, from the same params. float32 results are judged in
float64. float64 results are judged with mpmath to 40 digits, on the 100 inputs with the largest errors in float64 and
on 100 random ones. cubicflow runs its reference backend. The last two columns leave out an x̂ that is not finite, and
clamp an x̂ outside [0, 1] first.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.closed_form import closed_form_root
from cubicflow.splines import cubic_spline, num_params, quadratic_spline
from cubicflow.splines.cubic import cubic_bins, cubic_shape
from cubicflow.splines.evaluation import UnitMap, evaluate_unit
from cubicflow.splines.spec import make_spec

BINS = (1, 2, 8, 10, 128)
SCALES = (1, 3, 5, 10)
DTYPES = (torch.float32, torch.float64)
SAMPLE = 200  # inputs judged with mpmath in each float64 row: half the worst, half random
MARGIN = 1e-3


class Knots(NamedTuple):
    """Splines as the judge sees them: sizes of K bins and slopes at K + 1 knots, one row for each spline."""

    widths: Tensor
    heights: Tensor
    slopes: Tensor


@dataclass(frozen=True)
class Method:
    name: str
    size: Callable[[int], int]  # K -> number of params
    run: Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]  # (x, params, inverse) -> (y, log_slope)
    knots: Callable[[Tensor, int], Knots]  # the judge's construction, in params' precision


@dataclass(frozen=True)
class Row:
    method: str
    dtype: str
    K: int
    scale: float
    inputs: int
    nonfinite: int
    outside: int
    backward: float
    round_trip: float


def floor(num_bins: int) -> float:
    return min(1e-3, 0.1 / num_bins)


# --- the judge: an independent implementation ------------------------------------------------------------------------


def floored(logits: Tensor) -> Tensor:
    k = logits.shape[-1]
    return floor(k) + (1 - k * floor(k)) * F.softmax(logits, -1)


def steffen(widths: Tensor, heights: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    secants = heights / widths
    s0, s1, w0, w1 = secants[:, :-1], secants[:, 1:], widths[:, :-1], widths[:, 1:]
    inner = torch.minimum((s0 * w1 + s1 * w0) / (w0 + w1), 2 * torch.minimum(s0, s1))
    return torch.cat([lower * secants[:, :1], inner, upper * secants[:, -1:]], -1)


def ratio(logits: Tensor) -> Tensor:
    return MARGIN + (3 - 2 * MARGIN) * torch.sigmoid(logits - math.log((2 - MARGIN) / (1 - MARGIN)))


def steffen_knots(params: Tensor, k: int) -> Knots:
    widths, heights = floored(params[:, :k]), floored(params[:, k : 2 * k])
    ends = ratio(params[:, 2 * k :])
    return Knots(widths, heights, steffen(widths, heights, ends[:, :1], ends[:, 1:]))


def nflows_knots(params: Tensor, k: int) -> Knots:
    widths, heights = floored(params[:, :k]), floored(params[:, k : 2 * k])
    ends = 3 * torch.sigmoid(params[:, 2 * k :])
    return Knots(widths, heights, steffen(widths, heights, ends[:, :1], ends[:, 1:]))


def free_knots(params: Tensor, k: int) -> Knots:
    widths, heights = floored(params[:, :k]), floored(params[:, k : 2 * k])
    secants = heights / widths
    smaller = torch.cat([secants[:, :1], torch.minimum(secants[:, :-1], secants[:, 1:]), secants[:, -1:]], -1)
    return Knots(widths, heights, ratio(params[:, 2 * k :]) * smaller)


def quadratic_knots(params: Tensor, k: int) -> Knots:
    widths = floored(params[:, :k])
    density = F.softmax(params[:, k:], -1)
    density = density / (widths * (density[:, :-1] + density[:, 1:]) / 2).sum(-1, keepdim=True)
    density = k * floor(k) + (1 - k * floor(k)) * density
    return Knots(widths, widths * (density[:, :-1] + density[:, 1:]) / 2, density)


def judge(knots: Knots, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return g(x) and the steepest secant among x's bin and its neighbours. The formula is exact for quadratics too."""
    edges = F.pad(knots.widths.cumsum(-1), (1, 0))
    k = knots.widths.shape[-1]
    index = (torch.searchsorted(edges, x, right=True) - 1).clamp(0, k - 1)
    below = F.pad(knots.heights.cumsum(-1), (1, 0)).gather(-1, index)
    width, height = knots.widths.gather(-1, index), knots.heights.gather(-1, index)
    t = (x - edges.gather(-1, index)) / width
    d0, d1 = knots.slopes.gather(-1, index) * width, knots.slopes.gather(-1, index + 1) * width
    y = below + t * (1 - t) ** 2 * d0 + t * t * (3 - 2 * t) * height - t * t * (1 - t) * d1
    secants = F.pad(knots.heights / knots.widths, (1, 1))
    steepest = torch.stack([secants.gather(-1, index + shift) for shift in range(3)]).amax(0)
    return y, steepest


def judge_exactly(method: Method, params: Tensor, k: int, x: float, y: float) -> float:
    """Return |g(x) - y| / (1 + steepest secant) for one input, computed from the params with mpmath."""
    import mpmath as mp

    with mp.workdps(40):
        p = [mp.mpf(value) for value in params.tolist()]
        small = mp.mpf(floor(k))

        def softmax(logits: list[Any]) -> list[Any]:
            top = max(logits)
            terms = [mp.exp(value - top) for value in logits]
            total = mp.fsum(terms)
            return [small + (1 - k * small) * term / total for term in terms]

        def edge(value: Any) -> Any:
            if method.name == "nflows cubic":
                return 3 / (1 + mp.exp(-value))
            shift = mp.log((2 - mp.mpf(MARGIN)) / (1 - mp.mpf(MARGIN)))
            return MARGIN + (3 - 2 * mp.mpf(MARGIN)) / (1 + mp.exp(shift - value))

        w = softmax(p[:k])
        if method.knots is quadratic_knots:
            top = max(p[k:])
            v = [mp.exp(value - top) for value in p[k:]]
            area = mp.fsum(w[i] * (v[i] + v[i + 1]) / 2 for i in range(k))
            d = [k * small + (1 - k * small) * value / area for value in v]
            h = [w[i] * (d[i] + d[i + 1]) / 2 for i in range(k)]
            s = [h[i] / w[i] for i in range(k)]
        else:
            h = softmax(p[k : 2 * k])
            s = [h[i] / w[i] for i in range(k)]
            if method.knots is free_knots:
                d = [edge(p[2 * k + i]) * min(s[max(i - 1, 0)], s[min(i, k - 1)]) for i in range(k + 1)]
            else:
                inner = [
                    min((s[i - 1] * w[i] + s[i] * w[i - 1]) / (w[i - 1] + w[i]), 2 * s[i - 1], 2 * s[i])
                    for i in range(1, k)
                ]
                d = [edge(p[2 * k]) * s[0], *inner, edge(p[2 * k + 1]) * s[-1]]
        i, left, below = 0, mp.mpf(0), mp.mpf(0)
        while i < k - 1 and left + w[i] <= x:
            left, below, i = left + w[i], below + h[i], i + 1
        t = (mp.mpf(x) - left) / w[i]
        g = below + w[i] * (t * (1 - t) ** 2 * d[i] - t * t * (1 - t) * d[i + 1]) + h[i] * t * t * (3 - 2 * t)
        return float(abs(g - mp.mpf(y)) / (1 + max(s[max(i - 1, 0) : i + 2])))


# --- the methods -----------------------------------------------------------------------------------------------------


def run_closed_form(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Run cubicflow's bins and forward map with the closed-form root in place of cubicflow's root."""

    def root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        t = closed_form_root(start, end, c)
        return t, 1 - t

    spec = make_spec(x, params, family="cubic", inverse=inverse, domain="unit", slopes="steffen")
    bins = cubic_bins(params, spec.num_bins, spec.min_bin_width, spec.min_bin_height)
    return evaluate_unit(x, bins, UnitMap(cubic_shape, root), inverse)


def run_nflows(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    try:
        from nflows.transforms.splines.cubic import cubic_spline as nflows_cubic
    except ImportError as error:
        raise SystemExit("this benchmark compares with nflows: pip install 'cubicflow[bench]'") from error
    k = (params.shape[-1] - 2) // 2
    # nflows takes params for every element. Few splines at a time bound the memory.
    splines = max(1, 2**22 // (x.shape[1] * k))
    pairs = []
    for piece, rows in zip(x.split(splines), params.split(splines), strict=True):
        each = rows.expand(*piece.shape, params.shape[-1])
        widths, heights, lower, upper = each.split([k, k, 1, 1], -1)
        # Clamp to [0, 1]: nflows' forward map can exceed it by rounding, and its inverse then rejects the whole batch.
        inside = piece.clamp(0, 1)
        pairs.append(
            nflows_cubic(
                inside, widths, heights, lower, upper, inverse, min_bin_width=floor(k), min_bin_height=floor(k)
            )
        )
    y, log_slope = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return y, log_slope


def run_ours(x: Tensor, params: Tensor, inverse: bool, slopes: str) -> tuple[Tensor, Tensor]:
    return cubic_spline(x, params, inverse=inverse, domain="unit", slopes=slopes, backend="reference")


def run_quadratic(x: Tensor, params: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return quadratic_spline(x, params, inverse=inverse, domain="unit", backend="reference")


def steffen_size(k: int) -> int:
    return num_params("cubic", k, "steffen")


METHODS = (
    Method("nflows cubic", steffen_size, run_nflows, nflows_knots),
    Method("closed form", steffen_size, run_closed_form, steffen_knots),
    Method("cubic, steffen", steffen_size, functools.partial(run_ours, slopes="steffen"), steffen_knots),
    Method(
        "cubic, free",
        lambda k: num_params("cubic", k, "free"),
        functools.partial(run_ours, slopes="free"),
        free_knots,
    ),
    Method("quadratic", lambda k: num_params("quadratic", k), run_quadratic, quadratic_knots),
)


# --- one row ---------------------------------------------------------------------------------------------------------


def draw_inputs(widths: Tensor, per_spline: int, generator: torch.Generator) -> Tensor:
    """Draw points of [0, 1], (splines, per_spline): half uniform, half uniform within a random bin."""
    splines, k = widths.shape
    half = per_spline // 2
    uniform = torch.rand(splines, per_spline - half, generator=generator, dtype=torch.float64)
    bin = torch.randint(k, (splines, half), generator=generator)
    left = F.pad(widths.cumsum(-1), (1, 0)).gather(-1, bin)
    inside = left + widths.gather(-1, bin) * torch.rand(splines, half, generator=generator, dtype=torch.float64)
    return torch.cat([uniform, inside], -1).clamp(0, 1)


def measure(method: Method, k: int, scale: float, dtype: torch.dtype, inputs: int) -> Row:
    generator = torch.Generator().manual_seed(0)
    splines = max(1, inputs // 1000)
    params = (scale * torch.randn(splines, method.size(k), generator=generator, dtype=torch.float64)).to(dtype)
    knots = method.knots(params.double(), k)
    x = draw_inputs(knots.widths, inputs // splines, generator).to(dtype)
    y, forward_log_slope = method.run(x, params[:, None], False)
    y = y.clamp(0, 1)
    back, log_slope = method.run(y, params[:, None], True)

    finite = back.isfinite()
    nonfinite = ~(finite & log_slope.isfinite() & forward_log_slope.isfinite())
    outside = (back < 0) | (back > 1)
    inside = torch.where(finite, back, 0).clamp(0, 1).double()
    g, steepest = judge(knots, inside)
    unit = torch.finfo(dtype).eps
    error = torch.where(finite, (g - y.double()).abs() / (unit * (1 + steepest)), 0)
    if dtype == torch.float64:
        # The float64 judge has rounding errors too. It only selects candidates; mpmath judges them.
        worst = error.flatten().topk(min(SAMPLE // 2, error.numel())).indices
        some = torch.randint(error.numel(), (SAMPLE // 2,), generator=generator)
        some = torch.cat([worst, some[finite.flatten()[some]]])
        rows = some // x.shape[1]
        backward = max(
            judge_exactly(method, params[row], k, at, value) / unit
            for row, at, value in zip(
                rows.tolist(), inside.flatten()[some].tolist(), y.flatten()[some].tolist(), strict=True
            )
        )
    else:
        backward = float(error.max())
    return Row(
        method=method.name,
        dtype=str(dtype).removeprefix("torch."),
        K=k,
        scale=scale,
        inputs=x.numel(),
        nonfinite=int(nonfinite.sum()),
        outside=int(outside.sum()),
        backward=backward,
        round_trip=float(torch.where(finite, (back - x).abs(), 0).max()),
    )


# --- the report ------------------------------------------------------------------------------------------------------


def markdown(rows: Iterable[Row]) -> str:
    lines = [
        "| method | precision | K | scale | NaN or inf | outside | backward error | round trip |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.method} | {row.dtype} | {row.K} | {row.scale:g} | {row.nonfinite:,} | {row.outside:,} "
        f"| {row.backward:.3g} | {row.round_trip:.2g} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def summary(rows: list[Row]) -> str:
    """Return a table of the largest errors over K and scale, and the sums of the counts."""
    lines = [
        "| method | precision | inputs | NaN or inf | outside | worst backward error | worst round trip |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for method in METHODS:
        for dtype in ("float32", "float64"):
            mine = [row for row in rows if (row.method, row.dtype) == (method.name, dtype)]
            if mine:
                lines.append(
                    f"| {method.name} | {dtype} | {sum(row.inputs for row in mine):,} "
                    f"| {sum(row.nonfinite for row in mine):,} | {sum(row.outside for row in mine):,} "
                    f"| {max(row.backward for row in mine):.3g} | {max(row.round_trip for row in mine):.2g} |"
                )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs for each row (default: a million)")
    parser.add_argument("--bins", type=int, nargs="+", default=BINS)
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES)
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="folder for the CSV")
    parser.add_argument("--page", type=Path, default=Path("docs/results/spline_robustness.md"))
    args = parser.parse_args()

    rows = []
    for method in METHODS:
        for dtype in DTYPES:
            for k in args.bins:
                for scale in args.scales:
                    row = measure(method, k, scale, dtype, args.inputs)
                    rows.append(row)
                    print(*asdict(row).values(), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "spline_robustness.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows(asdict(row).values() for row in rows)
    text = (
        "# Robustness of spline inverses\n\n"
        "`python -m benchmarks.spline_robustness` inverts splines with K bins and random parameters. The parameters\n"
        "are normally distributed with standard deviation *scale*. x̂ is the computed inverse of y = f(x).\n\n"
        "- *closed form*: the closed-form roots of the cubic alone, without Newton steps.\n"
        "- *NaN or inf*: inputs whose x̂ or log-slope is not finite.\n"
        "- *outside*: inputs whose x̂ is outside [0, 1].\n"
        "- *backward error*: the largest |g(x̂) - y|, where g is an independent implementation of the same spline.\n"
        "  Its unit is epsilon x (1 + the steepest secant among the bin of x̂ and its neighbours).\n"
        "- *round trip*: the largest |x̂ - x|.\n\n"
        f"The second table has {args.inputs:,} inputs in each row. The head of `benchmarks/spline_robustness.py`\n"
        "describes the inputs and the method.\n\n"
        f"## The worst over K and scale\n\n{summary(rows)}\n## Every row\n\n{markdown(rows)}"
    )
    args.page.write_text(text)
    print("\n" + summary(rows))


if __name__ == "__main__":
    main()
