"""Masked networks and autoregressive layers that keep to a graph of the features."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.nets import MaskedResidualMLP
from cubicflow.transforms import Autoregressive, ElementMap

from ..helpers.perturbed import perturbed


def random_graph(features: int, seed: int) -> Tensor:
    """Return a random graph without cycles, whose order is not that of the features."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.rand(features, features, generator=generator).tril(-1) > 0.5
    order = torch.randperm(features, generator=generator)
    return edges[order][:, order]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("norm", [None, "batch"])
def test_outputs_depend_on_parents_and_on_nothing_else(seed: int, norm: str | None) -> None:
    graph = random_graph(6, seed)
    torch.manual_seed(seed)
    net = MaskedResidualMLP(6, 18, hidden_features=36, adjacency=graph, norm=norm, context_features=2)
    net = perturbed(net, by=0.5).double().eval()
    x, context = torch.randn(20, 6).double(), torch.randn(20, 2).double()
    by_row = torch.autograd.functional.jacobian(lambda x: net(x, context).sum(0), x).view(6, 3, 20, 6)
    assert torch.equal(by_row.abs().sum((1, 2)) > 0, graph)
    of_context = torch.autograd.functional.jacobian(lambda context: net(x, context).sum(0), context)
    assert (of_context.view(6, -1).abs().sum(1) > 0).all()


def test_a_chain_is_the_usual_order_with_one_parent_each() -> None:
    chain = torch.diag(torch.ones(3), -1)
    assert MaskedResidualMLP(4, 4, adjacency=chain).levels == [[0], [1], [2], [3]]
    everything = torch.ones(3, 3).tril(-1)
    assert MaskedResidualMLP(3, 3, adjacency=everything).levels == [[0], [1], [2]]


@pytest.mark.parametrize(("graph", "passes"), [(torch.zeros(5, 5), 1), (torch.ones(5, 5).tril(-1), 5), (None, 3)])
def test_the_inverse_takes_one_pass_for_each_level(graph: Tensor | None, passes: int) -> None:
    if graph is None:
        graph = torch.zeros(5, 5)
        graph[[0, 1, 3], [2, 2, 0]] = 1  # 2 -> 0 -> 3, 2 -> 1
    layer = perturbed(Autoregressive(5, partial(MaskedResidualMLP, hidden_features=10, adjacency=graph)), by=0.3)
    layer = layer.double()
    calls: list[int] = []
    layer.network.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(7, 5).double()
    z, _ = layer(x)
    calls.clear()
    assert torch.allclose(layer.inverse(z)[0], x)
    assert len(calls) == layer.inverse_passes == passes


def test_a_flow_keeps_to_its_graph(tmp_path) -> None:
    graph = [[False, False, False], [True, False, False], [True, False, False]]
    flow = perturbed(cf.flows.tabular(3, layer="autoregressive", linear=False, num_layers=2, adjacency=graph), by=0.2)
    x = torch.randn(6, 3)
    given_first = torch.autograd.functional.jacobian(lambda x: flow.to_noise(x)[0].sum(0), x).abs().sum(1)
    assert given_first[2, 1] == given_first[1, 2] == 0
    flow.save(tmp_path)
    assert torch.equal(cf.load(tmp_path).log_prob(x), flow.log_prob(x))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
            r"adjacency has the cycle \d -> \d -> \d -> \d: set one entry of it to False",
        ),
        ([[0, 0, 0], [0, 1, 0], [0, 0, 0]], r"adjacency has the cycle 1 -> 1"),
        ([[0, 1], [0, 0]], r"adjacency must have 3 rows of 3 entries, one for each feature; got rows of \[2, 2\]"),
    ],
)
def test_refused_graphs(graph: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedResidualMLP(3, 6, adjacency=graph)


def test_refused_settings() -> None:
    masked = partial(MaskedResidualMLP, adjacency=torch.ones(2, 2).tril(-1))
    with pytest.raises(ValueError, match="has an order of its own; leave out order="):
        Autoregressive(2, masked, ElementMap("affine"), order=[1, 0])
    with pytest.raises(ValueError, match="adjacency needs layer='autoregressive' or 'naf'"):
        cf.flows.tabular(2, adjacency=[[0, 0], [1, 0]])
