"""The core of the attention networks, compared with torch's layers, and steps compared with whole passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cubicflow.nets import Transformer
from cubicflow.nets.products import apply_dropout


def made(**settings) -> Transformer:
    torch.manual_seed(0)
    core = Transformer(12, num_blocks=2, num_heads=3, **settings).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return core


def tokens(n: int = 5, length: int = 4) -> Tensor:
    return torch.randn(n, length, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("causal", [True, False])
def test_equals_torchs_pre_norm_encoder(causal: bool) -> None:
    core = made(causal=causal)
    layers = []
    for i in range(2):
        gelu = nn.GELU(approximate="tanh")
        layer = nn.TransformerEncoderLayer(12, 3, 48, 0.0, gelu, batch_first=True, norm_first=True).double()
        attention, mlp = core.branches[2 * i], core.branches[2 * i + 1]
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.zero_()
            layer.self_attn.in_proj_weight.copy_(attention.inward.weight)
            layer.self_attn.out_proj.weight.copy_(attention.outward.weight)
            layer.linear1.weight.copy_(mlp.inward.weight)
            layer.linear2.weight.copy_(mlp.outward.weight)
            for norm, ours in ((layer.norm1, core.norms[2 * i]), (layer.norm2, core.norms[2 * i + 1])):
                norm.load_state_dict(ours.state_dict())
        layers.append(layer)
    x = tokens()
    expected = x
    for layer in layers:
        mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64) if causal else None
        expected = layer(expected, src_mask=mask)
    assert torch.allclose(core(x), core.norms[-1](expected), rtol=0, atol=1e-12)


def test_a_long_sequence_uses_torchs_attention_with_the_same_result(monkeypatch) -> None:
    core, x = made(), tokens(length=9)
    written_out = core(x)
    monkeypatch.setattr("cubicflow.nets.products.FEW_TOKENS", 0)
    assert torch.allclose(core(x), written_out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("grad", [True, False])
def test_steps_equal_a_whole_pass(grad: bool) -> None:
    core, x = made(), tokens(length=6)
    with torch.set_grad_enabled(grad):
        cache = core.cache(capacity=6)
        first = core(x[:, :2], cache)  # the first call may pass several tokens
        rest = [core(x[:, i : i + 1], cache) for i in range(2, 6)]
        assert cache.length == 6
        assert torch.allclose(torch.cat([first, *rest], dim=1), core(x), rtol=0, atol=1e-12)


def test_gradients_through_steps_equal_those_of_a_whole_pass() -> None:
    core, x = made(), tokens().requires_grad_()
    cache = core.cache(capacity=4)
    steps = torch.cat([core(x[:, i : i + 1], cache) for i in range(4)], dim=1)
    wanted = [x, *core.parameters()]
    found = torch.autograd.grad(steps.sin().sum(), wanted)
    expected = torch.autograd.grad(core(x).sin().sum(), wanted)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-11)


def test_derivatives_of_second_order_and_in_forward_mode() -> None:
    core = made()
    x = tokens(1, 3)

    def total(row: Tensor) -> Tensor:
        return core(row[None]).pow(3).sum()

    hessian = torch.func.hessian(total)(x[0]).reshape(36, 36)
    assert torch.allclose(hessian, hessian.T, atol=1e-10)
    gradient = torch.func.grad(total)
    step, direction = 1e-5, torch.randn(3, 12, dtype=torch.float64)
    numeric = (gradient(x[0] + step * direction) - gradient(x[0] - step * direction)).flatten() / (2 * step)
    assert torch.allclose(hessian @ direction.flatten(), numeric, rtol=1e-5, atol=1e-6)
    _, slope = torch.func.jvp(total, (x[0],), (direction,))
    assert torch.allclose(slope, (gradient(x[0]) * direction).sum())


def test_a_nan_stays_in_its_row() -> None:
    x = tokens()
    expected = made()(x)
    x[2, 1] = torch.nan
    found = made()(x)
    others = torch.arange(5) != 2
    assert torch.equal(found[others], expected[others])
    assert found[2, 1:].isnan().all()


def test_autocast_affects_only_the_branches() -> None:
    core, x = made().float(), tokens().float()
    exact = core(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = core(x)
    assert found.dtype == torch.float32
    error = (found - exact).norm() / exact.norm()
    assert 1e-5 < error < 2e-2  # the error of products with 8 bits


def test_dropout_acts_only_in_training_and_follows_the_seed() -> None:
    core, x = made(dropout=0.5), tokens()
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(core(x))
    assert torch.equal(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])
    assert torch.equal(core.eval()(x), made()(x))


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    found = apply_dropout(torch.ones(100_000), 0.3)
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert abs(found.mean() - 1) < 4 * (0.3 / 0.7 / 100_000) ** 0.5  # four standard errors


def test_config_rebuilds_the_core() -> None:
    core = made(dropout=0.1, causal=False)
    twin = Transformer(**core.config())
    assert twin.config() == core.config()
    assert {k: v.shape for k, v in twin.state_dict().items()} == {k: v.shape for k, v in core.state_dict().items()}


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Transformer(16, num_heads=3), "num_heads must divide hidden_features, got 3 and 16"),
        (lambda: Transformer(16, num_heads=0), "num_heads must be a positive integer, got 0"),
        (lambda: Transformer(16, num_blocks=0), "num_blocks must be a positive integer, got 0"),
        (lambda: Transformer(16, dropout=1.0), "dropout must be a finite number, 0 or more and below 1, got 1.0"),
        (lambda: made()(tokens()[0]), r"expects tokens of shape \(N, T, \d+\), got \(4, \d+\)"),
        (lambda: made()(tokens()[..., :1]), r"expects tokens of shape \(N, T, \d+\), got \(5, 4, 1\)"),
        (lambda: made(causal=False).cache(3), "a cache needs causal=True"),
        (lambda: made()(tokens(), made().cache(3)), "room for 3 tokens and holds 0; make one with a larger capacity"),
    ],
)
def test_refusals(act, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()


def test_after_the_first_call_only_one_token_at_a_time_is_accepted() -> None:
    core, cache = made(), made().cache(4)
    core(tokens(length=1), cache)
    with pytest.raises(ValueError, match="pass one token at a time; got 2 tokens"):
        core(tokens(length=2), cache)
    with pytest.raises(ValueError, match="causal=True"):
        made(causal=False)(tokens(length=1), cache)
