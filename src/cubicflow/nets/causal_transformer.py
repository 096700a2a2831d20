"""The attention network of the autoregressive flows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.arguments import check_context_given, config_of, positive
from cubicflow.nets.masked_residual_mlp import check_outputs_per_feature
from cubicflow.nets.products import products
from cubicflow.nets.residual_net import as_circles
from cubicflow.nets.tracing import constant_tensor
from cubicflow.nets.transformer import Transformer

SLOWEST_WAVE = 0.5  # radians per unit of a feature, for the first octave; every further octave doubles it


class CausalTransformer(nn.Module):
    """A causal transformer. The outputs for feature i depend only on the features before i and on the context, so one
    pass gives the parameters of all D conditionals.

    (N, D) [, (N, C)] -> (N, out_features). ``out_features`` is D times the number of parameters of one feature, in the
    order of the features, as in :class:`~cubicflow.nets.MaskedResidualMLP`.

    Every feature is a token. Token i is the sum of an embedding of feature i - 1, a position and the context. The
    embedding is a linear map of the feature's value and of its sines and cosines at several octaves. Token 0 has a
    trained start vector instead of an embedding. The embedding and the last layer run in full precision even under
    autocast, because locations of conditionals are computed from them.

    Args:
        in_features, out_features: sizes.
        hidden_features, num_blocks, num_heads, dropout: as in :class:`~cubicflow.nets.Transformer`.
        context_features: C; 0 for no context. A linear map of the context is added to every token.
        octaves: the number of octaves of sines and cosines. The first octave has half a radian per unit of a feature.
        identity_start: start the last layer at zero, where every family of maps is the identity.
        scale_output: divide the outputs by sqrt(H), as the other networks do.
        circles: for each feature, whether it is an angle in turns. The network sees an angle only as sines and cosines
            of whole waves. None: no angles.

    >>> net = CausalTransformer(3, 66, hidden_features=16, num_heads=4)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 66])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int = 256,
        num_blocks: int = 4,
        num_heads: int = 4,
        context_features: int = 0,
        dropout: float = 0.0,
        octaves: int = 5,
        identity_start: bool = True,
        scale_output: bool = False,
        circles: Sequence[bool] | None = None,
    ) -> None:
        super().__init__()
        self.in_features = positive("in_features", in_features)
        self.out_features = positive("out_features", out_features)
        check_outputs_per_feature(in_features, out_features)
        self.octaves = positive("octaves", octaves)
        self.circles = as_circles(circles, in_features)
        self.hidden_features, self.num_blocks, self.num_heads = hidden_features, num_blocks, num_heads
        self.dropout = dropout
        self.context_features = context_features
        self.identity_start = identity_start
        self.scale_output = scale_output

        self.scale = hidden_features**-0.5 if scale_output else 1.0
        self.core = Transformer(hidden_features, num_blocks=num_blocks, num_heads=num_heads, dropout=dropout)
        # No output depends on the last feature, so the network of a single feature embeds nothing.
        self.first = nn.Linear(1 + 2 * octaves, hidden_features) if in_features > 1 else None
        self.start = nn.Parameter(0.02 * torch.randn(hidden_features))
        self.positions = nn.Parameter(0.02 * torch.randn(in_features, hidden_features))
        # Saved flows name the weights of the context's linear map "told", so the attribute keeps that name.
        self.told = nn.Linear(context_features, hidden_features) if context_features else None
        self.last = nn.Linear(hidden_features, out_features // in_features)
        if identity_start:
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        sizes = config_of(self, "in_features", "out_features", "hidden_features", "num_blocks", "num_heads")
        rest = config_of(self, "context_features", "dropout", "octaves", "identity_start", "scale_output")
        return {**sizes, **rest} if self.circles is None else {**sizes, **rest, "circles": self.circles}

    @property
    def tokens(self) -> int:
        """The number of tokens per row."""
        return self.in_features

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the parameters of all features: (N, D) [, (N, C)] -> (N, out_features)."""
        if x.ndim != 2 or x.shape[1] != self.in_features:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape (N, {self.in_features}), got {tuple(x.shape)}; it has "
                f"trained positions for {self.in_features} features"
            )
        context_part = self._embed_context(context)
        tokens = self._start(x.shape[0], x)
        if self.first is not None:
            tokens = torch.cat([tokens, self._embed(x[:, :-1], self.first, 0)], dim=1)
        tokens = tokens + self.positions  # (N, D, H)
        return self._read(self.core(tokens if context_part is None else tokens + context_part)).flatten(1)

    def start_decoding(self, rows: int, context: Tensor | None = None) -> Callable[[Tensor | None], Tensor]:
        """Return a function that computes the outputs one feature at a time.

        Call i takes the values of feature i - 1, (N,), or None for i = 0. It returns the outputs for feature i,
        (N, out_features / D). All D calls together cost as much as one pass.

        >>> net = CausalTransformer(3, 6, hidden_features=16, num_heads=4, identity_start=False)
        >>> x = torch.randn(5, 3)
        >>> next_outputs = net.start_decoding(5)
        >>> steps = [next_outputs(None), next_outputs(x[:, 0]), next_outputs(x[:, 1])]
        >>> torch.allclose(torch.cat(steps, dim=1), net(x), atol=1e-5)
        True
        """
        context_part = self._embed_context(context)
        cache = self.core.cache(self.in_features)

        def next_outputs(before: Tensor | None) -> Tensor:
            i = cache.length
            if i == self.in_features:
                raise ValueError(
                    f"{type(self).__name__} has {i} features, and all outputs were computed; call start_decoding again"
                )
            if before is None or self.first is None:
                token = self._start(rows, self.start)
            else:
                token = self._embed(before[:, None], self.first, i - 1)
            token = token + self.positions[i : i + 1]  # (N, 1, H)
            return self._read(self.core(token if context_part is None else token + context_part, cache))[:, 0]

        return next_outputs

    def _start(self, rows: int, like: Tensor) -> Tensor:
        return self.start.to(like.dtype).expand(rows, 1, -1)

    def _embed(self, x: Tensor, layer: nn.Linear, first: int) -> Tensor:
        """Embed T features from number ``first`` on: (N, T) -> (N, T, H)."""
        frequencies = SLOWEST_WAVE * 2 ** torch.arange(self.octaves, dtype=x.dtype, device=x.device)
        phases = x[..., None] * frequencies
        if self.circles is not None:
            circle = constant_tensor(self.circles[first : first + x.shape[1]], x.device, torch.bool)
            phases = torch.where(circle[:, None], phases * (2 * math.pi / SLOWEST_WAVE), phases)
            x = torch.where(circle, 0.0, x)
        waves = torch.cat([x[..., None], phases.sin(), phases.cos()], dim=-1)  # (N, T, 1 + 2 octaves)
        return _exact(waves, layer)

    def _embed_context(self, context: Tensor | None) -> Tensor | None:
        """Return the embedding of the context that is added to every token, (N, 1, H), or None without context."""
        check_context_given(self, context, self.context_features)
        if context is None or self.told is None:
            return None
        return _exact(context, self.told)[:, None]

    def _read(self, tokens: Tensor) -> Tensor:
        """Apply the last layer: (N, T, H) -> (N, T, out_features / D)."""
        return _exact(tokens, self.last) * self.scale


def _exact(x: Tensor, layer: nn.Linear) -> Tensor:
    """Apply the layer in full precision, to inputs with any number of axes."""
    rows = products.exact(x.flatten(0, -2), layer.weight, layer.bias)
    return rows.view(*x.shape[:-1], layer.out_features)
