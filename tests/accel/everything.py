"""A short program that uses every part of cubicflow.

test_fence.py runs it with and without shortcuts, and compares the results.
"""

from __future__ import annotations

import json
import sys
import tempfile

import torch

import cubicflow as cf
from cubicflow.accel import choice
from cubicflow.splines.calls import calls
from cubicflow.training.step_hook import step_hook


def results() -> dict[str, list]:
    """Return the numbers of every part, and under ``kinds`` the names of two implementations in use."""
    torch.manual_seed(0)
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 2.0, 0.5])
    found = {}

    params = torch.randn(3, 14, generator=torch.Generator().manual_seed(2), requires_grad=True)
    y, log_slope = cf.splines.cubic_spline(x, params)
    (grad,) = torch.autograd.grad((y + log_slope).sum(), params)
    found["spline"] = [y, log_slope, grad]
    with torch.no_grad():
        found["inverse"] = [cf.splines.cubic_spline(y, params, inverse=True)[0]]

    def total(x: torch.Tensor) -> torch.Tensor:
        return cf.splines.cubic_spline(x, params.detach())[0].square().sum()

    found["torch.func"] = [torch.func.vmap(torch.func.grad(total))(x[:5]), torch.func.hessian(total)(x[0])]
    if choice() != "public":  # the compiler takes seconds to import; it sees the same code with "public" as with "off"
        found["compiled"] = [torch.compile(total, fullgraph=True, backend="eager")(x)]

    flow = cf.flows.tabular(3, num_layers=3, hidden_features=16, num_bins=5)
    fit = cf.training.fit(flow, x, steps=25, learning_rate=1e-2, batch_size=64, device="cpu", progress=False)
    found["training"] = [torch.tensor(fit.validation_loss), *flow.parameters()]
    found["flow"] = [flow.log_prob(x, batch_size=37), flow.sample(50, seed=3), flow.from_noise(x)[0]]
    found["batch norm"] = [
        torch.tensor(
            cf.training.fit(
                cf.flows.tabular(3, num_layers=1, hidden_features=8, norm="batch"), x, steps=5, progress=False
            ).validation_loss
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        flow.save(folder)
        found["loaded"] = [cf.load(folder).log_prob(x)]

    kinds = [type(calls).__name__, type(step_hook).__name__]
    return {"kinds": kinds, **{name: [tensor.tolist() for tensor in tensors] for name, tensors in found.items()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(results()))
