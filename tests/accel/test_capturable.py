"""After its first call, a training step makes no tensor from Python numbers: a CUDA graph cannot capture the copy."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode

import cubicflow as cf
from cubicflow.accel.captured_step import written_by
from cubicflow.nets import CausalTransformer, FourierMLP, MaskedResidualMLP, ResidualMLP
from cubicflow.nets.constant_tensor import constant_tensor
from cubicflow.tables.columns_model import CORES, ColumnsModel
from cubicflow.training import TrainingConfig
from cubicflow.training.distributed import World
from cubicflow.training.losses import negative_log_likelihood
from cubicflow.training.step import Step
from cubicflow.transforms import Autoregressive, Coupling, ElementMap

COPIES = ("tensor", "as_tensor", "new_tensor", "from_numpy", "item", "cpu", "tolist")
MAPS = ElementMap(domain=("circle", "unit", "circle", "unit"))


class CopiesSeen(TorchFunctionMode):
    """The names of the calls that copy between Python or the CPU and the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        parts = index if isinstance(index, tuple) else (index,)
        if name in COPIES or any(isinstance(part, list) for part in parts):
            self.names.add(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def meta_with_autocast(monkeypatch):
    """Let networks ask for autocast on the meta device, which has none. Tensors there have a device that is not the
    CPU, as on a GPU, but no values.
    """
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


def copies(step) -> set[str]:
    """Take a first step, and return the copies that a second step makes."""
    step()
    with CopiesSeen() as seen:
        step()
    return seen.names


@pytest.mark.usefixtures("meta_with_autocast")
@pytest.mark.parametrize("core", CORES)
def test_models_of_columns(core):
    # Words, steps, a real column with atoms and an angle; two columns whose words never meet; a context column.
    columns = {"context_outcomes": [2], "context_shapes": [0], "circles": [3], "strangers": [[0, 1, 1, 1]]}
    settings = {"core": core, "hidden_features": 16, "cell_dropout": 0.1, "dropout": 0.1}
    model = ColumnsModel([3, 2, 1, 4], [0, 1, 2, 1], **columns, **settings).to("meta")
    x, context = torch.zeros(8, 16, device="meta"), torch.zeros(8, 4, device="meta")
    assert copies(lambda: model.log_prob(x, context).sum().backward()) == set()


@pytest.mark.usefixtures("meta_with_autocast")
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
    step = Step(flow, negative_log_likelihood, config, World(torch.device("cpu")), 1.0)
    changed = {tensor.data_ptr() for tensor in written_by(step)}
    assert {tensor.data_ptr() for tensor in (*flow.parameters(), *flow.buffers())} <= changed
