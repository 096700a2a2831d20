"""Flows in pickles: a description and safetensors bytes, no module of torch."""

from __future__ import annotations

from typing import Any

from cubicflow.flows import Flow, Mixture
from cubicflow.flows.descriptions import describe
from cubicflow.flows.serialization import DTYPES, build_flow, flow_dtype


def pack(flow: Flow | Mixture) -> dict[str, Any]:
    """A flow as plain values and bytes."""
    from safetensors.torch import save

    state = {key: value.detach().cpu().clone().contiguous() for key, value in flow.state_dict().items()}
    return {"flow": describe(flow), "dtype": flow_dtype(flow), "weights": save(state)}


def unpack(packed: dict[str, Any]) -> Flow | Mixture:
    """The inverse of :func:`pack`, on the CPU."""
    from safetensors.torch import load

    state = load(packed["weights"])
    flow: Flow | Mixture = build_flow(packed["flow"], DTYPES[packed["dtype"]])
    flow.load_state_dict(state, assign=True)
    return flow.eval()
