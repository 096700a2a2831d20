"""Faster ways to do what the layers do: the same results, fewer launches, less of Python.

    light_calls.py       splines: calls past the parts of torch that nobody needs; remembered launches
    forked_gradients.py  nets: gradients of weights on a second stream
    one_query.py         nets: attention of one token to those before it
    fused_norms.py       nets: what lies between two branches of a transformer, as one kernel
    replayed_pieces.py   flows: many pieces of a large call as replays of one
    flat_weights.py      training: all parameters in one vector, updated by one kernel
    captured_step.py     training: a step as one CUDA graph
    capture.py           CUDA graphs
    safety.py            for which flows all of this is safe
    private.py           every private name of torch that is used

No layer imports this package. Each of the four layers named above has a hook, a class that does the plain thing, and
importing ``cubicflow`` offers the subclasses here for them. With ``CUBICFLOW_ACCEL=off`` all hooks stay plain, and with
``public`` no private name of torch is used: everything works, slower.
"""

from __future__ import annotations

import os

from cubicflow.hooks import offer

VARIABLE = "CUBICFLOW_ACCEL"
CHOICES = ("on", "public", "off")
OFFERS = {
    "splines": "cubicflow.accel.light_calls",
    "nets": "cubicflow.accel.forked_gradients",
    "flows": "cubicflow.accel.replayed_pieces",
    "training": "cubicflow.accel.captured_step",
}


def choice() -> str:
    """What the environment asks for: ``"on"``, ``"public"`` or ``"off"``."""
    found = os.environ.get(VARIABLE, "on")
    if found not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, got {found!r}")
    return found


def fill_hooks() -> None:
    """Offer what is here to the layers, which take it up when they are imported."""
    if choice() != "off":
        for layer, module in OFFERS.items():
            offer(layer, module)
