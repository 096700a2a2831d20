"""The model of columns on cells, with random parameters: normalised, causal, and sampled from its density."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from cubicflow.flows.serialization import pack, unpack
from cubicflow.tables.laws.cells import CELL, UNSEEN
from cubicflow.tables.model.cores import ColumnNetworks
from cubicflow.tables.model.network import STRANGER_PENALTY, ColumnsModel

CORES = ("mlp", "attention")


def random_model(
    *columns: tuple[int, int], context: tuple[tuple[int, int], ...] = (), core: str = "mlp"
) -> ColumnsModel:
    """Return a model of columns with these (outcomes, shape), with perturbed parameters and in float64."""
    torch.manual_seed(0)
    (outcomes, shapes), context_sizes = zip(*columns, strict=True), tuple(zip(*context, strict=True)) or ((), ())
    sizes = {"hidden_features": 8, "token_features": 4, "num_heads": 2, "num_bins": 4}
    model = ColumnsModel(outcomes, shapes, *context_sizes, core=core, **sizes).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.25 * torch.randn_like(parameter)
    return model


def word(kind: int, log_size: float = 0.0) -> Tensor:
    return torch.tensor([kind, 0.25, 0.25, log_size], dtype=torch.float64)


def step(low: float, high: float, kind: int = 0) -> Tensor:
    """Return the cell of the interval [low, high)."""
    return torch.tensor([kind, low, 1 - high, math.log(high - low)], dtype=torch.float64)


def point(place: float, log_slope: float = 0.0) -> Tensor:
    return torch.tensor([0, place, 1 - place, log_slope], dtype=torch.float64)


@pytest.mark.parametrize("core", CORES)
def test_all_rows_of_a_table_of_words_sum_to_one(core: str) -> None:
    model = random_model((3, 0), (2, 0), (4, 0), core=core)
    rows = [torch.cat([word(k) for k in kinds]) for kinds in itertools.product(range(3), range(2), range(4))]
    torch.testing.assert_close(model.log_prob(torch.stack(rows)).exp().sum(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("core", CORES)
def test_all_steps_gaps_and_atoms_sum_to_one(core: str) -> None:
    """The second column is a number in one of 7 steps, an atom or a gap."""
    model = random_model((2, 0), (3, 1), core=core)
    edges = [0.0, 1e-9, 0.1, 0.15, 0.5, 0.8, 0.999, 1.0]
    cells = [step(*ends) for ends in itertools.pairwise(edges)] + [word(1), word(2)]
    rows = torch.stack([torch.cat([word(k), cell]) for k in range(2) for cell in cells])
    torch.testing.assert_close(model.log_prob(rows).exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_pairs_never_seen_together_are_unlikely_and_the_total_is_one() -> None:
    """After the first of two words that were never seen together, and only then, the second is less likely."""
    plain = random_model((3, 0), (2, 0))
    again = ColumnsModel(**{**plain.config(), "strangers": [[0, 1, 1, 0]]}).double().eval()
    again.load_state_dict(plain.state_dict())
    rows = torch.stack([torch.cat([word(a), word(b)]) for a in range(3) for b in range(2)])
    before, after = (model.log_prob(rows).detach().exp().reshape(3, 2) for model in (plain, again))
    torch.testing.assert_close(after.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    odds = (after[1, 0] / after[1, 1]) / (before[1, 0] / before[1, 1])
    torch.testing.assert_close(odds, torch.tensor(math.exp(-STRANGER_PENALTY), dtype=torch.float64))
    with torch.no_grad():
        drawn = drawn_rows(again, 3000, lambda i, kind, u: torch.stack([word(int(k)) for k in kind]))
    pairs = drawn.unflatten(1, (-1, CELL))[:, :, 0]
    together = int(((pairs[:, 0] == 1) & (pairs[:, 1] == 0)).sum())
    assert together <= 3000 * float(after[1, 0]) + 4 * math.sqrt(3000 * float(after[1, 0]) + 1)
    with pytest.raises(ValueError, match="strangers"):
        ColumnsModel([2, 2], [0, 0], strangers=[[1, 0, 0, 0]])


def test_a_density_integrates_to_one_beside_its_atoms() -> None:
    model = random_model((2, 0), (2, 2))
    places = np.linspace(0, 1, 4001)
    rows = torch.stack([torch.cat([word(1), point(place)]) for place in places])
    density = model.conditionals(rows)[:, 1].exp().detach().numpy()
    atom = model.conditionals(torch.cat([word(1), word(1)])[None])[0, 1].exp().detach()
    assert 0.01 < float(atom) < 0.99
    assert abs(integrate.simpson(density, x=places) + float(atom) - 1) < 1e-6


@pytest.mark.parametrize("core", CORES)
def test_a_column_depends_only_on_earlier_columns(core: str) -> None:
    model = random_model((3, 0), (1, 1), (2, 2), (1, 1), context=((2, 0), (1, 1)), core=core)
    context_cells = torch.cat([word(1), step(0.2, 0.4)])[None]
    row = torch.cat([word(2), step(0.5, 0.6), point(0.3), step(0.1, 0.2)])[None]
    others = [word(0), step(0.9, 0.95), point(0.7), step(0.4, 0.5)]
    before = model.conditionals(row, context_cells)
    for i, other in enumerate(others):
        changed = row.clone()
        changed[:, CELL * i : CELL * (i + 1)] = other
        after = model.conditionals(changed, context_cells)
        assert torch.equal(after[:, :i], before[:, :i])
        assert (after[:, i + 1 :] != before[:, i + 1 :]).all()
    assert (model.conditionals(row, context_cells.flip(1).roll(1)) != before).all()
    torch.testing.assert_close(model.log_prob(row, context_cells), before.sum(1))


def drawn_rows(model: ColumnsModel, n: int, settle: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    """Return n rows that are drawn column by column; ``settle`` makes the cells of drawn outcomes and places."""
    generator, rows = torch.Generator().manual_seed(0), torch.empty(n, 0, CELL, dtype=torch.float64)
    for i in range(len(model.outcomes)):
        kinds = rows[:, :, 0].long() if i else torch.zeros(n, 1, dtype=torch.long)
        hidden = model.begin(rows).memory.hidden()
        uniform = torch.rand(n, 2, generator=generator, dtype=torch.float64)
        rows = torch.cat([rows, settle(i, *model.draw(i, hidden, kinds, uniform))[:, None]], dim=1)
    return rows.flatten(1)


@pytest.mark.parametrize("core", CORES)
@torch.no_grad()
def test_frequencies_of_samples_agree_with_their_probabilities(core: str) -> None:
    """A row is a word, and a number in one of five steps or an atom: 12 different rows."""
    model = random_model((2, 0), (2, 1), core=core)
    edges = torch.tensor([0.0, 0.1, 0.3, 0.35, 0.9, 1.0], dtype=torch.float64)

    def settle(i: int, kind: Tensor, u: Tensor) -> Tensor:
        if i == 0:
            return torch.stack([word(int(k)) for k in kind])
        bins = torch.searchsorted(edges, u, right=True).clamp(1, 5)
        steps = torch.stack([step(float(edges[b - 1]), float(edges[b])) for b in bins])
        return torch.where(kind[:, None] == 0, steps, word(1))

    n = 4000
    distinct, counts = drawn_rows(model, n, settle).unique(dim=0, return_counts=True)
    expected = n * model.log_prob(distinct).exp()
    assert len(distinct) == 12
    assert stats.chisquare(counts.numpy(), expected.numpy() * (n / float(expected.sum()))).pvalue > 1e-3
    assert abs(float(expected.sum()) / n - 1) < 1e-6


@pytest.mark.parametrize("core", CORES)
@torch.no_grad()
def test_columns_one_by_one_equal_a_whole_pass(core: str) -> None:
    """Also if some rows are taken on the way, as when weighted rows are resampled."""
    columns, context = ((3, 0), (1, 1), (2, 2)), ((2, 0), (1, 1))
    model = random_model(*columns, context=context, core=core)
    rng = torch.Generator().manual_seed(0)
    kinds, low = torch.randint(0, 2, (6, 5), generator=rng), torch.rand(6, 5, generator=rng, dtype=torch.float64) / 2
    kinds[:, [1, 3]] = 0
    cells = torch.stack([kinds.double(), low, 0.9 - low, 0 * low], dim=2)
    given, own = cells[:, :2].flatten(1), cells[:, 2:]
    whole = model._hidden(cells)
    for start in range(3):
        begun, rows = model.begin(own[:, :start], given), torch.arange(6)
        for i in range(start, 3):
            torch.testing.assert_close(begun.memory.hidden(), whole[rows, i])
            log_outcomes, params = begun.next_column()
            assert (params is None) == (columns[i][1] == 0)
            if columns[i][0] > 1:
                expected = model._logits(i, whole[rows, i], own[rows, :, 0].long()).log_softmax(1)
                torch.testing.assert_close(log_outcomes, expected)
            if i < 2:
                begun.add(own[rows, i])
                again = torch.tensor([3, 3, 0, 2])
                begun, rows = begun.take(again), rows[again]


def test_unseen_cells_have_a_score() -> None:
    model = random_model((3, 0), (2, 1))
    strange = torch.cat([word(UNSEEN, -9.5), step(0.1, 0.2)])[None]
    assert model.conditionals(strange)[0, 0].item() == -9.5
    assert torch.isfinite(model.log_prob(strange)).all()


def test_the_training_loss_is_near_the_exact_loss() -> None:
    """Training takes the mean density of two points for narrow intervals, and a difference of ends for wide ones."""
    model = random_model((1, 1), (1, 1)).float()
    low = torch.linspace(0.001, 0.7, 40)
    rows = torch.stack([torch.cat([step(a, a + w), step(a, a + 0.2)]) for a in low.tolist() for w in (1e-7, 0.2)])
    exact = model.conditionals(rows)
    torch.testing.assert_close(model.train().conditionals(rows.float()).double(), exact, rtol=0, atol=2e-3)


def test_outcomes_start_with_given_frequencies() -> None:
    model = ColumnsModel([3, 1], [0, 1], hidden_features=8).eval()
    shares = torch.tensor([0.7, 0.2, 0.1])
    model.start_from([shares, torch.ones(1)])
    rows = torch.stack([torch.cat([word(k), step(0.25, 0.5)]) for k in range(3)])
    torch.testing.assert_close(model.log_prob(rows).exp(), shares.double() / 4, rtol=1e-6, atol=0)


def test_bad_columns_are_refused() -> None:
    for outcomes, shapes, said in (([2], [0, 1], "every column"), ([0], [0], "one outcome"), ([1], [7], "shape")):
        with pytest.raises(ValueError, match=said):
            ColumnsModel(outcomes, shapes)
    with pytest.raises(ValueError, match="core must be"):
        ColumnsModel([2], [0], core="rnn")
    with pytest.raises(ValueError, match="cells of shape"):
        ColumnsModel([2], [0]).log_prob(torch.zeros(3, 5))


def test_octaves_bound_the_oscillations_of_an_embedding() -> None:
    """The fastest of k octaves has n = 2^(k - 1) half periods on [0, 1]. A sum has at most 2 n turning points."""
    places = torch.linspace(0.01, 0.99, 400, dtype=torch.float64)
    cells = torch.stack([point(float(place)) for place in places])[:, None]
    for octaves, most in ((1, 2), (4, 16)):
        model = ColumnsModel([1, 2], [2, 0], hidden_features=8, token_features=4, octaves=octaves).double()
        model.places.data[:, :2] = 0  # leaves only the waves
        embedded = model._embed(cells)[:, 0]  # (400, 4)
        turns = (embedded.diff(dim=0).sign().diff(dim=0) != 0).sum(dim=0)
        assert int(turns.max()) <= most
        again = ColumnsModel(**model.config())
        assert {name: p.shape for name, p in again.named_parameters()} == {
            name: p.shape for name, p in model.named_parameters()
        }
    with pytest.raises(ValueError, match="octaves"):
        ColumnsModel([2], [0], octaves=0)


@pytest.mark.parametrize(("context", "columns"), [(0, 1), (2, 1), (0, 5), (3, 33), (0, 70), (2, 131)])
def test_the_networks_of_many_columns_equal_one_masked_product(context: int, columns: int) -> None:
    """Values and gradients; the first layers of a group of columns are computed together."""
    torch.manual_seed(0)
    core = ColumnNetworks(context, columns, 3, 4, num_blocks=1).double()
    tokens = torch.randn(7, context + columns - 1, 3, dtype=torch.float64, requires_grad=True)
    leaves = [tokens, core.first, core.shift]
    mask = torch.arange(tokens.shape[1])[:, None] < torch.arange(columns) + context
    x = torch.einsum("nte,tedh,td->dnh", tokens, core.first, mask.double()) + core.shift[:, None]
    expected, found = core._blocks(x, slice(None)).transpose(0, 1), core(tokens)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    by_column = [core.column(i, tokens[:, : context + i]) for i in range(columns)]
    torch.testing.assert_close(found, torch.stack(by_column, dim=1), rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(each.sin().sum(), leaves) for each in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)

    torch.manual_seed(0)
    grouped = ColumnNetworks(context, columns, 3, 4, num_blocks=1, grouped=True).double()  # the same numbers
    again = grouped(tokens)
    torch.testing.assert_close(again, expected, rtol=1e-12, atol=1e-12)
    by_column = [grouped.column(i, tokens[:, : context + i]) for i in range(columns)]
    torch.testing.assert_close(again, torch.stack(by_column, dim=1), rtol=1e-12, atol=1e-12)
    of_tokens, *of_groups = torch.autograd.grad(again.sin().sum(), [tokens, *grouped.first])
    every = torch.autograd.grad(core(tokens).sin().sum(), leaves)
    torch.testing.assert_close(of_tokens, every[0], rtol=1e-12, atol=1e-12)
    for one, other in zip(of_groups, every[1].split(32, dim=2), strict=True):
        torch.testing.assert_close(one, other[: len(one)], rtol=1e-12, atol=1e-12)
        assert not other[len(one) :].any()  # no column uses the weights that are left out


def test_the_core_of_a_wide_table_is_saved_with_groups_of_weights() -> None:
    torch.manual_seed(0)
    model = ColumnsModel([2] * 40, [0] * 40, hidden_features=8, token_features=4, grouped=True).double()
    again = unpack(pack(model))
    assert again.config() == model.config()
    cells = torch.stack([word(i % 2) for i in range(40)]).flatten()[None]
    torch.testing.assert_close(again.log_prob(cells), model.log_prob(cells))
