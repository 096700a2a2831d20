"""The network of the autoregressive flows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets.residual_net import ResidualNet


class MaskedResidualMLP(ResidualNet):
    """Residual network whose outputs for feature i see the features before i, and the context, and nothing else: one
    pass gives the parameters of all D conditionals (MADE, with residual blocks).

    (N, D) [, (N, C)] -> (N, out_features), where ``out_features`` is D times the parameters of one feature, feature by
    feature. The arguments are those of :class:`~cubicflow.nets.residual_net.ResidualNet`.

    Every unit has a degree and sees units of the same or a lower degree: feature i (from 0) enters with degree i + 1,
    the context with 0, and the outputs of feature i have degree i. Layer norm would mix degrees and is refused; batch
    norm works unit by unit.

    >>> net = MaskedResidualMLP(3, 66, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 66])
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        if self.norm == "layer":
            raise ValueError("norm='layer' mixes hidden units of all degrees and breaks the order; use 'batch' or None")
        if self.in_features < 1 or self.out_features % self.in_features:
            raise ValueError(
                f"out_features must be a multiple of in_features, the same number of outputs for each feature; got "
                f"{self.out_features} and {self.in_features}"
            )
        features, angles = torch.arange(1, self.in_features + 1), torch.tensor(self._angles, dtype=torch.long)
        inputs = torch.cat([features, features[angles], torch.arange(self.context_features) * 0])
        outputs = torch.arange(self.in_features).repeat_interleave(self.out_features // self.in_features)
        return MaskedLinear(inputs, self._hidden_degrees()), MaskedLinear(self._hidden_degrees(), outputs)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        degrees = self._hidden_degrees()
        return MaskedLinear(degrees, degrees), MaskedLinear(degrees, degrees)

    def _hidden_degrees(self) -> Tensor:
        # 0 .. D - 1: degree 0 carries the context alone, and a unit of degree D would feed no output.
        return torch.arange(self.hidden_features) % self.in_features


class MaskedLinear(nn.Linear):
    """A linear layer whose outputs of degree d see the inputs of degree <= d. Only the degrees are kept: a mask costs
    less to make than to store."""

    def __init__(self, in_degrees: Tensor, out_degrees: Tensor) -> None:
        super().__init__(len(in_degrees), len(out_degrees))
        self.in_degrees = nn.Buffer(in_degrees)
        self.out_degrees = nn.Buffer(out_degrees)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.in_degrees <= self.out_degrees[:, None]  # (out, in)
        return F.linear(x, self.weight * mask, self.bias)
