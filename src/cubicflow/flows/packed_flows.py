"""Flows in pickles: a description and safetensors bytes, no module of torch."""

from __future__ import annotations

from typing import Any

from torch import nn

from cubicflow.flows import Flow, Mixture
from cubicflow.flows.descriptions import describe
from cubicflow.flows.serialization import DTYPES, build_flow, flow_dtype, state_bytes


def pack(flow: nn.Module) -> dict[str, Any]:
    """A flow as plain values and bytes."""
    return {"flow": describe(flow), "dtype": flow_dtype(flow), "weights": state_bytes(flow)}


def unpack(packed: dict[str, Any]) -> Flow | Mixture:
    """The inverse of :func:`pack`, on the CPU."""
    from safetensors.torch import load

    flow: Flow | Mixture = build_flow(packed["flow"], DTYPES[packed["dtype"]])
    flow.load_state_dict(load(packed["weights"]), assign=True)
    return flow.eval()
