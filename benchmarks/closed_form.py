"""The closed-form root of a monotone cubic by Blinn and Peters, without a Newton step after it.

Blinn, "How to solve a cubic equation, part 5: back to numerics" (IEEE Computer Graphics and Applications 27(3), 2007);
Peters, "How to solve a cubic equation, revisited" (2016), for the angle by atan2. The cubic is homogeneous,
A x^3 + 3 B x^2 w + 3 C x w^2 + D w^3 = 0, and a root is x / w. Each root is computed from the end of the polynomial
that gives the smaller rounding error, so a vanishing leading coefficient is no special case.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def closed_form_root(start: Tensor, end: Tensor, c: Tensor) -> Tensor:
    """Return t in [0, 1] with start t + (3 - 2 start - end) t^2 + (start + end - 2) t^3 = c."""
    a3, a2, a1, a0 = start + end - 2, (3 - 2 * start - end) / 3, start / 3, -c
    delta1, delta2, delta3 = a3 * a1 - a2 * a2, a3 * a0 - a2 * a1, a2 * a0 - a1 * a1
    discriminant = 4 * delta1 * delta3 - delta2 * delta2
    upper = (delta1, -2 * a2 * delta1 + a3 * delta2)  # the depressed cubic, from the leading coefficient
    lower = (delta3, -a0 * delta2 + 2 * a1 * delta3)  # the depressed cubic, from the constant coefficient

    # One real root.
    from_upper = a2**3 * a0 >= a3 * a1**3
    lead = torch.where(from_upper, a3, a0)
    depressed_c, depressed_d = (torch.where(from_upper, *pair) for pair in zip(upper, lower, strict=True))
    swing = -torch.where(depressed_d < 0, -1, 1) * lead.abs() * (-discriminant).clamp(min=0).sqrt()
    cube = swing - depressed_d
    p = cbrt(cube / 2)
    q = torch.where(cube == swing, -p, -depressed_c / p)
    x = torch.where(depressed_c <= 0, p + q, -depressed_d / (p * p + q * q + depressed_c))
    single = torch.where(from_upper, (x - a2) / a3, -a0 / (x + a1))

    # Three real roots: the largest from the leading end, the smallest from the constant end, the middle from both.
    root_of_discriminant = discriminant.clamp(min=0).sqrt()
    x1, x3 = outer_roots(*upper, a3 * root_of_discriminant)
    large = (torch.where(x1 + x3 > 2 * a2, x1, x3) - a2, a3)
    x1, x3 = outer_roots(*lower, a0 * root_of_discriminant)
    small = (-a0, torch.where(x1 + x3 < 2 * a1, x1, x3) + a1)
    e = large[1] * small[1]
    f = -large[0] * small[1] - large[1] * small[0]
    g = large[0] * small[0]
    middle = (a1 * f - a2 * g, a1 * e - a2 * f)
    candidates = torch.stack([x / w for x, w in (small, middle, large)])
    distance = torch.nan_to_num((candidates - candidates.clamp(0, 1)).abs(), nan=torch.inf, posinf=torch.inf)
    triple = candidates.gather(0, distance.argmin(0, keepdim=True)).squeeze(0)

    return torch.where(discriminant < 0, single, triple)


def outer_roots(c: Tensor, d: Tensor, scaled_root: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of the three real roots of the depressed cubic x^3 + 3 c x + d."""
    angle = torch.atan2(scaled_root, -d).abs() / 3
    radius = 2 * (-c).clamp(min=0).sqrt()
    cosine, sine = angle.cos(), angle.sin()
    return radius * cosine, radius * (-cosine / 2 - math.sqrt(3) / 2 * sine)


def cbrt(x: Tensor) -> Tensor:
    return x.sign() * x.abs().pow(1 / 3)
