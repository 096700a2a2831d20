"""A user's network is checked when its layer is built. The user's network and the random generators do not change."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from cubicflow.nets import CausalTransformer, MaskedResidualMLP
from cubicflow.transforms import Autoregressive, Coupling, ElementMap

SIZE = ElementMap().num_params  # 22


def zeroed(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def mlp(inputs: int, outputs: int, **_: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), zeroed(nn.Linear(8, outputs)))


class WithContext(nn.Module):
    """A network that needs its context."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.layer(torch.cat([x, context], dim=1))


class Made(nn.Module):
    """A masked network whose outputs for feature i see features before i, or before i + ``late``."""

    def __init__(self, features: int, size: int = SIZE, *, late: int = 0, by_value: bool = False) -> None:
        super().__init__()
        of_output = torch.arange(features).repeat_interleave(size)
        self.mask = nn.Buffer((torch.arange(features) < of_output[:, None] + late).float())
        self.weight = nn.Parameter(torch.zeros_like(self.mask))
        self.by_value = by_value
        if by_value:  # the mask is the zeros of the weight
            nn.init.normal_(self.weight).data.mul_(self.mask)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight if self.by_value else self.weight * self.mask)


class Summed(nn.Module):
    """Sums of the earlier features, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.cumsum(1) - x).repeat_interleave(SIZE, dim=1)


class Built(nn.Module):
    """A network that makes its layers in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = None

    def forward(self, x: Tensor) -> Tensor:
        self.layers = self.layers or nn.Linear(x.shape[1], SIZE)
        return self.layers(x)


class OfOneSize(nn.Module):
    """A network for images of 6 x 6 pixels, which cannot run on other images."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs, self.layer = outputs, nn.Linear(36, outputs * 36)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)).reshape(-1, self.outputs, 6, 6)


class Frozen(Made):
    """A masked network whose mask is a parameter that is not trained."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        mask = self.mask
        del self.mask
        self.mask = nn.Parameter(mask, requires_grad=False)


