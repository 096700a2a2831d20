"""Flows in files: config.json says what to build, model.safetensors holds its numbers. Nothing is ever a pickle.

Loading trusts nothing. The config names types from a fixed list and plain values; the model is built on the meta
device, where a shape costs no memory; its keys, shapes and dtypes are compared with the header of the weights; only
then is a tensor read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow import distributions, nets, transforms
from cubicflow.atomic_files import write_atomically
from cubicflow.flows.flow import Flow
from cubicflow.flows.mixture import Mixture

FORMAT = "cubicflow"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# What a config may name.
TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Flow,
        Mixture,
        *(getattr(module, name) for module in (distributions, nets, transforms) for name in module.__all__),
    )
    if cls not in (distributions.Base, transforms.Transform)
}


class FlowFileError(ValueError):
    """A saved flow that cannot be loaded: which file, and why.

    >>> try:
    ...     load("no/such/folder")
    ... except FlowFileError as error:
    ...     print(error)
    no/such/folder: there is no such folder
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def describe(part: Any) -> Any:
    """A flow, or any part of one, as plain JSON values. Refuses modules that are not cubicflow's own, by name."""
    if isinstance(part, list | tuple):
        return [describe(item) for item in part]
    if isinstance(part, nn.Module | transforms.ElementMap):
        name = type(part).__name__
        if TYPES.get(name) is not type(part):
            raise TypeError(
                f"{type(part).__module__}.{name} is not one of cubicflow's own modules, so no config can describe it; "
                "save the flow's state_dict() and rebuild the flow in code"
            )
        config: dict[str, Any] = part.config()  # type: ignore[operator] # every type in the list has one
        return {"type": name, **{key: describe(value) for key, value in config.items()}}
    return part


def build(config: Any) -> Any:
    """The inverse of :func:`describe`. Raises ValueError or TypeError for what describes nothing."""
    if isinstance(config, list):
        return [build(item) for item in config]
    if isinstance(config, dict):
        arguments = dict(config)
        name = arguments.pop("type", None)
        if not isinstance(name, str) or name not in TYPES:
            raise ValueError(f"{name!r} is not a type that cubicflow builds")
        try:
            return TYPES[name](**{key: build(value) for key, value in arguments.items()})
        except (TypeError, AttributeError, RuntimeError) as error:
            raise ValueError(f"{name} cannot be built from {sorted(arguments)}: {error}") from error
    return config


def save_flow(flow: Flow | Mixture, folder: str | Path, **sections: Any) -> None:
    """Write a flow; ``sections`` are further JSON values for config.json. Each file is replaced in one step."""
    from safetensors.torch import save

    folder = Path(folder)
    dtype = flow_dtype(flow)
    config = {"format": FORMAT, "version": VERSION, "dtype": dtype, **sections, "flow": describe(flow)}
    # safetensors refuses tensors that share memory, as equal buffers of one layer may
    state = {key: value.detach().cpu().clone().contiguous() for key, value in flow.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / WEIGHTS_FILE, save(state, metadata={FORMAT: str(VERSION)}))
    write_atomically(folder / CONFIG_FILE, (json.dumps(config, indent=2) + "\n").encode())


def load(folder: str | Path, device: str | torch.device | None = None) -> Flow | Mixture:
    """Read a flow that was saved with ``save``, onto ``device``, the CPU by default. Executes nothing from the files.

    The flow comes back in evaluation mode.

    >>> import tempfile
    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flow.save(folder)
    ...     again = load(folder)
    >>> x = torch.randn(3, 2)
    >>> torch.equal(again.log_prob(x), flow.log_prob(x))
    True
    """
    if torch.device(device or "cpu").type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={str(device)!r} needs a GPU, and torch finds none here; leave device= out for the CPU"
        )
    folder = Path(folder)
    config = read_config(folder)
    path = folder / WEIGHTS_FILE
    shapes = read_header(path)
    dtype = DTYPES.get(str(config.get("dtype")))
    if dtype is None:
        raise FlowFileError(folder / CONFIG_FILE, f"dtype must be one of {sorted(DTYPES)}, got {config.get('dtype')!r}")
    flow = build_on_meta(folder / CONFIG_FILE, config.get("flow"), dtype, len(shapes))
    compare(path, {key: (tuple(t.shape), t.dtype) for key, t in flow.state_dict().items()}, shapes)
    flow.load_state_dict(read_tensors(path, device), assign=True)
    return flow.eval()


