"""Networks between the cells of a row and the heads of its columns.

A core takes the tokens of C context cells and of columns 0 .. D - 2, (N, C + D - 1, H), and returns the hidden states
of all D columns, (N, D, H). The hidden state of column i depends on the context and on the tokens of columns 0 .. i - 1
alone. ``begin`` computes the same states column by column: a :class:`Memory` keeps what the core needs of the tokens so
far, and costs as much for all columns as one pass.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets import Transformer
from cubicflow.nets.rng import dropout
from cubicflow.nets.transformer import KVCache

GROUP = 32  # columns whose first layers are one product; with all columns in one, half of the weights would be masked


class Memory(ABC):
    """What a core keeps of the first tokens of N rows."""

    @abstractmethod
    def hidden(self) -> Tensor:
        """Return the hidden state (N, H) of the next column."""

    @abstractmethod
    def add(self, token: Tensor) -> None:
        """Add the token (N, E) of the next column."""

    @abstractmethod
    def take(self, rows: Tensor) -> Self:
        """Return the memory of some rows, which may repeat."""


class AttentionCore(nn.Module):
    """A causal transformer. A learned start token precedes the tokens of the columns.

    >>> core = AttentionCore(0, 3, 16, num_blocks=1, num_heads=2)
    >>> core(torch.randn(5, 2, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self,
        num_context: int,
        columns: int,
        width: int,
        *,
        num_blocks: int = 2,
        num_heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_context, self.columns = num_context, columns
        self.start = nn.Parameter(0.02 * torch.randn(width))
        self.transformer = Transformer(width, num_blocks=num_blocks, num_heads=num_heads, dropout=dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the hidden states (N, D, H) of all columns, given the tokens (N, C + D - 1, H)."""
        start = self.start.expand(tokens.shape[0], 1, -1)
        every = torch.cat([tokens[:, : self.num_context], start, tokens[:, self.num_context :]], dim=1)
        found: Tensor = self.transformer(every)[:, self.num_context :]
        return found

    def begin(self, tokens: Tensor) -> Memory:
        """Return the memory of rows, given the tokens (N, C + i, H) of their context and of their first i columns."""
        cache = self.transformer.cache(self.num_context + self.columns)
        start = self.start.expand(tokens.shape[0], 1, -1)
        before = torch.cat([tokens[:, : self.num_context], start, tokens[:, self.num_context :]], dim=1)
        return _Keys(self.transformer, cache, self.transformer(before, cache)[:, -1])


class _Keys(Memory):
    """The keys and values of a transformer's earlier tokens."""

    def __init__(self, transformer: Transformer, cache: KVCache, last: Tensor) -> None:
        self.transformer, self.cache, self.last = transformer, cache, last

    def hidden(self) -> Tensor:
        return self.last

    def add(self, token: Tensor) -> None:
        self.last = self.transformer(token[:, None], self.cache)[:, 0]

    def take(self, rows: Tensor) -> _Keys:
        return _Keys(self.transformer, self.cache.take(rows), self.last[rows])


class ColumnNetworks(nn.Module):
    """A residual network for each column, all of one size, on the tokens before the column.

    If ``grouped`` is true, each group of columns has its own weights of the first layers, for the tokens that it sees.
    Otherwise one tensor has the weights for all tokens and columns, of which about half is never used.

    >>> core = ColumnNetworks(0, 3, 8, 16, num_blocks=1)
    >>> core(torch.randn(5, 2, 8)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self,
        num_context: int,
        columns: int,
        token_width: int,
        width: int,
        *,
        num_blocks: int = 2,
        dropout: float = 0.0,
        grouped: bool = False,
    ) -> None:
        super().__init__()
        self.num_context, self.columns, self.dropout, self.num_blocks = num_context, columns, dropout, num_blocks
        tokens = num_context + columns - 1
        seen = torch.tensor([float(max(num_context + i, 1)) for i in range(columns)])
        first = torch.randn(tokens, token_width, columns, width).div_(seen[:, None].sqrt())
        groups = (weight.clone() for weight in self._of_groups(first))
        self.first: nn.Parameter | nn.ParameterList = nn.ParameterList(groups) if grouped else nn.Parameter(first)
        self.shift = nn.Parameter(torch.zeros(columns, width))
        self.inward = nn.Parameter(torch.randn(num_blocks, columns, width, width) / math.sqrt(width))
        self.outward = nn.Parameter(0.02 * torch.randn(num_blocks, columns, width, width))
        self.norms = nn.Parameter(torch.ones(num_blocks + 1, columns, width))
        self.biases = nn.Parameter(torch.zeros(num_blocks + 1, columns, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the hidden states (N, D, H) of all columns, given the tokens (N, C + D - 1, E)."""
        place = torch.arange(self.columns, device=tokens.device) + self.num_context
        groups: list[Tensor] = []
        for own, weight in zip(place.split(GROUP), self._weights(), strict=True):
            # Every column of a group sees the tokens before the group; only the group's own tokens need a mask.
            count, seen = len(weight), self.num_context + len(groups) * GROUP if groups else 0
            mask = torch.arange(seen, count, device=tokens.device)[:, None] < own
            before, inside = weight.split([seen, count - seen]) if seen else (None, weight)
            masked = (inside * mask[:, None, :, None]).flatten(0, 1).flatten(1)
            x = tokens[:, seen:count].flatten(1) @ masked  # (N, columns H)
            if before is not None:
                x = x + tokens[:, :seen].flatten(1) @ before.flatten(0, 1).flatten(1)
            groups.append(x)
        x = groups[0] if len(groups) == 1 else torch.cat(groups, dim=1)
        x = x.unflatten(1, (self.columns, -1)).transpose(0, 1) + self.shift[:, None]  # (D, N, H)
        return self._blocks(x, slice(None)).transpose(0, 1)

    def begin(self, tokens: Tensor) -> Memory:
        """Return the memory of rows, given the tokens (N, C + i, E) of their context and of their first i columns."""
        return _Tokens(self, tokens)

    def column(self, i: int, tokens: Tensor) -> Tensor:
        """Return the hidden state (N, H) of column i, given the tokens (N, C + i, E) before it."""
        x = self.shift[i].expand(tokens.shape[0], -1)
        if tokens.shape[1]:
            weight = self._weights()[i // GROUP]
            x = x + tokens.flatten(1) @ weight[: tokens.shape[1], :, i % GROUP].flatten(0, 1)
        return self._blocks(x[None], slice(i, i + 1))[0]

    def _weights(self) -> list[Tensor]:
        """Return the weights (tokens, E, columns, H) of the first layers of each group, for the tokens that it sees."""
        return self._of_groups(self.first) if isinstance(self.first, Tensor) else list(self.first)

    def _of_groups(self, first: Tensor) -> list[Tensor]:
        parts = first.split(GROUP, dim=2)
        return [part[: self.num_context + i * GROUP + part.shape[2] - 1] for i, part in enumerate(parts)]

    def _blocks(self, x: Tensor, columns: slice) -> Tensor:
        """Return the residual blocks' output for these columns: (D, N, H) -> (D, N, H)."""
        for i in range(self.num_blocks):
            inner = F.gelu(torch.bmm(self._norm(x, i, columns), self.inward[i, columns]), approximate="tanh")
            x = x + dropout(torch.bmm(inner, self.outward[i, columns]), self.dropout, self.training)
        return self._norm(x, self.num_blocks, columns)

    def _norm(self, x: Tensor, i: int, columns: slice) -> Tensor:
        normed = F.layer_norm(x, x.shape[-1:])
        return normed * self.norms[i, columns, None] + self.biases[i, columns, None]


class _Tokens(Memory):
    """The earlier tokens themselves."""

    def __init__(self, core: ColumnNetworks, tokens: Tensor) -> None:
        self.core, self.tokens = core, tokens

    def hidden(self) -> Tensor:
        return self.core.column(self.tokens.shape[1] - self.core.num_context, self.tokens)

    def add(self, token: Tensor) -> None:
        self.tokens = torch.cat([self.tokens, token[:, None]], dim=1)

    def take(self, rows: Tensor) -> _Tokens:
        return _Tokens(self.core, self.tokens[rows])