class WithNothing(Made):
    """A masked network that also holds a parameter without numbers."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.nothing = nn.Parameter(torch.empty(0, 3))


class LeakByContext(Made):
    """A masked network whose context, unless it is zero, lets every output see the last feature."""

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return super().forward(x) + context[:, :1] * x[:, -1:]


def hourglass(outputs: int) -> nn.Module:
    """A network for images of at least 8 x 8 pixels, because it halves the image three times."""
    down = [nn.Conv2d(1 if i == 0 else 4, 4, 3, stride=2, padding=1) for i in range(3)]
    return nn.Sequential(*down, nn.Upsample(scale_factor=8), nn.Conv2d(4, outputs, 1))


class OneLeak(Made):
    """A masked network in which outputs for feature 1 see feature 3."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.mask[SIZE : 2 * SIZE, 3] = 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Coupling([True, True, False], mlp(1, SIZE)),
            "with out_features=44, .* shape \\(2, 22\\)",
        ),
        (lambda: Coupling([True, False], mlp(1, 2 * SIZE)), "out_features=22, .* for 2 rows this Sequential returns"),
        (lambda: Coupling([True, False], lambda *_, **__: mlp(1, SIZE + 1)), "out_features=22, .* shape \\(2, 23\\)"),
        (lambda: Coupling([True, False], nn.Sequential(nn.LazyLinear(SIZE + 1))), "out_features=22"),
        (lambda: Coupling([True], WithContext(SIZE - 1), context_features=3), "out_features=22, .* shape \\(2, 21\\)"),
        (lambda: Coupling([True, False], nn.Sequential(nn.Conv2d(1, SIZE - 1, 1))), "shape \\(2, 21, 4, 4\\)"),
        (lambda: Coupling([True, False], hourglass(SIZE + 1)), "shape \\(2, 23, 8, 8\\)"),
        (lambda: Coupling([True, False], nn.Sequential(nn.Conv2d(1, SIZE, 3))), "shape \\(2, 22, 2, 2\\)"),
        (lambda: Autoregressive(3, mlp(3, 2 * SIZE)), "out_features=66, .* shape \\(2, 44\\)"),
    ],
)
def test_a_wrong_number_of_outputs_is_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "shape", "context"),
    [
        (lambda: Coupling([True, True, False], mlp(1, 2 * SIZE)), (3,), 0),
        (lambda: Coupling([True, True, False], mlp), (3,), 0),
        (lambda: Coupling([True, False], nn.Sequential(nn.LazyLinear(SIZE))), (2,), 0),
        (lambda: Coupling([True, False], Built()), (2,), 0),
        (lambda: Coupling([True, False], WithContext(SIZE), context_features=2), (2,), 2),
        (lambda: Coupling([True], WithContext(SIZE), context_features=3), (1,), 3),
        (lambda: Coupling([True, False], nn.Sequential(nn.Conv2d(1, SIZE, 3, padding=1))), (2, 3, 5), 0),
        (lambda: Coupling([True, False], OfOneSize(SIZE)), (2, 6, 6), 0),
        (lambda: Coupling([True, False], hourglass(SIZE)), (2, 8, 8), 0),
        (lambda: Coupling([True, False], nn.Sequential(nn.Conv2d(1, SIZE, 1), nn.Upsample(size=6))), (2, 6, 6), 0),
        (lambda: Coupling([True, False], mlp(1, SIZE).double()).double(), (2,), 0),
        (lambda: Autoregressive(3, Made(3)), (3,), 0),
        (lambda: Autoregressive(3, Made(3, by_value=True)), (3,), 0),
        (lambda: Autoregressive(1, Frozen(1)), (1,), 0),
        (lambda: Autoregressive(3, Frozen(3)), (3,), 0),
        (lambda: Autoregressive(3, Summed()), (3,), 0),
        (lambda: Autoregressive(3, WithNothing(3)), (3,), 0),
        (lambda: Autoregressive(2, nn.Sequential(MaskedResidualMLP(2, 2 * SIZE, hidden_features=8))), (2,), 0),
        (lambda: Autoregressive(3, nn.Sequential(CausalTransformer(3, 3 * SIZE, hidden_features=8))), (3,), 0),
    ],
)
def test_right_networks_work_as_before(make, shape: tuple[int, ...], context: int) -> None:
    layer = make()
    x = torch.rand(5, *shape).to(next((p.dtype for p in layer.parameters()), torch.float32))
    z, log_det = layer(x, *([torch.zeros(5, context)] if context else []))
    assert z.shape == x.shape
    assert log_det.shape == (5,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Autoregressive(3, mlp),
            "outputs 0 to 21 of this Sequential, .* for feature 0, depend on feature 0",
        ),
        (lambda: Autoregressive(1, mlp), "for feature 0, depend on feature 0"),
        (lambda: Autoregressive(3, Made(3, late=1)), "outputs 0 to 21 of this Made, .* depend on feature 0"),
        (lambda: Autoregressive(63, Made(63, late=1)), "depend on feature 0"),
        (lambda: Autoregressive(3, Made(3, late=2, by_value=True)), "for feature 0, depend on feature 0"),
        (lambda: Autoregressive(4, OneLeak(4)), "outputs 22 to 43 of this OneLeak, .* feature 1, depend on feature 3"),
        (lambda: Autoregressive(3, LeakByContext(3), context_features=2), "for feature 0, depend on feature 2"),
        (lambda: Autoregressive(3, mlp(3, 3 * SIZE).bfloat16()), "for feature 0, depend on feature 0"),
        (lambda: Autoregressive(3, mlp(3, 3 * SIZE).half()), "for feature 0, depend on feature 0"),
        (lambda: Autoregressive(3, Made(3).bfloat16()), None),
        (lambda: Autoregressive(3, Made(3), order=[2, 0, 1]), None),
    ],
)
def test_a_network_that_is_not_causal_is_refused(make, words: str | None) -> None:
    if words is None:
        make()
        return
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_the_network_and_the_generators_are_left_alone() -> None:
    normed = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3 * SIZE))
    for network in (normed, nn.Sequential(nn.LazyLinear(3 * SIZE)), Made(3)):
        before = copy.deepcopy(network)
        state = torch.get_rng_state()
        try:
            Autoregressive(3, network)
        except ValueError as error:
            assert "causal" in str(error)  # noqa: PT017
        assert torch.equal(torch.get_rng_state(), state)
        assert network.training
        for name, value in before.state_dict().items():
            now = network.state_dict()[name]
            assert type(now) is type(value)
            assert isinstance(value, nn.UninitializedParameter) or torch.equal(now, value)


def test_cubicflows_own_networks_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskedResidualMLP, "forward", lambda *_: pytest.fail("the network was run"))
    Autoregressive(3, partial(MaskedResidualMLP, hidden_features=8))
