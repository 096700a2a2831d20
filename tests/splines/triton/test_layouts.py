"""Params and gradients of the Triton kernels in any memory layout."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.triton_interpreter import MANY

from .calls import assert_close, draw, gradients, points, spline

pytest.importorskip("triton", reason="Triton is for Linux only")
# The interpreter computes with NumPy, which warns about exp2(-inf) and about 0 / 0 in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


LAYOUTS = {
    "one for all": ((37,), ()),
    "one for each feature": ((40, 6), (6,)),
    "one for each row": ((6, 40), (6, 1)),
    "two axes shared, two not": ((3, 2, 5, 4), (3, 1, 5, 1)),
    "more axes than the kernels take": ((2, 3, 2, 3, 2), (2, 1, 2, 1, 2)),
    "x shared": ((1, 4), (5, 4)),
    "no axes": ((), ()),
    "one element": ((1,), (1,)),
    "no elements": ((0, 3), (0, 3)),
    "no elements, shared": ((0, 3), (3,)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broadcasting(layout, device):
    shape, splines = LAYOUTS[layout]
    num_bins = 4
    params = draw("steffen", *splines, num_bins=num_bins, device=device)
    x = points(*shape, device=device)
    assert_close(gradients("steffen", x, params, "triton"), gradients("steffen", x, params, "reference"))


VIEWS = {
    "first axis": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "channels of an image": lambda tensor: tensor.movedim(-1, 1).contiguous().movedim(1, -1),
    "every other number": lambda tensor: torch.stack([tensor, -tensor], -1)[..., 0],
    "expanded": lambda tensor: tensor[:, :, :1].expand(-1, -1, 5, -1),
    "transposed and cut": lambda tensor: tensor[:, 1::2].transpose(1, 2),
}


@pytest.mark.parametrize(
    ("view", "name", "num_bins"),
    [*((view, "free", 4) for view in VIEWS), *(("channels of an image", name, MANY) for name in ("free", "quadratic"))],
)
@pytest.mark.usefixtures("small_chunks")
def test_strides(view, name, num_bins, device):
    params = VIEWS[view](draw(name, 3, 4, 5, num_bins=num_bins, device=device))
    assert not params.is_contiguous()
    x = points(*params.shape[:-1], device=device)
    found = gradients(name, x, params, "triton")
    assert_close(found, gradients(name, x, params, "reference"))
    strided = points(*reversed(x.shape), device=device).permute(2, 1, 0)
    assert_close(gradients(name, strided, params, "triton"), gradients(name, strided, params, "reference"))


def test_gradients_that_are_one_number_or_strided(device):
    """The gradient of a sum is one expanded number. The gradient of a transpose is strided."""
    x, params = points(6, 5, device=device).requires_grad_(), draw("free", 6, 5, num_bins=4, device=device)

    def grad(backend):
        y, log_slope = spline("free", x, params, backend)
        loss = y.sum() + (log_slope.T * torch.arange(6.0, device=device)).sum()
        return torch.autograd.grad(loss, [x])

    assert_close(grad("triton"), grad("reference"))


def test_tensors_that_begin_anywhere(device):
    """Tensors aligned to 16 bytes have their own kernels. Calls of one shape must not mix up the kernels."""
    numbers, many = points(44, device=device), draw("steffen", 44, num_bins=4, device=device).flatten()
    for offset in (0, 1, 2, 3, 0):
        x, params = numbers[offset:][:40], many[offset:][:400].view(40, 10)
        assert_close(gradients("steffen", x, params, "triton"), gradients("steffen", x, params, "reference"))


def test_the_gradient_of_image_params_has_their_layout(device):
    """The convolution that made the params then needs no copy of the gradient."""
    image = draw("steffen", 2, 3, 4, num_bins=5, device=device).movedim(-1, 1).contiguous()
    params = image.movedim(1, -1).detach().requires_grad_()
    y, log_slope = spline("steffen", points(2, 3, 4, device=device), params)
    (grad,) = torch.autograd.grad((y + log_slope).sum(), [params])
    assert grad.stride() == params.stride()
