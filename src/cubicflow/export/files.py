"""Conversion of traced programs to the bytes of .onnx and .pt2 files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import torch
from torch.export import ExportedProgram

from cubicflow.export.graphs import ExportError, Graph
from cubicflow.export.onnx_formulas import formulas
from cubicflow.export.tracing import quiet

OPERATOR = type(torch.ops.aten.add.Tensor)
ABOUT = "cubicflow.json"  # name of the graph's description inside both kinds of files
MOST_BYTES = 2**31 - 1  # largest size of an ONNX file, in bytes


def onnx_bytes(program: ExportedProgram, graph: Graph, about: Mapping[str, Any]) -> bytes:
    """Convert a program to ONNX.

    Raises ExportError for an operator that ONNX lacks; the message names the part of the model with that operator.
    """
    how: dict[str, Any] = {"input_names": list(graph.inputs), "output_names": list(graph.outputs), "verbose": False}
    how["optimize"] = False  # optimising takes half of the time; tidied() does the needed part
    try:
        with quiet():
            converted = torch.onnx.export(program, (), dynamo=True, custom_translation_table=formulas(), **how)
            model = tidied(converted)
    except Exception as error:
        raise ExportError(_unconverted(program, error)) from error
    model.metadata_props.add(key=ABOUT, value=json.dumps(about))
    if model.ByteSize() > MOST_BYTES:
        raise ExportError(f"the model has {model.ByteSize():,} bytes, and an ONNX file at most 2 GB; write a .pt2 file")
    content: bytes = model.SerializeToString()
    return content


def tidied(converted: Any) -> Any:
    """Return the ONNX model with folded constants, without source lines, and with the row axis named ``rows``.

    torch attaches to every node the source lines that the node was traced from. They name paths of this machine.
    """
    from onnxscript import optimizer

    optimizer.fold_constants(converted.model)
    optimizer.remove_unused_nodes(converted.model)
    model = converted.model_proto
    del model.graph.value_info[:]  # shapes of inner values; every runtime infers them
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for end in (*model.graph.input, *model.graph.output):
        for size in end.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = "rows"
    return model


def program_bytes(program: ExportedProgram, about: Mapping[str, Any]) -> bytes:
    """Return the bytes of a .pt2 file for ``torch.export.load``, without the source lines of the nodes."""
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    file = BytesIO()
    torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()


def _unconverted(program: ExportedProgram, error: BaseException) -> str:
    """Return a message that names the operator that ONNX lacks, and the part of the model with that operator."""
    message = str(error)
    while error.__cause__ is not None:
        error = error.__cause__
        message = f"{message} {error}"
    # The conversion first replaces operators by more basic ones, such as special_bessel_j1 by bessel_j1.
    replaced = re.search(r"OpOverload\(op='\w+\.(\w+)'", message)
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OPERATOR):
            continue
        operator = str(node.target)
        if operator in message or (replaced is not None and operator.split(".")[1].endswith(f"_{replaced[1]}")):
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            name, kind = stack[-1] if stack else ("", "")
            part = f"{name.removeprefix('model.')} ({str(kind).rsplit('.', 1)[-1]})" if name else "the model"
            return f"{part} cannot be written as ONNX, which has no operator for {operator}; write a .pt2 file"
    return f"the model cannot be written as ONNX: {' '.join(str(error).split())[:300]}; write a .pt2 file"
