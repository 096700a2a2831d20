"""The core of the attention networks, from tokens to tokens. The networks around the core make the tokens and read the
outputs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.constructors import arguments, positive
from cubicflow.nets.products import products

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

    With a memory, tokens come one at a time, and each call computes one token only:

    >>> tokens, memory = torch.randn(5, 3, 16), core.memory(length=3)
    >>> steps = [core(tokens[:, i : i + 1], memory) for i in range(3)]
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
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a probability below 1, got {dropout}")
        self.dropout = dropout
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
        return arguments(self, "hidden_features", "num_blocks", "num_heads", "dropout", "causal")

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> Tensor:
        """Map tokens (N, T, H) to outputs (N, T, H). With a memory, the tokens follow the tokens in the memory: any
        number T if the memory is empty, else T = 1."""
        if tokens.ndim != 3 or tokens.shape[2] != self.hidden_features:
            raise ValueError(
                f"Transformer expects tokens of shape (N, T, {self.hidden_features}), got {tuple(tokens.shape)}"
            )
        if memory is not None:
            memory.check(tokens, causal=self.causal)
        device = tokens.device.type
        inner = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tokens.dtype
        with torch.autocast(device, enabled=False):
            stream, normed = products.add_norm(tokens, None, self._norm(0), dtype=inner)
            for i, branch in enumerate(self.branches):
                added = branch(normed, None if memory is None else memory.block(i // 2))
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

    def memory(self, length: int) -> Memory:
        """Return an empty memory for at most ``length`` tokens."""
        if not self.causal:
            raise ValueError("a memory needs causal=True: otherwise every token changes all other tokens")
        return Memory(self.num_blocks, length)


class Attention(nn.Module):
    """Multi-head attention in the dtype of its inputs."""

    def __init__(self, hidden_features: int, num_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.causal = causal
        self.inward = nn.Linear(hidden_features, 3 * hidden_features, bias=False)  # queries, keys and values
        self.outward = nn.Linear(hidden_features, hidden_features, bias=False)

    def forward(self, x: Tensor, memory: BlockMemory | None = None) -> Tensor:
        """Attend: (N, T, H) -> (N, T, H)."""
        heads = _linear(x, self.inward).unflatten(-1, (3, self.num_heads, -1))
        queries, keys, values = (part.transpose(1, 2) for part in heads.unbind(2))  # (N, heads, T, H / heads)
        causal = self.causal
        if memory is not None:
            causal = causal and memory.seen == 0
            keys, values = memory.add(keys, values)
        found = products.attention(queries, keys, values, causal=causal and queries.shape[2] > 1)
        return _linear(found.transpose(1, 2).flatten(2), self.outward)


class MLP(nn.Module):
    """An MLP with one hidden layer of 4 H units, in the dtype of its inputs. It has no biases, because the layer norm
    before it has one."""

    def __init__(self, hidden_features: int) -> None:
        super().__init__()
        self.inward = nn.Linear(hidden_features, MLP_WIDTH * hidden_features, bias=False)
        self.outward = nn.Linear(MLP_WIDTH * hidden_features, hidden_features, bias=False)

    def forward(self, x: Tensor, memory: BlockMemory | None = None) -> Tensor:  # noqa: ARG002 - the contract of a branch
        """Map every token: (N, T, H) -> (N, T, H)."""
        return _linear(F.gelu(_linear(x, self.inward), approximate="tanh"), self.outward)


def _linear(x: Tensor, layer: nn.Linear) -> Tensor:
    return F.linear(x, layer.weight.to(x.dtype))


class Memory:
    """The keys and values of the tokens that a causal :class:`Transformer` has seen.

    >>> memory = Transformer(16, num_blocks=2, num_heads=4).memory(length=10)
    >>> memory.seen
    0
    """

    def __init__(self, num_blocks: int, length: int) -> None:
        self.length = positive("length", length)
        self._blocks = [BlockMemory(length) for _ in range(num_blocks)]

    @property
    def seen(self) -> int:
        """The number of tokens in the memory."""
        return self._blocks[-1].seen

    def block(self, i: int) -> BlockMemory:
        """Return the memory of block i."""
        return self._blocks[i]

    def check(self, tokens: Tensor, *, causal: bool) -> None:
        """Raise a ValueError if the tokens cannot follow the tokens in the memory."""
        if not causal:
            raise ValueError("a memory needs causal=True: otherwise every token changes all other tokens")
        if self.seen and tokens.shape[1] != 1:
            raise ValueError(f"after the first call, pass one token at a time; got {tokens.shape[1]} tokens")
        if self.seen + tokens.shape[1] > self.length:
            raise ValueError(
                f"this memory has room for {self.length} tokens and holds {self.seen}; make one with a larger length"
            )


class BlockMemory:
    """The keys and values of one block's attention."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.seen = 0
        self._saved: tuple[Tensor, Tensor] | None = None
        # Autograd needs the keys and values of every call. Without autograd, one preallocated tensor saves the copies.
        self._in_place = not torch.is_grad_enabled() and not torch.compiler.is_exporting()

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of the next tokens, (N, heads, T, H / heads). Return those of all tokens."""
        if self._in_place:
            if self._saved is None:
                shape = (*keys.shape[:2], self.length, keys.shape[3])
                self._saved = keys.new_empty(shape), values.new_empty(shape)
            after = self.seen + keys.shape[2]
            for saved, new in zip(self._saved, (keys, values), strict=True):
                saved[:, :, self.seen : after] = new
            self.seen = after
            return self._saved[0][:, :, :after], self._saved[1][:, :, :after]
        if self._saved is not None:
            keys, values = (torch.cat(pair, dim=2) for pair in zip(self._saved, (keys, values), strict=True))
        self._saved = keys, values
        self.seen = keys.shape[2]
        return keys, values
