"""After its first call, a training step makes no tensor from Python numbers: a CUDA graph cannot capture the copy."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.helpers.device_copies import copies

import cubicflow as cf
from cubicflow.accel.captured_step import written_by
from cubicflow.nets import CausalTransformer, FourierMLP, MaskedResidualMLP, ResidualMLP
from cubicflow.nets.tracing import constant_tensor
from cubicflow.training import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step
from cubicflow.transforms import Autoregressive, Coupling, ElementMap

MAPS = ElementMap(domain=("circle", "unit", "circle", "unit"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Coupling([True, True, False, False], partial(ResidualMLP, hidden_features=8), MAPS),
        lambda: Coupling([True, True, False, False], partial(FourierMLP, hidden_features=8), MAPS),
        lambda: Autoregressive(4, partial(MaskedResidualMLP, hidden_features=8), MAPS),
        lambda: Autoregressive(4, partial(CausalTransformer, hidden_features=8), MAPS),
    ],
    ids=["residual", "Fourier", "masked", "transformer"],
)
def test_layers_with_angles(make):
    layer, x = make().to("meta"), torch.rand(8, 4, device="meta")
    assert copies(lambda: layer(x)[1].sum().backward()) == set()


def test_the_check_sees_copies():
    x = torch.zeros(3, 2, device="meta")
    assert copies(lambda: x[:, [0]] + torch.tensor([1.0], device="meta")) == {"__getitem__", "tensor"}


def test_values_of_different_types_are_different_tensors():
    device = torch.device("meta")
    assert constant_tensor([1, 0], device).dtype == torch.long
    assert constant_tensor([True, False], device, torch.bool).dtype == torch.bool
    with torch.inference_mode():
        made_first_in_inference_mode = constant_tensor([3, 2], device)
    assert not made_first_in_inference_mode.is_inference()


def test_a_capture_restores_the_buffers_that_are_not_saved():
    """The steps before a capture change them."""
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=8, norm="batch")
    flow.base.register_buffer("mask", torch.ones(2), persistent=False)
    config = TrainingConfig(steps=10, batch_size=8).resolve(100)
    step = Step(flow, negative_log_likelihood, config, Processes(torch.device("cpu")), 1.0)
    changed = {tensor.data_ptr() for tensor in written_by(step)}
    assert {tensor.data_ptr() for tensor in (*flow.parameters(), *flow.buffers())} <= changed
