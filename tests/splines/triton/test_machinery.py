"""The Triton backend under autograd, tracers, transforms, CUDA graphs and the dispatcher."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest
import torch

from cubicflow.splines import (
    cubic_spline,
    dispatch,
    linear_spline,
)
from cubicflow.splines.backends import triton
from cubicflow.splines.domains import DOMAINS
from cubicflow.splines.families import FAMILIES

from ..cases import Case
from .calls import assert_close, draw, gradients, points, spline

pytest.importorskip("triton", reason="Triton is for Linux only")
# The interpreter computes with NumPy, which warns about exp2(-inf) and about 0 / 0 in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


# --- other tools of torch ---------------------------------------------------------------------------------------------

OWN_AND_SHARED = [((4, 3), False), ((3,), True)]  # leading axes of params, and a direction for each

EACH_SLOPES_ONCE = [("steffen", "real", False), ("free", "unit", True)]
OTHERS = [
    each for each in product(("steffen", "free"), ("real", "unit"), (False, True)) if each not in EACH_SLOPES_ONCE
]


@pytest.mark.parametrize(
    ("slopes", "domain", "inverse"),
    # A setting takes three seconds. test_values.py compares first derivatives with the reference for all settings. The
    # second derivatives are computed by the reference.
    [*EACH_SLOPES_ONCE, *(pytest.param(*each, marks=pytest.mark.soak) for each in OTHERS)],
)
def test_gradcheck(slopes, domain, inverse, smooth_inputs, device):
    """Each element has its own Steffen spline. All elements share one spline with free slopes."""
    cubic = Case("cubic", slopes)
    x, params = smooth_inputs(cubic, 3, domain, inverse)
    splines = x.shape if cubic.slopes == "steffen" else ()
    x = x.detach().to(device).requires_grad_()
    params = params.detach().to(device).expand(*splines, -1).clone().requires_grad_()

    def function(x, params):
        return spline(cubic.slopes, x, params, domain=domain, inverse=inverse)

    # Fast mode checks one random direction only: interpreted kernels are slow.
    assert torch.autograd.gradcheck(function, (x, params), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x, params), fast_mode=True)


@pytest.mark.parametrize(("splines", "inverse"), OWN_AND_SHARED, ids=["own", "shared"])
def test_opcheck(splines, inverse, device):
    x, params = points(4, 3, device=device), draw("steffen", *splines, num_bins=4, device=device)
    spec = ("cubic", 4, inverse, "real", "steffen", 1e-3, 1e-3)
    torch.library.opcheck(torch.ops.cubicflow.triton_spline, (x, params, *spec))
    torch.library.opcheck(torch.ops.cubicflow.triton_spline_backward, (x, params, x, x, *spec))


@pytest.mark.parametrize(("splines", "inverse"), OWN_AND_SHARED, ids=["own", "shared"])
def test_compiles_to_one_graph_with_its_backward(splines, inverse, device):
    torch.compiler.reset()
    x, params = points(4, 3, device=device), draw("free", *splines, num_bins=4, device=device)
    eager = gradients("free", x, params, "triton", inverse=inverse)
    x, params = x.requires_grad_(), params.requires_grad_()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(x, params):
        return spline("free", x, params, inverse=inverse)

    y, log_slope = function(x, params)
    generator = torch.Generator().manual_seed(2)
    grads = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for _ in range(2)]
    assert_close([y, log_slope, *torch.autograd.grad((y, log_slope), (x, params), grads)], eager)
    torch.compiler.reset()


def test_function_transforms(inverse, device):
    from torch.func import grad, jacfwd, jacrev, vmap

    x, params = points(4, 3, device=device), draw("steffen", 4, 3, num_bins=3, device=device)

    def of(backend):
        def total(x, params):
            y, log_slope = spline("steffen", x, params, backend, inverse=inverse)
            return (y * log_slope).sum()

        def value(x, params):
            return torch.stack(spline("steffen", x, params, backend, inverse=inverse))

        return [
            vmap(value)(x, params),
            vmap(value, in_dims=(0, None))(x, params[0]),
            vmap(value, in_dims=(None, 0), out_dims=1)(x[0], params),
            vmap(value, in_dims=(1, 2))(x, params.movedim(1, 2).contiguous()),
            *grad(total, argnums=(0, 1))(x, params),
            *vmap(grad(total, argnums=(0, 1)))(x, params),
            *vmap(grad(total, argnums=(0, 1)), in_dims=(0, None))(x, params[0]),
            jacrev(value, argnums=1)(x, params),
            jacrev(grad(total))(x, params),
        ]

    assert_close(of("triton"), of("reference"))
    with pytest.raises(RuntimeError, match="jvp"):
        jacfwd(lambda x: spline("steffen", x, params)[0])(x)


# make_graphed_callables runs on another stream than the one on which the leaves were made.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match:UserWarning")
def test_a_cuda_graph_replays(device):
    if device != "cuda":
        pytest.skip("needs --device cuda")
    for num_bins in (10, 33):
        x = points(1000, dtype=torch.float32, device=device).requires_grad_()
        params = draw("steffen", 1000, num_bins=num_bins, dtype=torch.float32, device=device).requires_grad_()
        run = torch.cuda.make_graphed_callables(lambda x, params: spline("steffen", x, params), (x, params))
        other = draw("steffen", 1000, num_bins=num_bins, dtype=torch.float32, device=device, seed=9).requires_grad_()
        y, log_slope = run(x, other)
        grads = torch.autograd.grad((y + log_slope).sum(), [x, other])
        want = spline("steffen", x, other)
        assert (y == want[0]).all()
        assert (log_slope == want[1]).all()
        want_grads = torch.autograd.grad((want[0] + want[1]).sum(), [x, other])
        assert all((a == b).all() for a, b in zip(grads, want_grads, strict=True))


# --- the choice of the backend ----------------------------------------------------------------------------------------


def test_auto_takes_triton_for_cuda_tensors_only(monkeypatch, device):
    chosen = []
    monkeypatch.setattr(dispatch.BACKENDS["triton"], "evaluate", lambda spec, x, params: chosen.append(x) or (x, x))
    x, params = points(3, device=device), draw("steffen", 3, num_bins=3, device=device)
    cubic_spline(x, params)
    assert len(chosen) == (device == "cuda")


def test_the_kernels_have_every_name_that_the_records_give_them():
    from cubicflow.splines.backends.triton import bin as element
    from cubicflow.splines.backends.triton import unit

    for module, table in ((unit, FAMILIES), (element, DOMAINS)):
        names = [record.kernel for record in table.values() if record.kernel is not None]
        numbers = [getattr(module, name).value for name in names]
        assert len(set(numbers)) == len(names) > 1


def test_refusals(device):
    x = points(3, device=device)
    with pytest.raises(RuntimeError, match="no Triton kernel for the linear spline"):
        linear_spline(x, torch.zeros(7, dtype=x.dtype, device=device), backend="triton")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("import os, torch; torch.cuda.is_available = lambda: False", "no CUDA device"),
        ("import sys; sys.modules['triton'] = None", "Triton is not installed"),
    ],
    ids=["no device", "no Triton"],
)
def test_without_triton_or_a_device_the_error_names_what_is_missing(prepare, message):
    """The package imports, auto runs, and the named backend says which package is missing."""
    program = f"""
{prepare}
import torch
from cubicflow.splines import cubic_spline
x, params = torch.randn(3), torch.zeros(10)
cubic_spline(x, params)
try:
    cubic_spline(x, params, backend="triton")
except RuntimeError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert message in done.stdout


def test_a_compiler_that_is_too_old_is_not_used(monkeypatch):
    import triton as compiler

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(triton, "_interpreted", lambda: False)
    monkeypatch.setattr(compiler, "__version__", "3.4.0")
    assert triton._unavailable.__wrapped__() == (
        "Triton 3.4.0 cannot compile the kernels; use torch 2.9 or newer, which comes with Triton 3.5"
    )
    monkeypatch.setattr(compiler, "__version__", "3.10.1+git1")
    assert triton._unavailable.__wrapped__() is None
