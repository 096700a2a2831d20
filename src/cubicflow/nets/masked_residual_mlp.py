"""The network of the autoregressive flows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets.residual_net import ResidualNet


class MaskedResidualMLP(ResidualNet):
    """A causal residual network (MADE with residual blocks). The outputs for feature i depend only on the features
    before i and on the context, so one pass gives the parameters of all D conditionals.

    (N, D) [, (N, C)] -> (N, out_features). ``out_features`` is D times the number of parameters of one feature, in the
    order of the features. The arguments are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    Every unit has a degree, and sees only units of the same or a lower degree. Feature i (from 0) has degree i + 1, the
    context has degree 0, and the outputs for feature i have degree i. ``norm="layer"`` raises a ValueError, because
    layer norm would mix degrees. Batch norm works unit by unit.

    >>> net = MaskedResidualMLP(3, 66, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 66])
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        if self.norm == "layer":
            raise ValueError("norm='layer' mixes hidden units and breaks the causal order; use norm='batch' or None")
        check_outputs_per_feature(self.in_features, self.out_features)
        features, angles = torch.arange(1, self.in_features + 1), torch.tensor(self._angles, dtype=torch.long)
        inputs = torch.cat([features, features[angles], torch.arange(self.context_features) * 0])
        outputs = torch.arange(self.in_features).repeat_interleave(self.out_features // self.in_features)
        return MaskedLinear(inputs, self._hidden_degrees()), MaskedLinear(self._hidden_degrees(), outputs)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        degrees = self._hidden_degrees()
        return MaskedLinear(degrees, degrees), MaskedLinear(degrees, degrees)

    def _hidden_degrees(self) -> Tensor:
        # Degrees are 0 .. D - 1. A unit of degree 0 sees the context only. A unit of degree D would reach no output.
        return torch.arange(self.hidden_features) % self.in_features


def check_outputs_per_feature(in_features: int, out_features: int) -> None:
    """Raise a ValueError unless a causal network has the same number of outputs for each feature."""
    if in_features < 1 or out_features % in_features:
        raise ValueError(
            f"out_features must be a multiple of in_features, the same number of outputs for each feature; got "
            f"{out_features} and {in_features}"
        )


class MaskedLinear(nn.Linear):
    """A linear layer in which outputs of degree d see only inputs of degree <= d. The layer stores the degrees and
    makes the mask at every call, which costs less than storing the mask."""

    def __init__(self, in_degrees: Tensor, out_degrees: Tensor) -> None:
        super().__init__(len(in_degrees), len(out_degrees))
        self.in_degrees = nn.Buffer(in_degrees)
        self.out_degrees = nn.Buffer(out_degrees)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.in_degrees <= self.out_degrees[:, None]  # (out, in)
        return F.linear(x, self.weight * mask, self.bias)
