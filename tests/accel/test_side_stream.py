"""Gradients of weights on a second stream. The streams are made up, so that the tests run without a GPU."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from cubicflow.accel.side_stream import FastProducts, SideStream


class TwiceAndOnce(nn.Module):
    """One weight that is used in two products of a pass, and one that is used in one."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))
        self.once = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        products = FastProducts()
        x = products.exact(x, self.twice).tanh()
        x = products.exact(x, self.once).tanh()
        return products.exact(x, self.twice)


def test_the_gradients_of_a_weight_that_is_used_twice_stay_on_the_current_stream(monkeypatch) -> None:
    """Autograd adds the two gradients on the current stream, before the second stream would have computed them."""
    inside: list[bool] = []

    @contextmanager
    def second_stream(_):
        inside.append(True)
        yield
        inside.pop()

    current = SimpleNamespace(wait_stream=lambda _: None)
    stream = SimpleNamespace(wait_stream=lambda _: None, device=torch.device("cpu"))
    fakes = {"Stream": lambda _: stream, "stream": second_stream, "current_stream": lambda *_: current}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    torch.manual_seed(0)
    module, x = TwiceAndOnce(), torch.randn(5, 3, dtype=torch.float64)
    expected = torch.autograd.grad((module(x) ** 2).sum(), list(module.parameters()))

    computed_on: dict[str, list[bool]] = {}
    multiply = Tensor.__matmul__

    def watched(left: Tensor, right: Tensor) -> Tensor:
        found = multiply(left, right)
        if found.shape == (3, 3) and not torch.is_grad_enabled():
            computed_on.setdefault("weights", []).append(bool(inside))
        return found

    monkeypatch.setattr(Tensor, "__matmul__", watched)
    with SideStream(torch.device("cpu")).weight_gradients():
        (module(x) ** 2).sum().backward()
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient)
    assert computed_on["weights"] == [False, True, False]  # from the last product to the first


def test_a_new_pass_counts_anew(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: None)
    side = SideStream(torch.device("cpu"))
    weight = torch.randn(2, 2)
    for _ in range(2):
        with side.weight_gradients():
            FastProducts().exact(torch.randn(4, 2), weight)
            assert list(side.uses.values()) == [1]
