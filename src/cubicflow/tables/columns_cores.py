"""Networks between the cells of a row and the heads of its columns: what each column is told by the cells before it.

A core takes the tokens of C context cells and of columns 0 .. D - 2, (N, C + D - 1, H), and gives (N, D, H): what comes
out for column i depends on the context and on the tokens of columns 0 .. i - 1 alone. ``one_by_one`` gives the same,
column by column, where each token is known only after the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets import Transformer
from cubicflow.nets.draws import dropout

Next = Callable[[Tensor | None], Tensor]  # the token of the column before (N, H), None at first -> (N, H)


class AttentionCore(nn.Module):
    """A causal transformer, with a token to begin with.

    >>> core = AttentionCore(0, 3, 16, num_blocks=1, num_heads=2)
    >>> core(torch.randn(5, 2, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self, told: int, columns: int, width: int, *, num_blocks: int = 2, num_heads: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.told, self.columns = told, columns
        self.start = nn.Parameter(0.02 * torch.randn(width))
        self.transformer = Transformer(width, num_blocks=num_blocks, num_heads=num_heads, dropout=dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, C + D - 1, H) -> (N, D, H)."""
        start = self.start.expand(tokens.shape[0], 1, -1)
        every = torch.cat([tokens[:, : self.told], start, tokens[:, self.told :]], dim=1)
        found: Tensor = self.transformer(every)[:, self.told :]
        return found

    def column(self, i: int, tokens: Tensor) -> Tensor:
        """What column i alone is told, by the tokens before it: (N, C + i, H) -> (N, H)."""
        start = self.start.expand(tokens.shape[0], 1, -1)
        found: Tensor = self.transformer(torch.cat([tokens[:, : self.told], start, tokens[:, self.told :]], dim=1))
        return found[:, self.told + i]

    def one_by_one(self, n: int, context: Tensor) -> Next:
        """The same, a column at a time, after the tokens of the context (N, C, H)."""
        memory = self.transformer.memory(self.told + self.columns)

        def next_column(token: Tensor | None) -> Tensor:
            if token is None:
                first = torch.cat([context, self.start.expand(n, 1, -1)], dim=1)
                found: Tensor = self.transformer(first, memory)[:, -1]
            else:
                found = self.transformer(token[:, None], memory)[:, 0]
            return found

        return next_column


class ColumnNetworks(nn.Module):
    """A residual network for each column, all of one size, on the tokens before it.

    >>> core = ColumnNetworks(0, 3, 8, 16, num_blocks=1)
    >>> core(torch.randn(5, 2, 8)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self, told: int, columns: int, token_width: int, width: int, *, num_blocks: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.told, self.columns, self.dropout, self.num_blocks = told, columns, dropout, num_blocks
        tokens = told + columns - 1
        seen = torch.tensor([float(max(told + i, 1)) for i in range(columns)])
        self.first = nn.Parameter(torch.randn(tokens, token_width, columns, width) / seen[:, None].sqrt())
        self.shift = nn.Parameter(torch.zeros(columns, width))
        self.inward = nn.Parameter(torch.randn(num_blocks, columns, width, width) / math.sqrt(width))
        self.outward = nn.Parameter(0.02 * torch.randn(num_blocks, columns, width, width))
        self.norms = nn.Parameter(torch.ones(num_blocks + 1, columns, width))
        self.biases = nn.Parameter(torch.zeros(num_blocks + 1, columns, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, C + D - 1, E) -> (N, D, H)."""
        count = tokens.shape[1]
        place = torch.arange(self.columns, device=tokens.device) + self.told
        mask = torch.arange(count, device=tokens.device)[:, None] < place  # (T, D)
        weight = self.first * mask[:, None, :, None]
        x = tokens.flatten(1) @ weight.flatten(0, 1).flatten(1)  # (N, D H)
        x = x.unflatten(1, (self.columns, -1)).transpose(0, 1) + self.shift[:, None]  # (D, N, H)
        return self._blocks(x, slice(None)).transpose(0, 1)

    def one_by_one(self, n: int, context: Tensor) -> Next:  # noqa: ARG002 - the other core needs it
        """The same, a column at a time, after the tokens of the context (N, C, E)."""
        seen = [context]

        def next_column(token: Tensor | None) -> Tensor:
            if token is not None:
                seen.append(token[:, None])
            return self.column(len(seen) - 1, torch.cat(seen, dim=1))

        return next_column

    def column(self, i: int, tokens: Tensor) -> Tensor:
        """What column i alone is told, by the tokens before it: (N, C + i, E) -> (N, H)."""
        x = self.shift[i].expand(tokens.shape[0], -1)
        if tokens.shape[1]:
            x = x + tokens.flatten(1) @ self.first[: tokens.shape[1], :, i].flatten(0, 1)
        return self._blocks(x[None], slice(i, i + 1))[0]

    def _blocks(self, x: Tensor, columns: slice) -> Tensor:
        """(D, N, H) -> (D, N, H)."""
        for i in range(self.num_blocks):
            inner = F.gelu(torch.bmm(self._norm(x, i, columns), self.inward[i, columns]), approximate="tanh")
            x = x + dropout(torch.bmm(inner, self.outward[i, columns]), self.dropout, self.training)
        return self._norm(x, self.num_blocks, columns)

    def _norm(self, x: Tensor, i: int, columns: slice) -> Tensor:
        normed = F.layer_norm(x, x.shape[-1:])
        return normed * self.norms[i, columns, None] + self.biases[i, columns, None]
