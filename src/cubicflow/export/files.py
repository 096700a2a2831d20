"""Programs as the bytes of a file: .onnx and .pt2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import torch
from torch.export import ExportedProgram

from cubicflow.export.export_error import ExportError
from cubicflow.export.graphs import Graph
from cubicflow.export.onnx_formulas import formulas
from cubicflow.export.quiet import quiet

OPERATOR = type(torch.ops.aten.add.Tensor)
ABOUT = "cubicflow.json"  # the name under which both kinds of file say what they are
MOST_BYTES = 2**31 - 1  # of an ONNX file


def check_onnx() -> None:
    """Refuse to begin without what writes ONNX."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"writing .onnx needs onnx and onnxscript, and {error.name} is not installed; use: "
            "pip install 'cubicflow[onnx]'"
        ) from error


def onnx_bytes(program: ExportedProgram, graph: Graph, about: Mapping[str, Any]) -> bytes:
    """Return the ONNX model. Where an operator has no counterpart there, the error names the part of the model it is in."""
    how: dict[str, Any] = {"input_names": list(graph.inputs), "output_names": list(graph.outputs), "verbose": False}
    how["optimize"] = False  # which takes as long as all the rest; what is wanted of it is in tidied
    try:
        with quiet():
            converted = torch.onnx.export(program, (), dynamo=True, custom_translation_table=formulas(), **how)
            model = tidied(converted)
    except Exception as error:
        raise ExportError(_unconverted(program, error)) from error
    model.metadata_props.add(key=ABOUT, value=json.dumps(about))
    if model.ByteSize() > MOST_BYTES:
        raise ExportError(f"the model has {model.ByteSize():,} bytes, and an ONNX file holds 2 GB; write a .pt2 file")
    content: bytes = model.SerializeToString()
    return content


def tidied(converted: Any) -> Any:
    """Return the model with its constants folded, the number of rows by its name, and nothing of the machine it was made on:
    every node comes with the lines of source that it was traced from."""
    from onnxscript import optimizer

    optimizer.fold_constants(converted.model)
    optimizer.remove_unused_nodes(converted.model)
    model = converted.model_proto
    del model.graph.value_info[:]  # shapes inside, which every reader infers
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for end in (*model.graph.input, *model.graph.output):
        for size in end.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = "rows"
    return model


def program_bytes(program: ExportedProgram, about: Mapping[str, Any]) -> bytes:
    """What ``torch.export.load`` reads, without the lines of source that every node was traced from."""
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    file = BytesIO()
    torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()


def _unconverted(program: ExportedProgram, error: BaseException) -> str:
    """Which operator of which part."""
    said, cause = str(error), error.__cause__
    while cause is not None:
        said, cause = f"{said} {cause}", cause.__cause__
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, OPERATOR) and str(node.target) in said:
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            name, kind = stack[-1] if stack else ("", "")
            part = f"{name.removeprefix('model.')} ({str(kind).rsplit('.', 1)[-1]})" if name else "the model"
            return f"{part} cannot be written as ONNX, which has nothing for {node.target}; a .pt2 file can hold it"
    return f"the model cannot be written as ONNX: {' '.join(str(error).split())[:300]}"
