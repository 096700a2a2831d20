"""Faster versions of work that the layers do: the same results with fewer kernel launches and less Python.

    eager_fast_path.py   splines: skip autograd and torch's dispatcher if possible; cache Triton launches
    side_stream.py       nets: gradients of weights on a second stream
    one_query.py         nets: attention of one token to the tokens before it
    fused_norms.py       nets: sum, dropout and layer norm between two branches of a transformer in one kernel
    fused_coupling.py    transforms: splines of coupling layers read and write slices of rows, in a captured step
    flat_weights.py      training: all parameters in one vector, updated by one kernel
    fused_update.py      training: what follows the backward pass of a step, in three kernels
    captured_step.py     training: a step as one CUDA graph, and a batch of a validation as another
    capture.py           captures CUDA graphs, and replays them for new inputs; flows: large calls in replayed chunks
    safety.py            decides for which flows the shortcuts are safe
    private.py           all private names of torch and Triton that cubicflow uses

No layer imports this package. Each of the five layers named above has a hook: an object of a class with default
methods. ``import cubicflow`` registers the modules of this package. With ``CUBICFLOW_ACCEL=off`` all hooks keep
their default methods. With ``CUBICFLOW_ACCEL=public`` no private name of torch or Triton is used. Hooks of modules
have private names, so safety.py trusts no flow then, and nothing is captured. Everything still works, only slower.
"""

from __future__ import annotations

import os

from cubicflow.hooks import register_faster

VARIABLE = "CUBICFLOW_ACCEL"
CHOICES = ("on", "public", "off")
FASTER = {
    "splines": "cubicflow.accel.eager_fast_path",
    "nets": "cubicflow.accel.side_stream",
    "flows": "cubicflow.accel.capture",
    "transforms": "cubicflow.accel.fused_coupling",
    "training": "cubicflow.accel.captured_step",
}


def choice() -> str:
    """Return the value of the environment variable: ``"on"``, ``"public"`` or ``"off"``."""
    found = os.environ.get(VARIABLE, "on")
    if found not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, got {found!r}")
    return found


def register_modules() -> None:
    """Register the modules of this package. A layer imports its module when the layer itself is imported."""
    if choice() != "off":
        for layer, module in FASTER.items():
            register_faster(layer, module)
