"""Flows as plain values for pickling: a description and safetensors bytes, without torch modules."""

from __future__ import annotations

from typing import Any

from torch import nn

from cubicflow.flows import Flow, Mixture
from cubicflow.flows.descriptions import describe
from cubicflow.flows.serialization import DTYPES, build_flow, flow_dtype, state_bytes


def pack(flow: nn.Module) -> dict[str, Any]:
    """Return a flow as plain values and bytes."""
    return {"flow": describe(flow), "dtype": flow_dtype(flow), "weights": state_bytes(flow)}


def unpack(packed: dict[str, Any]) -> Flow | Mixture:
    """Return the flow that :func:`pack` packed, on the CPU."""
    from safetensors.torch import load

    flow: Flow | Mixture = build_flow(packed["flow"], DTYPES[packed["dtype"]])
    flow.load_state_dict(load(packed["weights"]), assign=True)
    return flow.eval()
