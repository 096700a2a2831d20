"""Export a model to a file that other programs can run without cubicflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from cubicflow.advice import Advice
from cubicflow.export.graphs import LOG_DENSITY, SAMPLER, ExportError, Graph, graph_of
from cubicflow.extras import need
from cubicflow.files import check_free, replacing_together

if TYPE_CHECKING:
    from cubicflow.flows import Flow, Mixture
    from cubicflow.tables import ColumnsModel, FittedTable

FORMAT, VERSION = "cubicflow-export", 1
ENDINGS = (".onnx", ".pt2")


def export_model(
    model: Flow | Mixture | ColumnsModel | FittedTable | str | Path,
    path: str | Path,
    *,
    sampler: bool = False,
    precision: str = "float32",
    overwrite: bool = False,
) -> list[Path]:
    """Export the log density or the sampler of a model as a graph for any number of rows.

    Args:
        model: a flow, a mixture, a model of columns, a fitted table, or the folder of a finished run.
        path: the output file: ``.onnx`` for ONNX (``pip install 'cubicflow[onnx]'``), or ``.pt2`` for
            ``torch.export.load``. Neither file needs cubicflow. For a fitted table, a second file with the same name
            and the suffix ``.json`` holds the encoding of the columns.
        sampler: export the map from noise to samples instead of the log density of rows.
        precision: ``"float32"`` or ``"float64"``, of the inputs, the weights, the computation and the outputs.
        overwrite: replace existing files.

    Returns the files written. Raises ExportError if the model cannot be exported; the message names the part.

    >>> import tempfile
    >>> import torch
    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(1, num_layers=1, hidden_features=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path] = export_model(flow, f"{folder}/model.pt2")
    ...     log_density = torch.export.load(path).module()
    >>> x = torch.randn(3, 1)
    >>> torch.allclose(log_density(x), flow.log_prob(x), atol=1e-5)
    True
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ExportError(f"{path}: the file name must end in {' or '.join(ENDINGS)}")
    exported: Any = _model_of(Path(model)) if isinstance(model, str | Path) else model
    table = None if isinstance(exported, nn.Module) else exported
    encoding = None if table is None else path.with_suffix(".json")
    for file in [path] if encoding is None else [path, encoding]:
        check_free(file, overwrite=overwrite)
    from cubicflow.export.files import onnx_bytes, program_bytes
    from cubicflow.export.tracing import traced

    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript"):
            need(package, "writing .onnx")
    network = exported if table is None else getattr(table, "flow", table)
    graph = graph_of(network, sampler=sampler, precision=precision)
    about = about_graph(graph, sampler=sampler)
    contents: dict[Path, bytes] = {}
    if table is not None and encoding is not None:
        contents[encoding] = (json.dumps({**about, **table.encoding()}, indent=1) + "\n").encode()
    program = traced(graph)
    contents[path] = onnx_bytes(program, graph, about) if path.suffix == ".onnx" else program_bytes(program, about)
    write_together(contents)
    return sorted(contents, key=lambda file: file != path)


def about_graph(graph: Graph, *, sampler: bool) -> dict[str, Any]:
    """Return the description that every exported file contains: format, version, graph, inputs and outputs."""
    found: dict[str, Any] = {"format": FORMAT, "version": VERSION, "graph": SAMPLER if sampler else LOG_DENSITY}
    found["inputs"] = {name: ["rows", *shape] for name, shape in graph.inputs.items()}
    found["outputs"] = list(graph.outputs)
    found["dtype"] = str(graph.dtype).removeprefix("torch.")
    return found if graph.noise is None else {**found, "noise": graph.noise}


def write_together(contents: dict[Path, bytes]) -> None:
    """Write several files, or no file."""
    try:
        with replacing_together() as new_file:
            for path, content in contents.items():
                with new_file(path) as file:
                    file.write(content)
    except OSError as error:
        names = " and ".join(map(str, contents))
        raise ExportError(f"{names} cannot be written: {error.strerror or error}") from None


def _model_of(run: Path) -> Any:
    """Return the model of a run folder. The run must be finished."""
    from cubicflow.flows.serialization import load_model, read_config

    config = read_config(run)
    result = config.get("result")
    if isinstance(result, dict) and not result.get("finished"):
        raise ExportError(
            Advice(f"{run} is still training, or its training was interrupted; wait for it, or finish it", resume=True)
        )
    if "table" not in config:
        return load_model(run, None, config)
    from cubicflow.tables import FittedTable

    return FittedTable.load(run)
