"""The residual networks: a first layer, pre-activation residual blocks, a last layer that starts at zero."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import check_context_given, config_of, one_of, positive
from cubicflow.nets.products import Linear
from cubicflow.nets.rng import Dropout
from cubicflow.nets.tracing import constant_tensor

NORMS = (None, "batch", "layer")


class ResidualNet(nn.Module, ABC):
    """An abstract network from inputs and context to spline parameters.

    Args:
        in_features, out_features: sizes. ``in_features`` may be 0 if there is context.
        hidden_features: the width H of every hidden layer.
        num_blocks: the number of residual blocks, of two layers each; without ``residual``, the number of hidden layers
            after the first.
        context_features: C; 0 for no context. Context is concatenated to the inputs.
        dropout: the probability of dropout inside each block.
        norm: the norm before each activation: None, ``"batch"`` or ``"layer"``.
        identity_start: start the last layer at zero, where every family of maps is the identity.
        circles: for each input, whether it is an angle in turns. The network sees the cosine and the sine of an angle.
            None: no angles.
        scale_output: divide the outputs by sqrt(H). A sum over H units grows like sqrt(H), so the outputs of wide
            networks are then as large as those of narrow ones.
        residual: False for a plain network, whose hidden layers follow each other without sums.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int = 256,
        num_blocks: int = 2,
        context_features: int = 0,
        dropout: float = 0.0,
        norm: str | None = None,
        identity_start: bool = True,
        scale_output: bool = True,
        circles: Sequence[bool] | None = None,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.out_features = positive("out_features", out_features)
        self.hidden_features = positive("hidden_features", hidden_features)
        self.num_blocks = positive("num_blocks", num_blocks)
        if in_features < 0 or context_features < 0 or in_features + context_features < 1:
            raise ValueError(
                f"{type(self).__name__} needs at least one input or context feature, got in_features={in_features} "
                f"and context_features={context_features}"
            )
        self.circles = as_circles(circles, in_features)
        self._angles = [i for i, circle in enumerate(self.circles or []) if circle]
        self.in_features = in_features
        self.context_features = context_features
        self.dropout = dropout
        self.norm = one_of("norm", norm, NORMS)
        self.identity_start = identity_start
        self.scale_output = scale_output
        self.residual = residual

        self.scale = 1 / math.sqrt(hidden_features) if scale_output else 1.0
        self.first, self.last = self._make_ends()
        self.blocks = nn.ModuleList(self._make_block() for _ in range(num_blocks))
        if identity_start:
            for parameter in self.last.parameters():
                nn.init.zeros_(parameter)

    def _make_block(self) -> nn.Module:
        layers = self._make_layers()
        if not self.residual:
            return PlainBlock(layers[1], self._make_norm(), self.dropout)
        return ResidualBlock(layers, (self._make_norm(), self._make_norm()), self.dropout)

    @abstractmethod
    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        """Return the first and the last layer."""

    @abstractmethod
    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        """Return the two layers of a block."""

    def _make_norm(self) -> nn.Module:
        """Return the norm before an activation."""
        if self.norm is None:
            return nn.Identity()
        return (nn.BatchNorm1d if self.norm == "batch" else nn.LayerNorm)(self.hidden_features)

    def _join(self, x: Tensor, context: Tensor) -> Tensor:
        """Concatenate inputs and context."""
        return torch.cat([x, context], dim=-1)

    def _encoded_features(self) -> int:
        """Return the number of inputs after :meth:`_encode`."""
        return self.in_features + len(self._angles)

    def _encode(self, x: Tensor) -> Tensor:
        """Return the inputs of the first layer. Angles are replaced by their cosines, and their sines are appended."""
        if not self._angles:
            return x
        turns = 2 * math.pi * x
        circle = constant_tensor(self.circles or [], x.device, torch.bool)
        sines = turns.index_select(1, constant_tensor(self._angles, x.device)).sin()
        return torch.cat([torch.where(circle, turns.cos(), x), sines], dim=-1)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        sizes = config_of(self, "in_features", "out_features", "hidden_features", "num_blocks", "context_features")
        settings = {**sizes, **config_of(self, "dropout", "norm", "identity_start", "scale_output")}
        settings |= {} if self.residual else {"residual": False}
        return settings if self.circles is None else {**settings, "circles": self.circles}

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the parameters of every element: (N, in_features, ...) [, (N, C)] -> (N, out_features, ...)."""
        check_context_given(self, context, self.context_features)
        x = self._encode(x)
        h = self.first(x if context is None else self._join(x, context))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.last(F.relu(h)) * self.scale
        return out


class ResidualMLP(ResidualNet):
    """A residual network on vectors: (N, in_features) [, (N, C)] -> (N, out_features).

    The arguments are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> net = ResidualMLP(3, 22, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape, bool((net(torch.randn(5, 3)) == 0).all())
    (torch.Size([5, 22]), True)
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        first = Linear(self._encoded_features() + self.context_features, self.hidden_features)
        return first, Linear(self.hidden_features, self.out_features)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        width = self.hidden_features
        return Linear(width, width, relu=self.norm is None), Linear(width, width)


class ResidualConv(ResidualNet):
    """A residual convolutional network: (N, in_features, H, W) [, (N, C)] -> (N, out_features, H, W). Features are
    channels.

    The network is a 3x3 convolution, residual blocks of a 3x3 and a 1x1 convolution, and a 1x1 output convolution. Zero
    padding keeps the size of the image. Context is concatenated to the inputs as constant channels. Context that is an
    image, (N, C, height, width), is averaged over the pixels of the inputs, and gives channels that vary. The arguments
    are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> ResidualConv(2, 44, hidden_features=8)(torch.randn(5, 2, 4, 4)).shape
    torch.Size([5, 44, 4, 4])
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        first = nn.Conv2d(self.in_features + self.context_features, self.hidden_features, 3, padding=1)
        return first, nn.Conv2d(self.hidden_features, self.out_features, 1)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        width = self.hidden_features
        return nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def _make_norm(self) -> nn.Module:
        if self.norm is None:
            return nn.Identity()
        return nn.BatchNorm2d(self.hidden_features) if self.norm == "batch" else nn.GroupNorm(1, self.hidden_features)

    def _join(self, x: Tensor, context: Tensor) -> Tensor:
        if context.ndim == 2:
            planes = context[:, :, None, None].expand(-1, -1, *x.shape[-2:])
        else:
            planes = F.adaptive_avg_pool2d(context, (x.shape[-2], x.shape[-1]))
        return torch.cat([x, planes], dim=1)


def as_circles(circles: Sequence[bool] | None, in_features: int) -> list[bool] | None:
    """Return ``circles`` as a list; raise a ValueError unless it has one bool for each input."""
    if circles is not None and len(circles) != in_features:
        raise ValueError(
            f"circles must hold one bool for each of the {in_features} inputs, True for an angle; got {circles}"
        )
    return None if circles is None else [bool(circle) for circle in circles]


class ResidualBlock(nn.Module):
    """A residual block: h + second(dropout(relu(norm(first(relu(norm(h))))))). If the first layer itself ends in a
    relu, the inner norm and relu are skipped."""

    def __init__(self, layers: tuple[nn.Module, nn.Module], norms: tuple[nn.Module, nn.Module], dropout: float) -> None:
        super().__init__()
        self.first, self.second = layers
        self.first_norm, self.second_norm = norms
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        inputs = F.relu(self.first_norm(h))
        inner = self.first(inputs)
        if not getattr(self.first, "relu", False):
            inner = F.relu(self.second_norm(inner))
        out: Tensor = h + self.second(self.dropout(inner))
        return out


class PlainBlock(nn.Module):
    """A hidden layer of a plain network: dropout(layer(relu(norm(h))))."""

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.layer(F.relu(self.norm(h))))
        return out
