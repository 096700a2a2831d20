"""The network of the autoregressive flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

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

    With ``adjacency``, the outputs for feature i depend only on its parents: the features j for which
    ``adjacency[i][j]`` is true. The features may then have any order, but no cycle. Degrees become sets: a hidden unit
    has the set of parents of one feature, and sees the inputs in its set and the units whose sets are parts of its own.
    So what reaches the outputs for feature i are its parents. The inverse of an autoregressive layer takes one pass for
    each of the ``levels``, of which there is one more than arrows in the longest path.

    >>> net = MaskedResidualMLP(3, 66, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape
    torch.Size([5, 66])
    >>> MaskedResidualMLP(3, 66, adjacency=[[0, 0, 1], [0, 0, 1], [0, 0, 0]]).levels
    [[2], [0, 1]]
    """

    def __init__(
        self, in_features: int, out_features: int, *, adjacency: Sequence[Sequence[bool]] | None = None, **settings: Any
    ) -> None:
        self.adjacency = None if adjacency is None else [[bool(entry) for entry in row] for row in adjacency]
        self.levels = None if self.adjacency is None else levels_of(self.adjacency, in_features)
        super().__init__(in_features, out_features, **settings)

    def config(self) -> dict[str, Any]:
        return super().config() if self.adjacency is None else {**super().config(), "adjacency": self.adjacency}

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        if self.norm == "layer":
            raise ValueError("norm='layer' mixes hidden units and breaks the causal order; use norm='batch' or None")
        check_outputs_per_feature(self.in_features, self.out_features)
        features, angles = torch.arange(1, self.in_features + 1), torch.tensor(self._angles, dtype=torch.long)
        inputs = torch.cat([features, features[angles], torch.arange(self.context_features) * 0])
        outputs = torch.arange(self.in_features).repeat_interleave(self.out_features // self.in_features)
        hidden, parents, subsets = self._hidden_degrees(), None, self._subsets()
        if self.adjacency is not None:
            parents = torch.tensor([[True, *row] for row in self.adjacency])  # of context, then of the features
        return MaskedLinear(inputs, hidden, parents), MaskedLinear(hidden, outputs, subsets)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        degrees, subsets = self._hidden_degrees(), self._subsets()
        return MaskedLinear(degrees, degrees, subsets), MaskedLinear(degrees, degrees, subsets)

    def _subsets(self) -> Tensor | None:
        """Return for features i and j whether all parents of j are parents of i, (D, D)."""
        if self.adjacency is None:
            return None
        parents = [{j for j, entry in enumerate(row) if entry} for row in self.adjacency]
        return torch.tensor([[theirs <= own for theirs in parents] for own in parents])

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


def start_decoding(network: nn.Module, like: Tensor, context: Tensor | None) -> Callable[[Tensor | None], Tensor]:
    """Return the function of the network's own ``start_decoding``; see :class:`~cubicflow.nets.CausalTransformer`. If
    it has none, each call takes a full pass. ``like`` has the shape of the inputs, (N, D)."""
    if (own := getattr(network, "start_decoding", None)) is not None:
        function: Callable[[Tensor | None], Tensor] = own(like.shape[0], context)
        return function
    known: list[Tensor] = []

    def next_outputs(before: Tensor | None) -> Tensor:
        known.extend([] if before is None else [before[:, None]])
        i = len(known)
        # Features from i on are unknown and set to 0. The network's outputs for feature i do not depend on them.
        x = torch.cat([*known, torch.zeros_like(like[:, i:])], dim=1)
        outputs: Tensor = network(x) if context is None else network(x, context)
        by_feature: Tensor = outputs.unflatten(1, (like.shape[1], -1))
        return by_feature[:, i]

    return next_outputs


def levels_of(adjacency: Sequence[Sequence[bool]], features: int) -> list[list[int]]:
    """Return the features by levels: the parents of a feature are in earlier levels, at least one in the level before.

    >>> levels_of([[False, True, True], [False, False, False], [False, True, False]], 3)
    [[1], [2], [0]]
    """
    if len(adjacency) != features or any(len(row) != features for row in adjacency):
        raise ValueError(
            f"adjacency must have {features} rows of {features} entries, one for each feature; got rows of "
            f"{[len(row) for row in adjacency]}"
        )
    sorter = TopologicalSorter({i: [j for j, entry in enumerate(row) if entry] for i, row in enumerate(adjacency)})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(map(str, error.args[1]))
        raise ValueError(f"adjacency has the cycle {cycle}: set one entry of it to False") from None
    levels: list[list[int]] = []
    while sorter.is_active():
        levels.append(sorted(sorter.get_ready()))
        sorter.done(*levels[-1])
    return levels


class MaskedLinear(nn.Linear):
    """A linear layer in which outputs of degree d see only inputs of degree <= d, or with ``allowed`` those of degrees
    e with allowed[d, e]. The layer stores the degrees and makes the mask at every call, which costs less than storing
    the mask."""

    def __init__(self, in_degrees: Tensor, out_degrees: Tensor, allowed: Tensor | None = None) -> None:
        super().__init__(len(in_degrees), len(out_degrees))
        self.in_degrees = nn.Buffer(in_degrees)
        self.out_degrees = nn.Buffer(out_degrees)
        self.allowed = None if allowed is None else nn.Buffer(allowed)

    def forward(self, x: Tensor) -> Tensor:
        if self.allowed is None:
            mask = self.in_degrees <= self.out_degrees[:, None]  # (out, in)
        else:
            mask = self.allowed[self.out_degrees].index_select(1, self.in_degrees)
        return F.linear(x, self.weight * mask, self.bias)