def flow_dtype(flow: nn.Module) -> str:
    """The one floating dtype of a flow, by name."""
    found = {str(t.dtype).removeprefix("torch.") for t in flow.state_dict().values() if t.is_floating_point()}
    if len(found) != 1 or not found <= set(DTYPES):
        raise ValueError(
            f"a flow is saved in one dtype, float32 or float64; this one has {sorted(found)}: use flow.float()"
        )
    return found.pop()


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, with its format and version checked."""
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        raise FlowFileError(folder, "there is no such folder" if not folder.exists() else "this is not a folder")
    if not path.is_file():
        raise FlowFileError(path, "there is no such file, so the folder holds no saved flow")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FlowFileError(path, f"not valid JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FlowFileError(path, f"not a {FORMAT} config: 'format' should be {FORMAT!r}")
    if config.get("version") != VERSION:
        raise FlowFileError(
            path, f"written in version {config.get('version')!r} of the format; this cubicflow reads version {VERSION}"
        )
    return config


def build_on_meta(path: Path, description: Any, dtype: torch.dtype, num_tensors: int) -> Flow | Mixture:
    """The described flow without memory for its numbers."""
    if _most_blocks(description) > num_tensors:
        raise FlowFileError(path, "it describes more layers than the weights hold")
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device("meta"):
            flow = build(description)
    except (ValueError, TypeError, RecursionError) as error:
        raise FlowFileError(path, f"it does not describe a flow: {error}") from error
    finally:
        torch.set_default_dtype(default)
    if not isinstance(flow, Flow | Mixture):
        raise FlowFileError(path, "it does not describe a flow")
    return flow


def read_header(path: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shapes and dtypes of the tensors in a safetensors file, none of which is read."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FlowFileError(path, "there is no such file")
    names = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "BOOL": torch.bool}
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            kinds = {key: part.get_dtype() for key, part in slices.items()}
            shapes = {key: tuple(part.get_shape()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise FlowFileError(path, f"not a whole safetensors file: {error}") from None
    unknown = sorted(set(kinds.values()) - set(names))
    if unknown:
        raise FlowFileError(path, f"it holds tensors of dtype {', '.join(unknown)}, which no flow has")
    return {key: (shapes[key], names[kinds[key]]) for key in shapes}


def compare(path: Path, expected: dict[str, Any], found: dict[str, Any]) -> None:
    """The keys, shapes and dtypes the config asks for, against those the weights have."""
    problems = [f"{key} is missing" for key in sorted(expected.keys() - found.keys())]
    problems += [f"{key} is not part of the flow" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(expected.keys() & found.keys()):
        if expected[key] != found[key]:
            (shape, dtype), (shape_found, dtype_found) = expected[key], found[key]
            problems.append(f"{key} should be {dtype} of shape {shape}, is {dtype_found} of shape {shape_found}")
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise FlowFileError(path, f"does not fit its {CONFIG_FILE}: {'; '.join(problems[:3])}{more}")


def read_tensors(path: Path, device: str | torch.device | None) -> dict[str, Tensor]:
    """All tensors of a safetensors file on the device."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path, device=str(device or "cpu"))
    return tensors


def _most_blocks(description: Any) -> int:
    """The largest count of repeated parts a config asks for: the one number that costs time even on the meta device."""
    if isinstance(description, list):
        return max(map(_most_blocks, description), default=0)
    if isinstance(description, dict):
        own = description.get("num_blocks", 0)
        return max(own if isinstance(own, int) else 0, *map(_most_blocks, description.values()), 0)
    return 0
