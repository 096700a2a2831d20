"""The kernels of the transformer give the same numbers as the plain code, from the same random draws."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets.products import Products

pytest.importorskip("triton")


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a GPU with ``--device cuda``, else the CPU, where Triton interprets kernels as if for a GPU of two
    processors.
    """
    chosen = str(request.config.getoption("--device"))
    if chosen == "cpu":
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=2))
    return chosen


@pytest.mark.parametrize("features", [16, 20])
@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("adds", [True, False])
def test_sum_dropout_and_norm(device: str, features: int, rows: int, dropout: float, adds: bool) -> None:
    """Compare with the plain code in float64. The kernel in float32 is as accurate as the plain code in float32."""
    from cubicflow.accel import fused_norms

    torch.manual_seed(0)
    stream, added = (torch.randn(rows, 3, features, device=device, requires_grad=True) for _ in range(2))
    norm = nn.LayerNorm(features).to(device)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    inputs = [stream, *([added] if adds else []), norm.weight, norm.bias]
    more = added if adds else None

    def found(how) -> list[Tensor]:
        torch.manual_seed(1)
        total, normed = how()
        return [total, normed, *torch.autograd.grad((total.sin() + normed.cos()).sum(), inputs)]

    fused = found(lambda: fused_norms.add_norm(stream, more, norm, torch.float32, dropout))
    plain = found(lambda: Products().add_norm(stream, more, norm, dtype=torch.float32, dropout=dropout))
    for ours, theirs in zip(fused, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5 * float(theirs.detach().abs().max()))


@pytest.mark.parametrize(("tokens", "features"), [(1, 8), (5, 8), (7, 12), (33, 64)])
def test_attention_of_one_query(device: str, tokens: int, features: int) -> None:
    from cubicflow.accel import one_query

    torch.manual_seed(0)
    keys, values = (torch.randn(3, 2, 40, features, device=device)[:, :, :tokens] for _ in range(2))
    queries = 3 * torch.randn(3, 2, 1, features, device=device)
    assert one_query.can_attend(queries, keys, values)
    expected = F.scaled_dot_product_attention(queries.double(), keys.double(), values.double())
    assert torch.allclose(one_query.attend(queries, keys, values).double(), expected, rtol=0, atol=1e-5)


def test_a_nan_among_the_keys_stays_in_its_row(device: str) -> None:
    from cubicflow.accel import one_query

    keys, values = torch.randn(2, 1, 4, 8, device=device), torch.randn(2, 1, 4, 8, device=device)
    keys[0, 0, 2] = torch.nan
    found = one_query.attend(torch.ones(2, 1, 1, 8, device=device), keys, values)
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


def test_calls_that_the_kernel_refuses(device: str) -> None:
    from cubicflow.accel import one_query

    queries, keys = torch.randn(2, 1, 1, 8, device=device), torch.randn(2, 1, 300, 8, device=device)
    assert not one_query.can_attend(queries, keys, keys)  # more than MAX_TOKENS tokens
    assert not one_query.can_attend(queries, keys[:, :, :6], keys[:, :, ::50])  # keys and values with different strides
    assert not one_query.can_attend(queries.double(), keys[:, :, :9].double(), keys[:, :, :9].double())
    assert not one_query.can_attend(queries[:0], keys[:0, :, :9], keys[:0, :, :9])
