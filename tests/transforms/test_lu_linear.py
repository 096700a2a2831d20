"""Linear layers, compared with dense matrices, after changes of their weights, and several in one Compose."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.perturbed import perturbed

import cubicflow as cf
from cubicflow.transforms import Compose, Conv1x1, Elementwise, LULinear
from cubicflow.transforms.linear import ALWAYS_INVERTED, ROWS_WORTH_AN_INVERSE


class TestLULinear:
    @pytest.mark.parametrize("features", [1, 2, 512])
    def test_against_the_dense_matrix(self, features: int) -> None:
        layer = perturbed(LULinear(features, seed=1), by=0.3 / features**0.5).double()
        eye = torch.eye(features, dtype=torch.float64)
        lower = layer.factors.tril(-1) + eye
        upper = layer.factors.triu(1) + torch.diag(layer.log_diagonal.exp())
        dense = eye[layer.permutation] @ lower @ upper
        x = torch.randn(9, features, dtype=torch.float64)
        z, log_det = layer(x)
        assert torch.allclose(z, x @ dense.T + layer.bias, rtol=1e-12, atol=1e-12)
        assert torch.allclose(log_det, dense.slogdet().logabsdet.expand(9), rtol=1e-12, atol=1e-12)
        solved = torch.linalg.solve(dense, (z - layer.bias).T).T
        assert torch.allclose(layer.inverse(z)[0], solved, rtol=1e-9, atol=1e-9)

    def test_starts_as_a_permutation(self) -> None:
        layer = LULinear(6, seed=3)
        x = torch.randn(4, 6)
        assert torch.equal(layer(x)[0], x[:, layer.permutation])
        assert sorted(layer.permutation.tolist()) == list(range(6))
        assert torch.equal(LULinear(6, seed=3).permutation, layer.permutation)

    @pytest.mark.parametrize("features", [5, ALWAYS_INVERTED + 1])
    def test_inverses_follow_every_change_of_the_weights(self, features: int) -> None:
        """The reference solves with the dense matrix, without gradients, with few rows and with many."""
        layer = perturbed(LULinear(features)).double()
        rows = torch.randn(ROWS_WORTH_AN_INVERSE * features, features, dtype=torch.float64)

        def agrees() -> bool:
            z = rows.to(layer.factors.dtype)
            with torch.no_grad():
                dense = (layer(torch.eye(features, dtype=z.dtype))[0] - layer.bias).double().T
                solved = torch.linalg.solve(dense, (z - layer.bias).double().T).T
                tolerance = 1e2 * torch.finfo(z.dtype).eps * torch.linalg.cond(dense) * solved.abs().max()
                return all(
                    torch.allclose(layer.inverse(z[:n])[0].double(), solved[:n], rtol=0, atol=tolerance)
                    for n in (1, len(z))
                )

        assert agrees()
        with torch.no_grad():
            layer.factors.mul_(1.5)
        assert agrees(), "after an in-place change"
        layer.factors.data.mul_(0.5)
        layer.log_diagonal.data.add_(0.2)
        assert agrees(), "after a write that autograd's version counter misses"
        layer.load_state_dict(perturbed(LULinear(features), by=0.7).double().state_dict())
        assert agrees(), "after loading"
        layer.load_state_dict(perturbed(LULinear(features), by=0.1).double().state_dict(), assign=True)
        assert agrees(), "after loading by assignment"
        layer.float()
        assert agrees(), "after a change of dtype"
        for fused in (False, True):  # fused steps do not raise the version counter
            optimizer = torch.optim.Adam(layer.parameters(), lr=0.05, fused=fused)
            for direction in (layer, layer.inverse):
                sum(out.square().sum() for out in direction(rows.float())).backward()
                optimizer.step()
                assert agrees(), "after an optimiser's step"

    def test_samples_after_fused_steps_through_the_inverse(self) -> None:
        flow = cf.flows.tabular(2, num_layers=2, hidden_features=16).double()
        flow.sample(3)
        optimizer = torch.optim.Adam(flow.parameters(), lr=0.05, fused=True)
        for step in range(10):
            x, log_q = flow.sample_and_log_prob(64, seed=step)
            optimizer.zero_grad()
            (log_q + (x - 3).square().sum(-1)).mean().backward()
            optimizer.step()
        with torch.no_grad():
            x, log_q = flow.sample_and_log_prob(64, seed=0)
            assert torch.allclose(log_q, flow.log_prob(x), atol=1e-8)

    def test_an_ensemble_of_layers_under_vmap(self) -> None:
        layers = [perturbed(Compose([LULinear(3, seed=i)]), by=0.3 + i).double() for i in range(4)]
        parameters, buffers = torch.func.stack_module_state(layers)
        z = torch.randn(5, 3, dtype=torch.float64)

        class Back(torch.nn.Module):
            def __init__(self, layer: Compose) -> None:
                super().__init__()
                self.layer = layer

            def forward(self, z: torch.Tensor) -> torch.Tensor:
                return self.layer.inverse(z)[0]

        def call(parameters: dict, buffers: dict) -> torch.Tensor:
            state = {f"layer.{name}": value for name, value in {**parameters, **buffers}.items()}
            return torch.func.functional_call(Back(layers[0]), state, (z,))

        with torch.no_grad():
            found = torch.func.vmap(call)(parameters, buffers)
            expected = torch.stack([layer.inverse(z)[0] for layer in layers])
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("direction", ["forward", "inverse"])
    def test_integer_inputs_are_refused(self, direction: str) -> None:
        with pytest.raises(TypeError, match=r"floating-point inputs, got torch.int64; pass x.float\(\)"):
            getattr(LULinear(2), direction)(torch.tensor([[1, 2]]))

    def test_autocast_does_not_change_the_result(self) -> None:
        layer, x = perturbed(LULinear(16)), torch.randn(8, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z, _ = layer(x)
            back, _ = layer.inverse(z)
        assert torch.equal(z, layer(x)[0])
        assert torch.allclose(back, x, atol=1e-4)

    def test_conv1x1_is_lu_linear_on_every_pixel(self) -> None:
        layer = perturbed(Conv1x1(3, seed=0))
        x = torch.randn(2, 3, 4, 5)
        z, log_det = layer(x)
        for i, j in ((0, 0), (3, 4), (1, 2)):
            pixel, log_det_pixel = layer.linear(x[:, :, i, j])
            assert torch.allclose(z[:, :, i, j], pixel, atol=1e-6)
        assert torch.allclose(log_det, 20 * log_det_pixel)


def one_by_one(parts: list, x: torch.Tensor, method: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the parts one after the other, outside Compose."""
    log_det = torch.zeros(len(x), dtype=x.dtype)
    for part in parts if method == "forward" else reversed(parts):
        x, log_det_part = getattr(part, method)(x)
        log_det = log_det + log_det_part
    return x, log_det


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("method", ["forward", "inverse"])
class TestInCompose:
    def test_equals_the_layers_one_by_one(self, method: str, gradients: bool) -> None:
        parts = [perturbed(LULinear(3, seed=1)), Elementwise(3), perturbed(LULinear(3, seed=2), by=0.6)]
        self.agrees(parts, method, gradients)

    def test_a_layer_used_twice_counts_twice(self, method: str, gradients: bool) -> None:
        layer = perturbed(LULinear(3))
        self.agrees([layer, Elementwise(3), layer], method, gradients)

    def test_a_subclass_keeps_its_own_methods(self, method: str, gradients: bool) -> None:
        class Shifted(LULinear):
            def forward(self, x, context=None):
                z, log_det = super().forward(x, context)
                return z + 1, log_det

            def inverse(self, z, context=None):
                return super().inverse(z - 1, context)

        self.agrees([LULinear(3, seed=0), perturbed(Shifted(3))], method, gradients)

    @staticmethod
    def agrees(parts: list, method: str, gradients: bool) -> None:
        parts = [part.double() for part in parts]
        x = torch.randn(4, 3, dtype=torch.float64)
        with torch.set_grad_enabled(gradients):
            found = getattr(Compose(parts), method)(x)
            expected = one_by_one(parts, x, method)
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-10)


def test_hooks_of_linear_layers_fire() -> None:
    layer, plain = LULinear(3), LULinear(3)
    seen = []
    layer.register_forward_hook(lambda *_: seen.append("after"))
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    Compose([layer, plain])(torch.randn(2, 3))
    assert seen == ["before", "after"]


def test_a_layer_on_the_meta_device_takes_no_memory() -> None:
    with torch.device("meta"):
        layer = LULinear(10**9, seed=0)  # a real permutation would take gigabytes
    assert layer.permutation.is_meta
    assert layer.permutation.shape == (10**9,)
