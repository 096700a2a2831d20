"""Block neural autoregressive flows."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.nets.precision import exact_linear, widened, without_autocast
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.implicit import triangular_inverse
from cubicflow.transforms.transform import Transform, check_inputs


class BlockNAF(Transform):
    """A block neural autoregressive layer (De Cao et al. 2019, section 3): one masked network that is the map itself,
    z = alpha f(x) + (1 - alpha) x.

    f is a network of tanh layers with ``units`` hidden units for each feature. Its weights are blocks: block (i, j),
    from the units of feature j to those of feature i, is exp(V_ij) for i = j, V_ij for j < i, and 0 for j > i. Rows are
    normalised and scaled. So f_i depends on x_0 .. x_i, and increases in x_i.

    **It is invertible for all parameters.** f is bounded, because tanh is. With a gate 0 < alpha < 1, z_i increases in
    x_i with a slope above 1 - alpha, from the whole real line onto itself. Without the term (1 - alpha) x, the image
    would be a box, and the density of a flow with normal noise would have less mass than 1.

    log|det| is the sum of the log-slopes of z_i in x_i. They are products of the blocks (i, i) and of the slopes of
    tanh, all positive, computed as logarithms. The inverse searches feature by feature, and evaluates the network some
    35 D times in float32 and 67 D times in float64; see :func:`~cubicflow.transforms.implicit.triangular_inverse`. The
    layer does not start as the identity.

    Args:
        features: D.
        units: the number of hidden units of each feature.
        depth: the number of hidden layers.
        context_features: C. The context is an input of the first layer.
        seed: the seed of the first weights.

    >>> x = torch.randn(4, 3)
    >>> z, log_det = BlockNAF(3, units=4)(x)
    >>> z.shape, log_det.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(
        self, features: int, units: int = 8, *, depth: int = 1, context_features: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        self.features = self.inverse_passes = positive("features", features)
        self.units, self.depth = positive("units", units), positive("depth", depth)
        self.context_features, self.seed = context_features, seed
        self.gate = nn.Parameter(torch.zeros(1))
        ends = list(enumerate(pairwise([1, *[units] * depth, 1])))
        self.raw = nn.ParameterList(
            normal_start((features, m, features, n), seed + layer, self.gate) for layer, (n, m) in ends
        )
        self.log_scales = nn.ParameterList(torch.zeros(features, m) for _, (_, m) in ends)
        self.biases = nn.ParameterList(torch.zeros(features * m) for _, (_, m) in ends)
        self.of_context = nn.Linear(context_features, features * units, bias=False) if context_features else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_inputs(self, x, context)
        z, log_slopes = self._map(x, context)
        return z, log_slopes.sum(-1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_inputs(self, z, context)
        x, log_slopes = triangular_inverse(lambda x: self._map(x, context), z)
        return x, log_slopes.sum(-1)

    def _map(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return z, (N, D), and the log-slope of each z_i in x_i, (N, D)."""
        h, log_slopes = x, x.new_zeros(self.features, x.shape[0], 1)  # of the units of i in x_i: (D, N, units)
        for layer in range(self.depth + 1):
            if layer:
                log_slopes = log_slopes + _log_slope_of_tanh(h).unflatten(1, (self.features, -1)).transpose(0, 1)
                h = torch.tanh(h)
            weight, log_blocks = self._weight(layer)
            h = exact_linear(h, weight, self.biases[layer])
            if layer == 0 and self.of_context is not None:
                h = h + self.of_context(context)
            log_slopes = _log_product(log_slopes, log_blocks)
        alpha, log_gates = torch.sigmoid(self.gate), (F.logsigmoid(self.gate), F.logsigmoid(-self.gate))
        return alpha * h + (1 - alpha) * x, torch.logaddexp(log_gates[0] + log_slopes[:, :, 0].T, log_gates[1])

    def _weight(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the weight, (D m, D n), and the logarithms of its blocks (i, i), (D, m, n)."""
        raw, log_scale = self.raw[layer], self.log_scales[layer]
        own = torch.eye(self.features, dtype=torch.bool, device=raw.device)[:, None, :, None]  # where i = j
        earlier = torch.ones_like(own[:, 0, :, 0]).tril(-1)[:, None, :, None]
        values = torch.where(own, raw, 0).exp() * own + raw * earlier
        log_norm = values.square().sum((2, 3)).log() / 2  # (D, m)
        log_factor = log_scale - log_norm
        weight = values * log_factor.exp()[:, :, None, None]
        return weight.flatten(2).flatten(0, 1), raw.diagonal(dim1=0, dim2=2).movedim(-1, 0) + log_factor[:, :, None]


def _log_slope_of_tanh(h: Tensor) -> Tensor:
    """Return log(1 - tanh(h)^2), without cancellation."""
    return 2 * (math.log(2) - h - F.softplus(-2 * h))


def _log_product(log_slopes: Tensor, log_blocks: Tensor) -> Tensor:
    """Return the logarithm of exp(log_slopes) exp(log_blocks)', (D, N, m), for (D, N, n) and (D, m, n).

    Both factors are divided by the largest elements of their rows. The largest slope then adds the ratio of two
    elements of a block, so a sum vanishes only if this ratio does.
    """
    wide = torch.promote_types(log_slopes.dtype, log_blocks.dtype)
    tops = [each.amax(-1, keepdim=True) for each in (log_slopes, log_blocks)]
    with without_autocast(log_slopes.device):
        first, second = (widened(each - top).exp() for each, top in zip((log_slopes, log_blocks), tops, strict=True))
        product = (first @ second.mT).log().to(wide)
    return product + tops[0] + tops[1].mT
