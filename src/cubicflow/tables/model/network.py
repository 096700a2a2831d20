"""An autoregressive model of the columns of a mixed table: p(row) = product over columns of p(cell | cells before it).

Shapes. A row of D columns is D cells of four numbers (see :mod:`cubicflow.tables.laws.cells`), (N, 4 D), in float32
for training and float64 for scores. Context columns are cells as well, (N, 4 C).

    cells (N, T, 4) -> tokens (N, T, E) -> core -> hidden states (N, D, H) -> logits of outcomes, params of splines

The C context cells and the columns 0 .. D - 2 have a token each. A core (:mod:`cubicflow.tables.model.cores`) turns
the tokens before each of the columns 0 .. D - 1 into its hidden state. The log probability of a cell is the sum of

    log softmax of its outcome             0 for a column with one outcome
    log mean density of its interval       on [0, 1], under a cubic spline, if its outcome is 0 and the column has one
    log_size                               a part of the cell, which does not depend on the model

Invariants. For any parameters, the probabilities of all outcomes of a column sum to 1, and the spline is a distribution
function on [0, 1]. The log_sizes split each outcome among its values. So the probabilities of all values of a column
sum to 1 (densities integrate to 1). The distribution of column i does not depend on cells i, i + 1, ... Scores involve
no random numbers: a row has one score. At the start of training, each column is independent of the others and
distributed as in the training rows.

Failure modes. The log probability of a cell of kind UNSEEN (-1) is its log_size. Later columns see the cell as a token
of its own, which is trained by dropping cells and is untrained without cell dropout. Logits and params are finite if
the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import config_of, positive
from cubicflow.flows import register
from cubicflow.nets.rng import current_generator
from cubicflow.nets.tracing import constant_tensor
from cubicflow.tables.laws.cells import ALONE, CELL, INTERVAL, POINT, UNSEEN
from cubicflow.tables.laws.masses import log_densities, middle_of, place_of
from cubicflow.tables.model.cores import AttentionCore, ColumnNetworks, Memory

NEAREST = 1e-6  # smallest distance from 0 and from 1 at which the normal quantile of a place is taken

STRANGER_PENALTY = 7.0  # nats, subtracted from the logit of an outcome that never occurs with an earlier outcome
CORES = ("mlp", "attention")


@register
class ColumnsModel(nn.Module):
    """The distribution of every cell of a row given the cells before it, with a head for each column.

    Args:
        outcomes: the number of outcomes of each column, in the model's order.
        shapes: the shape of each column: 0 for outcomes without a spline, 1 for intervals and 2 for points of [0, 1].
        context_outcomes, context_shapes: the same for the context columns.
        circles, context_circles: the indices of the columns, and of the context columns, on a circle, where 0 and 1 are
            the same point. Their densities agree at 0 and 1, and their places are embedded by periodic waves.
        strangers: pairs of outcomes that never occur together, [column, outcome, later column, its outcome]. After the
            first outcome, the logit of the second is lowered by a constant.
        core: ``"mlp"``, a residual network for each column, or ``"attention"``, a transformer.
        hidden_features, num_blocks, num_heads, dropout: sizes and dropout of the core.
        token_features: the width of a cell's token; a transformer uses ``hidden_features`` instead.
        num_bins: the number of bins of each spline.
        octaves: the number of waves, starting with half a period over [0, 1], that embed the place of a number. With
            fewer waves, later columns depend on the number more smoothly.
        cell_dropout: the probability in training that later columns do not see a cell.
        grouped: whether the core ``"mlp"`` has weights of its own for every 32 columns, which takes half the memory.

    >>> model = ColumnsModel([3, 1], [0, 1], hidden_features=16, num_heads=2)
    >>> word, step = torch.tensor([[1.0, 0.25, 0.25, 0.0]]), torch.tensor([[0.0, 0.5, 0.25, math.log(0.25)]])
    >>> model.log_prob(torch.cat([word, step], dim=1).double()).exp()  # a third times a quarter
    tensor([0.0833], dtype=torch.float64, grad_fn=<ExpBackward0>)
    """

    def __init__(
        self,
        outcomes: Sequence[int],
        shapes: Sequence[int],
        context_outcomes: Sequence[int] = (),
        context_shapes: Sequence[int] = (),
        strangers: Sequence[Sequence[int]] = (),
        *,
        circles: Sequence[int] = (),
        context_circles: Sequence[int] = (),
        core: str = "mlp",
        hidden_features: int = 64,
        token_features: int = 16,
        num_blocks: int = 2,
        num_heads: int = 4,
        num_bins: int = 16,
        octaves: int = 7,
        dropout: float = 0.0,
        cell_dropout: float = 0.0,
        grouped: bool = False,
    ) -> None:
        super().__init__()
        self.outcomes, self.shapes = list(outcomes), list(shapes)
        self.context_outcomes, self.context_shapes = list(context_outcomes), list(context_shapes)
        every = self.context_outcomes + self.outcomes, self.context_shapes + self.shapes
        if len(self.outcomes) != len(self.shapes) or not self.outcomes or len(every[0]) != len(every[1]):
            raise ValueError(
                f"every column needs a number of outcomes and a shape, got {len(every[0])} and {len(every[1])}"
            )
        if min(every[0]) < 1 or not set(every[1]) <= {ALONE, INTERVAL, POINT}:
            raise ValueError(
                f"a column needs at least one outcome, and the shape 0, 1 or 2; got {every[0]} and {every[1]}"
            )
        self.circles, self.context_circles = list(map(int, circles)), list(map(int, context_circles))
        for closed, places in ((self.circles, self.shapes), (self.context_circles, self.context_shapes)):
            if any(not 0 <= i < len(places) or places[i] == ALONE for i in closed):
                raise ValueError(f"circles should be indices of columns with the shape 1 or 2, got {closed}")
        self.hidden_features, self.num_blocks, self.num_heads = hidden_features, num_blocks, num_heads
        self.num_bins, self.octaves = positive("num_bins", num_bins), positive("octaves", octaves)
        if not (0 <= dropout < 1 and 0 <= cell_dropout < 1):
            raise ValueError(f"dropout and cell_dropout must be at least 0 and below 1, got {dropout}, {cell_dropout}")
        self.dropout, self.cell_dropout = dropout, cell_dropout
        self.shape, self.context_features = (CELL * len(self.outcomes),), CELL * len(self.context_outcomes)
        self._num_context = len(self.context_outcomes)
        self.core, self.token_features, self.grouped = core, token_features, grouped
        sizes: dict[str, Any] = {"num_blocks": num_blocks, "dropout": dropout}
        counts, tokens = (self._num_context, len(self.outcomes)), len(every[0])
        if core not in CORES:
            raise ValueError(f"core must be {' or '.join(CORES)}, got {core!r}")
        self.network: AttentionCore | ColumnNetworks
        if core == "attention":
            token_features = hidden_features
            self.network = AttentionCore(*counts, hidden_features, num_heads=num_heads, **sizes)
        else:
            self.network = ColumnNetworks(*counts, token_features, hidden_features, **sizes, grouped=grouped)
        # One embedding for the outcomes of all columns. The outcomes of each column are followed by one for UNSEEN.
        self._firsts = [before + i for i, before in enumerate(accumulate(every[0][:-1], initial=0))]
        self._unseen, self._has_place = every[0], [shape != ALONE for shape in every[1]]
        self.kinds = nn.Embedding(sum(every[0]) + tokens, token_features)
        features = 2 + 2 * octaves
        self.places = nn.Parameter(torch.randn(tokens, features, token_features) / math.sqrt(features))
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, token_features))
        width = hidden_features
        self.logits = nn.ModuleList(_zeros(width, n) if n > 1 else nn.Identity() for n in self.outcomes)
        self.splines = nn.ModuleList(_zeros(width, 2 * num_bins + 2) if s else nn.Identity() for s in self.shapes)
        self.strangers = [list(map(int, pair)) for pair in strangers]
        # later column -> first column -> (outcomes of the first column, outcomes of the later column), pair by pair
        self._penalised: dict[int, dict[int, tuple[list[int], list[int]]]] = {}
        for first, one, later, other in self.strangers:
            if not 0 <= first < later < len(self.outcomes) or not 0 <= one < self.outcomes[first]:
                raise ValueError(
                    f"strangers should be outcomes of two columns, the earlier first; got {[first, one, later, other]}"
                )
            if not 0 <= other < self.outcomes[later] or self.outcomes[later] == 1:
                raise ValueError(
                    f"strangers should be outcomes of columns with several outcomes; got {[first, one, later, other]}"
                )
            ones, others = self._penalised.setdefault(later, {}).setdefault(first, ([], []))
            ones.append(one)
            others.append(other)
        # Splines of columns with the same shape, and all closed or all open, are evaluated together.
        self._groups: dict[tuple[int, bool], list[int]] = {}
        for i, shape in enumerate(self.shapes):
            if shape != ALONE:
                self._groups.setdefault((shape, i in self.circles), []).append(i)
        every_circle = {*self.context_circles, *(self._num_context + i for i in self.circles)}
        self._whole_waves = [i in every_circle for i in range(tokens)]

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        columns = config_of(self, "outcomes", "shapes", "context_outcomes", "context_shapes", "strangers")
        names = ("core", "hidden_features", "token_features", "num_blocks", "num_heads", "num_bins", "octaves")
        sizes = config_of(self, *names, "dropout", "cell_dropout")
        optional = ("circles", "context_circles", "grouped")
        given = {name: value for name in optional if (value := getattr(self, name))}
        return {**columns, **given, **sizes}

    @torch.no_grad()
    def start_from(self, frequencies: Sequence[Tensor]) -> None:
        """Set the biases of the logits to the logs of these frequencies, one tensor for each column, all above 0."""
        for head, shares in zip(self.logits, frequencies, strict=True):
            if isinstance(head, nn.Linear):
                head.bias.copy_(shares.log())

    # --- densities ---

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p of every row (N,), given rows (N, 4 D) and their context (N, 4 C)."""
        return self.conditionals(x, context).sum(1)

    forward = log_prob

    def conditionals(
        self, x: Tensor, context: Tensor | None = None, presence: Sequence[tuple[int, float]] | None = None
    ) -> Tensor:
        """Return log p of every cell given the cells before it, (N, D), in x's dtype.

        With ``presence``, log p of a cell is also given its state, missing or present. ``presence`` has for each column
        the kind of a missing value, or -1 if it has none, and the log probability of all values that training rows had.
        Values that no training row had are present.
        """
        cells = self._cells(x, context)
        hidden = self._hidden(cells)
        own = cells[:, self._num_context :]
        kind = own[:, :, 0].long()
        columns = []
        for i, outcomes in enumerate(self.outcomes):
            columns.append(hidden.new_zeros(hidden.shape[0]))
            if outcomes > 1:
                log_p = F.log_softmax(self._logits(i, hidden[:, i], kind), dim=1)
                columns[i] = torch.where(kind[:, i] < 0, 0, log_p.gather(1, kind[:, i : i + 1].clamp(min=0))[:, 0])
                if presence is not None and presence[i][0] >= 0:
                    gap, log_seen = presence[i]
                    log_gap = log_p[:, gap] + log_seen
                    log_present = torch.log(-torch.expm1(log_gap.clamp(max=-1e-12)))
                    columns[i] = columns[i] - torch.where(kind[:, i] == gap, log_gap, log_present)
        result = torch.stack(columns, dim=1).to(x.dtype) + own[:, :, 3]
        for (shape, closed), group in self._groups.items():
            params = torch.stack([self.splines[i](hidden[:, i]) for i in group], dim=1).to(x.dtype)
            index = constant_tensor(group, x.device)
            how: dict[str, bool] = {"points": shape == POINT, "closed": closed, "fast": self.training}
            found = log_densities(own.index_select(1, index), params, **how)
            result = result.index_add(1, index, torch.where(kind.index_select(1, index) == 0, found, 0))
        return result

    def _logits(self, i: int, hidden: Tensor, kind: Tensor) -> Tensor:
        """Return the logits (N, outcomes) of column i, given hidden states (N, H) and earlier kinds (N, i or more)."""
        logits: Tensor = self.logits[i](hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        for first, pairs in self._penalised.get(i, {}).items():
            table = logits.new_zeros(self.outcomes[first] + 1, self.outcomes[i])  # the last row is for UNSEEN
            ones, others = (constant_tensor(part, logits.device) for part in pairs)
            logits = logits + table.index_put((ones, others), logits.new_full((), -STRANGER_PENALTY))[kind[:, first]]
        return logits

    # --- one column at a time ---

    def begin(self, cells: Tensor, context: Tensor | None = None) -> Beginnings:
        """Return the beginnings of rows, given the cells (N, i, 4) of their first columns and the context (N, 4 C)."""
        every = self._after_context(cells, context)
        kinds = torch.full((cells.shape[0], len(self.outcomes)), UNSEEN, device=cells.device)
        kinds[:, : cells.shape[1]] = cells[:, :, 0].long()
        memory = self.network.begin(self._embed(every))
        return Beginnings(self, memory, kinds, cells.shape[1])

    def draw(self, i: int, hidden: Tensor, kinds: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return an outcome of column i and a place on [0, 1] for each row, (N,) and (N,).

        Args:
            hidden, kinds: hidden states (N, H) of column i, and kinds (N, i or more) of earlier cells.
            uniform: (N, 2) numbers in [0, 1), in the precision of the result.
        """
        outcome, place = kinds[:, 0] * 0, uniform[:, 1]
        if self.outcomes[i] > 1:
            ends = torch.softmax(self._logits(i, hidden, kinds).to(uniform.dtype), dim=1).cumsum(1)
            outcome = (ends[:, :-1] <= uniform[:, :1] * ends[:, -1:]).long().sum(1)
        if self.shapes[i]:
            place = place_of(place, self.splines[i](hidden).to(uniform.dtype), closed=i in self.circles)
        return outcome, place

    def next_cells(self, x: Tensor, uniform: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return an outcome and a place on [0, 1] for every column, given the cells before it: (N, D) and (N, D).

        ``uniform`` has two numbers in [0, 1) for each column, (N, 2 D), in the precision of the result.
        """
        cells = self._cells(x, context)
        hidden, kinds = self._hidden(cells), cells[:, self._num_context :, 0].long()
        columns = range(len(self.outcomes))
        drawn = [self.draw(i, hidden[:, i], kinds, uniform[:, 2 * i : 2 * i + 2]) for i in columns]
        outcomes, places = zip(*drawn, strict=True)
        return torch.stack(outcomes, dim=1), torch.stack(places, dim=1)

    # --- tokens ---

    def _cells(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Return the cells (N, C + D, 4) of the context and of the rows."""
        if x.ndim != 2 or x.shape[1:] != self.shape:
            raise ValueError(
                f"rows have shape {tuple(x.shape)}, but this model takes cells of shape (N, {self.shape[0]})"
            )
        return self._after_context(x.unflatten(1, (-1, CELL)), context)

    def _after_context(self, cells: Tensor, context: Tensor | None) -> Tensor:
        """Return cells (N, i, 4) after those of the context (N, 4 C)."""
        if not self._num_context:
            return cells
        if context is None or context.shape != (cells.shape[0], self.context_features):
            raise ValueError(
                f"context must have shape ({cells.shape[0]}, {self.context_features}), got "
                f"{None if context is None else tuple(context.shape)}"
            )
        return torch.cat([context.unflatten(1, (-1, CELL)), cells], dim=1)

    def _hidden(self, cells: Tensor) -> Tensor:
        """Return the hidden states (N, D, H) of all columns, given the cells (N, C + D, 4)."""
        found: Tensor = self.network(self._embed(cells[:, :-1]))
        return found

    def _embed(self, cells: Tensor, first: int = 0) -> Tensor:
        """Return the tokens (N, T, H) of the cells (N, T, 4) of neighbouring columns.

        ``first`` is the index of the first of them, counted from the first context column.
        """
        device, chosen = cells.device, slice(first, first + cells.shape[1])
        firsts, unseen = (constant_tensor(each[chosen], device) for each in (self._firsts, self._unseen))
        has_place = constant_tensor(self._has_place[chosen], device, torch.bool)
        kind = cells[:, :, 0].long()
        seen = kind >= 0
        if self.training and self.cell_dropout:
            seen = seen & (
                torch.rand(seen.shape, device=device, generator=current_generator(device)) >= self.cell_dropout
            )
        tokens: Tensor = self.kinds(firsts + torch.where(seen, kind, unseen))
        places = middle_of(cells[:, :, 1], cells[:, :, 2]).to(tokens.dtype)
        waves = _waves(places, self.octaves, self._whole_waves[chosen]) * (seen & has_place)[..., None]
        placed = torch.einsum("ntf,tfh->nth", waves, self.places[chosen])
        return tokens + placed + self.positions[chosen]


@dataclass
class Beginnings:
    """The first ``count`` columns of N rows, as a model of columns sees them.

    Attributes:
        memory: what the model's core keeps of the columns.
        kinds: the kinds (N, D) of the cells; UNSEEN for later columns.
    """

    model: ColumnsModel
    memory: Memory
    kinds: Tensor
    count: int

    def add(self, cells: Tensor) -> None:
        """Add the cells (N, 4) of the next column."""
        place = self.model._num_context + self.count
        self.memory.add(self.model._embed(cells[:, None], place)[:, 0])
        self.kinds[:, self.count] = cells[:, 0].long()
        self.count += 1

    def take(self, rows: Tensor) -> Beginnings:
        """Return the beginnings of some rows, which may repeat."""
        return Beginnings(self.model, self.memory.take(rows), self.kinds[rows], self.count)

    def next_column(self) -> tuple[Tensor, Tensor | None]:
        """Return the distribution of the next column given the first ones, in float64.

        Returns the log probabilities (N, outcomes) and the params (N, P) of the spline that is the column's
        distribution function on [0, 1]; None for a column without a spline.
        """
        model, hidden = self.model, self.memory.hidden()
        logits = hidden.new_zeros(hidden.shape[0], 1)
        if model.outcomes[self.count] > 1:
            logits = model._logits(self.count, hidden, self.kinds)
        params = model.splines[self.count](hidden).double() if model.shapes[self.count] else None
        return F.log_softmax(logits.double(), dim=1), params


def _waves(place: Tensor, octaves: int, circles: Sequence[bool]) -> Tensor:
    """Return features (N, T, 2 + 2 octaves) of places (N, T): the place, its normal quantile, and sines and cosines.

    A place on a circle keeps only the features that agree at 0 and 1: all waves but the slowest, which has half a
    period.
    """
    u = place.clamp(NEAREST, 1 - NEAREST)
    circle = constant_tensor(circles, u.device, torch.bool)
    speeds = math.pi * 2.0 ** torch.arange(octaves, dtype=u.dtype, device=u.device)
    phases = torch.where(circle, place, u)[..., None] * speeds
    waves = torch.cat([2 * u[..., None] - 1, torch.special.ndtri(u)[..., None], phases.sin(), phases.cos()], dim=-1)
    if not any(circles):
        return waves
    is_whole = [i not in (0, 1, 2, 2 + octaves) for i in range(2 + 2 * octaves)]
    return waves * (~circle[:, None] | constant_tensor(is_whole, u.device, torch.bool))


def _zeros(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with zero weights and biases."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
