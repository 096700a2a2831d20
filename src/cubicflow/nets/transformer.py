"""The core of the attention networks, from tokens to tokens. The networks around the core make the tokens and read the
outputs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import arguments_of, number, positive
from cubicflow.nets.precision import has_autocast, without_autocast
from cubicflow.nets.products import products
from cubicflow.nets.tracing import is_traced

MLP_WIDTH = 4  # hidden units of an MLP, per unit of the stream's width H


class Transformer(nn.Module):
    """A pre-norm transformer. Attention and MLP branches alternate, and each adds its output to a stream of tokens.

    The outputs are the layer-normalised stream. Under autocast the branches compute in autocast's dtype. The stream,
    its norms and the outputs keep the dtype of the inputs.

    Args:
        hidden_features: the width H.
        num_blocks: the number of blocks. A block is an attention branch and an MLP branch.
        num_heads: the number of attention heads, a divisor of H.
        dropout: the probability of dropout on the outputs of the branches. Attention weights have no dropout.
        causal: let token i see tokens 0 .. i. Otherwise every token sees all tokens.

    >>> core = Transformer(16, num_blocks=2, num_heads=4)
    >>> core(torch.randn(5, 3, 16)).shape
    torch.Size([5, 3, 16])

    With a cache of keys and values, tokens come one at a time, and each call computes one token only:

    >>> tokens, cache = torch.randn(5, 3, 16), core.cache(capacity=3)
    >>> steps = [core(tokens[:, i : i + 1], cache) for i in range(3)]
    >>> torch.allclose(torch.cat(steps, dim=1), core(tokens), atol=1e-5)
    True
    """

    def __init__(
        self,
        hidden_features: int = 256,
        *,
        num_blocks: int = 4,
        num_heads: int = 4,
        dropout: float = 0.0,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.hidden_features = positive("hidden_features", hidden_features)
        self.num_blocks = positive("num_blocks", num_blocks)
        self.num_heads = positive("num_heads", num_heads)
        if hidden_features % num_heads:
            raise ValueError(f"num_heads must divide hidden_features, got {num_heads} and {hidden_features}")
        self.dropout = number("dropout", dropout, least=0, below=1)
        self.causal = causal
        branches: list[Attention | MLP] = []
        for _ in range(num_blocks):
            branches += [Attention(hidden_features, num_heads, causal=causal), MLP(hidden_features)]
        self.branches = nn.ModuleList(branches)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_features) for _ in range(2 * num_blocks + 1))
        # The stream is a sum of 2 x num_blocks branches, so every branch starts small.
        for branch in branches:
            nn.init.normal_(branch.outward.weight, std=0.02 / math.sqrt(2 * num_blocks))

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return arguments_of(self)

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Map tokens (N, T, H) to outputs (N, T, H). With a cache, the tokens follow the tokens in the cache: any
        number T if the cache is empty, else T = 1."""
        if tokens.ndim != 3 or tokens.shape[2] != self.hidden_features:
            raise ValueError(
                f"Transformer expects tokens of shape (N, T, {self.hidden_features}), got {tuple(tokens.shape)}"
            )
        if cache is not None:
            self._check_causal()
            cache.check(tokens)
        kind = tokens.device.type
        is_mixed = has_autocast(tokens.device) and torch.is_autocast_enabled(kind)
        inner = torch.get_autocast_dtype(kind) if is_mixed else tokens.dtype
        with without_autocast(tokens.device):
            stream, normed = products.add_norm(tokens, None, self._norm(0), dtype=inner)
            for i, branch in enumerate(self.branches):
                added = branch(normed, None if cache is None else cache.blocks[i // 2])
                last = i == len(self.branches) - 1
                stream, normed = products.add_norm(
                    stream,
                    added,
                    self._norm(i + 1),
                    dtype=tokens.dtype if last else inner,
                    dropout=self.dropout if self.training else 0.0,
                )
        return normed

    def _norm(self, i: int) -> nn.LayerNorm:
        norm: nn.LayerNorm = self.norms[i]  # type: ignore[assignment] # the type checker sees a Module
        return norm

    def cache(self, capacity: int) -> KVCache:
        """Return an empty cache for at most ``capacity`` tokens."""
        self._check_causal()
        return KVCache(self.num_blocks, capacity)

    def _check_causal(self) -> None:
        if not self.causal:
            raise ValueError("a cache needs causal=True: otherwise every token changes all other tokens")


class Attention(nn.Module):
    """Multi-head attention in the dtype of its inputs."""

    def __init__(self, hidden_features: int, num_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.causal = causal
        self.inward = nn.Linear(hidden_features, 3 * hidden_features, bias=False)  # queries, keys and values
        self.outward = nn.Linear(hidden_features, hidden_features, bias=False)

    def forward(self, x: Tensor, cache: BlockCache | None = None) -> Tensor:
        """Attend: (N, T, H) -> (N, T, H)."""
        heads = _linear(x, self.inward).unflatten(-1, (3, self.num_heads, -1))
        queries, keys, values = (part.transpose(1, 2) for part in heads.unbind(2))  # (N, heads, T, H / heads)
        causal = self.causal
        if cache is not None:
            causal = causal and cache.length == 0
            keys, values = cache.add(keys, values)
        found = products.attention(queries, keys, values, causal=causal and queries.shape[2] > 1)
        return _linear(found.transpose(1, 2).flatten(2), self.outward)


class MLP(nn.Module):
    """An MLP with one hidden layer of 4 H units, in the dtype of its inputs. It has no biases, because the layer norm
    before it has one."""

    def __init__(self, hidden_features: int) -> None:
        super().__init__()
        self.inward = nn.Linear(hidden_features, MLP_WIDTH * hidden_features, bias=False)
        self.outward = nn.Linear(MLP_WIDTH * hidden_features, hidden_features, bias=False)

    def forward(self, x: Tensor, cache: BlockCache | None = None) -> Tensor:  # noqa: ARG002 - the contract of a branch
        """Map every token: (N, T, H) -> (N, T, H)."""
        return _linear(F.gelu(_linear(x, self.inward), approximate="tanh"), self.outward)


def _linear(x: Tensor, layer: nn.Linear) -> Tensor:
    return F.linear(x, layer.weight.to(x.dtype))


class KVCache:
    """The keys and values of the earlier tokens of a causal :class:`Transformer`, block by block.

    >>> cache = Transformer(16, num_blocks=2, num_heads=4).cache(capacity=10)
    >>> cache.length
    0
    """

    def __init__(self, num_blocks: int, capacity: int) -> None:
        self.capacity = positive("capacity", capacity)
        self.blocks = [BlockCache(capacity) for _ in range(num_blocks)]

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""
        return self.blocks[-1].length

    def take(self, rows: Tensor) -> KVCache:
        """Return the cache of some rows, given by their indices (M,), which may repeat."""
        found = KVCache(len(self.blocks), self.capacity)
        found.blocks = [block.take(rows) for block in self.blocks]
        return found

    def check(self, tokens: Tensor) -> None:
        """Raise a ValueError if the tokens cannot follow the tokens in the cache."""
        if self.length and tokens.shape[1] != 1:
            raise ValueError(f"after the first call, pass one token at a time; got {tokens.shape[1]} tokens")
        if self.length + tokens.shape[1] > self.capacity:
            raise ValueError(
                f"this cache has room for {self.capacity} tokens and holds {self.length}; make one with a larger "
                "capacity"
            )


class BlockCache:
    """The keys and values of one block's attention."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._saved: tuple[Tensor, Tensor] | None = None
        # Autograd needs the keys and values of every call. Without autograd, one preallocated tensor saves the copies.
        self._in_place = not torch.is_grad_enabled() and not is_traced()

    def take(self, rows: Tensor) -> BlockCache:
        """Return the keys and values of some rows."""
        found = BlockCache(self.capacity)
        found.length, found._in_place = self.length, self._in_place
        if self._saved is not None:
            keys, values = self._saved
            found._saved = keys[rows], values[rows]
        return found

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of the next tokens, (N, heads, T, H / heads). Return those of all tokens."""
        before, self.length = self.length, self.length + keys.shape[2]
        if self._in_place:
            if self._saved is None:
                shape = (*keys.shape[:2], self.capacity, keys.shape[3])
                self._saved = keys.new_empty(shape), values.new_empty(shape)
            for saved, new in zip(self._saved, (keys, values), strict=True):
                saved[:, :, before : self.length] = new
            return self._saved[0][:, :, : self.length], self._saved[1][:, :, : self.length]
        if self._saved is not None:
            keys, values = (torch.cat(pair, dim=2) for pair in zip(self._saved, (keys, values), strict=True))
        self._saved = keys, values
        return keys, values
