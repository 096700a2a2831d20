"""Bases that choose one of several bases for each row: by chance, or by the class of the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.distributions.base import Base


class SeveralBases(Base):
    """A base that draws each row from one of several bases on the same features.

    The support is that of the bases if all have the same box. Otherwise it is not known to be a box.
    """

    bases: Sequence[Any]

    def __init__(self, bases: Sequence[Base]) -> None:
        if not bases:
            raise ValueError(f"{type(self).__name__} needs at least one base")
        sizes = sorted({base.features for base in bases})
        if len(sizes) > 1:
            raise ValueError(f"all bases of a {type(self).__name__} need the same number of features, got {sizes}")
        super().__init__(sizes[0])
        self.bases = nn.ModuleList(bases)  # type: ignore[assignment] # a sequence of them, to the type checker
        self.tempered = all(base.tempered for base in bases)
        boxes = [base.bounds() for base in bases]
        same = boxes[0] is not None and all(box == boxes[0] for box in boxes)
        self.support = bases[0].support if same else constraints.dependent

    def config(self) -> dict[str, Any]:
        return {"bases": list(self.bases)}

    def _log_probs(self, z: Tensor, temperature: float, context: Tensor | None) -> Tensor:
        """Return the log density of every row under every base: (N, D) -> (N, K)."""
        found = [base.log_prob(z, temperature, *_given(base, context)) for base in self.bases]
        return torch.stack(found, dim=-1)

    def _sample_chosen(
        self, chosen: Tensor, temperature: float, generator: torch.Generator | None, context: Tensor | None
    ) -> Tensor:
        """Draw row i from the base chosen[i]: (n,) -> (n, D)."""
        order = [(chosen == k).nonzero().squeeze(1) for k in range(len(self.bases))]
        drawn = [
            base.sample(len(rows), temperature, generator, *_given(base, None if context is None else context[rows]))
            for base, rows in zip(self.bases, order, strict=True)
        ]
        return torch.cat(drawn)[torch.cat(order).argsort()]


class BaseMixture(SeveralBases):
    """A mixture of bases with trainable weights, which start equal. Samples are differentiable in what the samples of
    the bases are, and not in the weights, because a draw picks one base.

    For many normals, :class:`NormalMixture` is faster.

    Args:
        bases: bases on the same features. Bases with context need the same ``context_features``.

    >>> from cubicflow.distributions import DiagonalNormal, StudentT
    >>> base = BaseMixture([DiagonalNormal(2), StudentT(2, degrees=2.0)])
    >>> base.log_prob(base.sample(5)).shape
    torch.Size([5])
    """

    def __init__(self, bases: Sequence[Base]) -> None:
        super().__init__(bases)
        sizes = sorted({base.context_features for base in bases} - {0})
        if len(sizes) > 1:
            raise ValueError(f"all bases of a BaseMixture with context need the same context_features, got {sizes}")
        self.context_features = sizes[0] if sizes else 0
        self.logits = nn.Parameter(torch.zeros(len(bases)))

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        self._check(z, temperature)
        if temperature == 0:
            return torch.where((z == self._modes(len(z), context)).all(-1), torch.inf, -torch.inf)
        return torch.logsumexp(self.logits.log_softmax(0) + self._log_probs(z, temperature, context), dim=-1)

    def sample(
        self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None, context: Tensor | None = None
    ) -> Tensor:
        self._check_temperature(temperature)
        if temperature == 0:
            return self._modes(n, context)
        weights = self.logits.detach().softmax(0)
        chosen = torch.multinomial(weights, n, replacement=True, generator=generator) if n else weights.new_zeros(0)
        return self._sample_chosen(chosen, temperature, generator, context)

    def _modes(self, n: int, context: Tensor | None) -> Tensor:
        """Return the mode of a base with the highest density under the mixture, (n, D): nearly the mixture's mode."""
        modes = [base.sample(n, 0.0, None, *_given(base, context)) for base in self.bases]
        best = torch.stack([self.log_prob(mode, 1.0, context) for mode in modes]).argmax(0)  # (n,)
        return torch.stack(modes)[best, torch.arange(n, device=best.device)]


class ByClass(SeveralBases):
    """A base for each class. The context is the number of a row's class, 0, 1, ..., in one column. The log density of a
    row of another class is NaN.

    A base whose parameters are a function of the class is a :class:`DiagonalNormal` with a network from one-hot
    contexts.

    Args:
        bases: one base for each class, without context, on the same features.

    >>> from cubicflow.distributions import DiagonalNormal
    >>> base = ByClass([DiagonalNormal(2), DiagonalNormal(2)])
    >>> base.sample(3, context=torch.tensor([[0.0], [1.0], [1.0]])).shape
    torch.Size([3, 2])
    """

    context_features = 1

    def __init__(self, bases: Sequence[Base]) -> None:
        super().__init__(bases)
        if any(base.context_features for base in bases):
            raise ValueError("the bases of ByClass take no context, because the context is the class")

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        self._check(z, temperature)
        classes, known = self._classes(context)
        log_prob = self._log_probs(z, temperature, None).gather(-1, classes[:, None])[:, 0]
        return torch.where(known, log_prob, torch.nan)

    def sample(
        self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None, context: Tensor | None = None
    ) -> Tensor:
        self._check_temperature(temperature)
        classes, known = self._classes(context)
        if len(classes) != n:
            raise ValueError(f"ByClass draws one row for each of {len(classes)} classes, not {n} rows")
        if not bool(known.all()):
            raise ValueError(f"a class must be a whole number from 0 to {len(self.bases) - 1}, got {context}")
        return self._sample_chosen(classes, temperature, generator, None)

    def _classes(self, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the class of every row, and whether there is such a class."""
        if context is None:
            raise ValueError("ByClass needs context: the number of the class of every row, shape (N, 1)")
        numbers = context[:, 0]
        classes = numbers.nan_to_num().clamp(0, len(self.bases) - 1).long()
        return classes, classes == numbers


def _given(base: Base, context: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the context as an argument for a base, or nothing for a base without context."""
    return (context,) if base.context_features else ()
