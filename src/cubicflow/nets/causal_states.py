"""The causal networks of TAN: a hidden state for each feature, read by one network that all features share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import check_context_given, config_of, positive
from cubicflow.nets.masked_residual_mlp import MaskedLinear, check_outputs_per_feature
from cubicflow.nets.rng import Dropout

START = -1.0  # what the recurrent network sees before the first feature


class CausalStates(nn.Module, ABC):
    """A causal network: outputs i = network(h_i), with a state h_i, (N, H), of the features before i and the context
    (Oliva et al. 2018, section 2.1).

    (N, D) [, (N, C)] -> (N, out_features). ``out_features`` is D times the number of parameters of one feature, in the
    order of the features, as in :class:`~cubicflow.nets.MaskedResidualMLP`.

    Args:
        hidden_features: H, the size of a state and of each hidden layer.
        num_blocks: the number of hidden layers of the network that reads the states.
        dropout: the probability of dropout after each hidden layer.
        in_features, out_features, context_features, identity_start, scale_output: as in
            :class:`~cubicflow.nets.residual_net.ResidualNet`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int = 256,
        num_blocks: int = 1,
        context_features: int = 0,
        dropout: float = 0.0,
        identity_start: bool = True,
        scale_output: bool = False,
    ) -> None:
        super().__init__()
        check_outputs_per_feature(in_features, out_features)
        self.in_features, self.out_features = in_features, out_features
        self.hidden_features = positive("hidden_features", hidden_features)
        self.num_blocks = positive("num_blocks", num_blocks)
        self.context_features, self.dropout = context_features, dropout
        self.identity_start, self.scale_output = identity_start, scale_output
        self.scale = hidden_features**-0.5 if scale_output else 1.0
        self.hidden = nn.ModuleList(nn.Linear(hidden_features, hidden_features) for _ in range(num_blocks))
        self.dropped = Dropout(dropout)
        self.last = nn.Linear(hidden_features, out_features // in_features)
        if identity_start:
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    @abstractmethod
    def _states(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Return the states of all features, (N, D, H)."""

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        sizes = config_of(self, "in_features", "out_features", "hidden_features", "num_blocks", "context_features")
        return {**sizes, **config_of(self, "dropout", "identity_start", "scale_output")}

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the parameters of all features: (N, D) [, (N, C)] -> (N, out_features)."""
        check_context_given(self, context, self.context_features)
        return self._read(self._states(x, context)).flatten(1)

    def _read(self, h: Tensor) -> Tensor:
        for layer in self.hidden:
            h = self.dropped(F.relu(layer(h)))
        outputs: Tensor = self.last(h) * self.scale
        return outputs


class CausalGRU(CausalStates):
    """The network of the recurrent autoregressive model, RAM: h_i = g(x_{i-1}, h_{i-1}) with a gated recurrent unit g.
    The arguments are as in :class:`~cubicflow.nets.causal_states.CausalStates`. A pass takes D steps.

    >>> net = CausalGRU(3, 6, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 6])
    """

    def __init__(self, in_features: int, out_features: int, **settings: Any) -> None:
        super().__init__(in_features, out_features, **settings)
        self.cell = nn.GRUCell(1 + self.context_features, self.hidden_features)

    def _states(self, x: Tensor, context: Tensor | None) -> Tensor:
        following = self._start(x.shape[0], context)
        return torch.stack([following(x[:, i - 1] if i else None) for i in range(self.in_features)], dim=1)

    def start_decoding(self, rows: int, context: Tensor | None = None) -> Callable[[Tensor | None], Tensor]:
        """Return a function that computes the outputs one feature at a time, as that of
        :class:`~cubicflow.nets.CausalTransformer`."""
        check_context_given(self, context, self.context_features)
        following = self._start(rows, context)
        return lambda before: self._read(following(before))

    def _start(self, rows: int, context: Tensor | None) -> Callable[[Tensor | None], Tensor]:
        """Return a function of the feature before, (N,), or None for the first one, that returns the next state."""
        like = self.cell.weight_hh
        h = like.new_zeros(rows, self.hidden_features)

        def following(before: Tensor | None) -> Tensor:
            nonlocal h
            value = like.new_full((rows, 1), START) if before is None else before[:, None]
            state: Tensor = self.cell(value if context is None else torch.cat([value, context], dim=1), h)
            h = state
            return state

        return following


class CausalLinear(CausalStates):
    """The network of the linear autoregressive model, LAM: h_i = W_i (x_0, ..., x_{i-1}) + b_i, with weights of its own
    for every feature. The arguments are as in :class:`~cubicflow.nets.causal_states.CausalStates`.

    >>> net = CausalLinear(3, 6, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 6])
    """

    def __init__(self, in_features: int, out_features: int, **settings: Any) -> None:
        super().__init__(in_features, out_features, **settings)
        inputs = torch.cat([torch.arange(1, in_features + 1), torch.arange(self.context_features) * 0])
        self.first = MaskedLinear(inputs, torch.arange(in_features).repeat_interleave(self.hidden_features))

    def _states(self, x: Tensor, context: Tensor | None) -> Tensor:
        states = self.first(x if context is None else torch.cat([x, context], dim=1))  # (N, D H)
        by_feature: Tensor = states.unflatten(1, (self.in_features, self.hidden_features))
        return by_feature
