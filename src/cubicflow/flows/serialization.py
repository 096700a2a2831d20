"""Save flows to files and load them. config.json describes the flow, and model.safetensors holds its tensors. No file
is a pickle.

Loading treats the files as untrusted. The config holds plain values and names of classes, cubicflow's own or registered
ones. Loading takes four steps:

1. Compare the sizes in the config with the header of the weights.
2. Build the model on the meta device, where a tensor takes no memory.
3. Compare the model's keys, shapes and dtypes with the header.
4. Read the tensors, and refuse tensors that are not finite.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.files import NotPlainError, check_plain, replacing, write_atomically
from cubicflow.flows.descriptions import BUILT_IN, TABLE_MODELS, build, describe, registered_names, try_describe
from cubicflow.flows.flow import Flow
from cubicflow.flows.meta_init import default_tensor_type
from cubicflow.flows.mixture import Mixture
from cubicflow.flows.untrusted import why_too_large, why_unusable
from cubicflow.nets.rng import SHARED_GENERATOR

FORMAT = "cubicflow"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
UNREGISTERED = "unregistered"  # the key, instead of "type", for a flow with unregistered classes
SHARED = "shared_tensors"  # the section for tensors with several names
MAX_CONFIG_BYTES = 1 << 28  # bytes; enough for some sixty columns with the largest number of values
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# The names of torch's dtypes in safetensors.
TENSOR_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]  # name -> (shape, dtype)


class FlowFileError(ValueError):
    """An error for a saved flow that cannot be loaded. The message names the file and the reason.

    >>> try:
    ...     load("no/such/folder")
    ... except FlowFileError as error:
    ...     print(error)
    no/such/folder: there is no such folder; give the folder of a run
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def config_of_flow(flow: Any, *, or_state: bool = False) -> dict[str, Any]:
    """Return the entries of config.json about a flow: its dtype and description. Raise a TypeError for a flow with
    unregistered classes. With ``or_state``, describe such a flow by the names, dtypes and shapes of its tensors."""
    missing = try_describe(flow)[1]
    if missing and or_state:
        return {"dtype": None, "flow": {UNREGISTERED: missing, "state": describe_state(flow)}}
    description = describe(flow)
    about = {"dtype": flow_dtype(flow), "flow": description}
    if shared := shared_names(flow):
        about[SHARED] = shared
    if names := registered_names(description):
        try:
            problems = differences(state_shapes(flow), state_shapes(build_flow(description, DTYPES[about["dtype"]])))
        except ValueError as error:
            problems = str(error)
        if problems:
            raise ValueError(
                f"config() of {', '.join(names)} does not rebuild this flow: {problems}. config() must return all "
                "arguments of the constructor, which is called on the meta device, where tensors have no values"
            )
    return about


def save_flow(flow: Any, folder: str | Path, **sections: Any) -> None:
    """Write a flow. ``sections`` are further JSON values for config.json. Each file is replaced atomically."""
    about = config_of_flow(flow)
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_flow(flow, Path(folder), about, sections)


def write_flow(flow: Any, folder: Path, about: dict[str, Any], sections: dict[str, Any]) -> None:
    """Write the weights of a flow, and config.json with the entries of ``about`` and ``sections``."""
    write_tensors(folder / WEIGHTS_FILE, state_of(flow), {FORMAT: str(VERSION)})
    write_config(folder, about, sections)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Replace a safetensors file in one step, without a copy of the tensors in memory. They share no memory."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as file:
        try:
            save_file(tensors, file.name, metadata)
        except SafetensorError as error:  # its text holds the number of the system's error
            if (found := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from None


def state_of(flow: nn.Module) -> dict[str, Tensor]:
    """Return copies of a flow's tensors: safetensors refuses tensors that share memory, as buffers of a layer may."""
    return {key: value.detach().cpu().clone().contiguous() for key, value in flow.state_dict().items()}


def write_config(folder: Path, about: dict[str, Any], sections: dict[str, Any]) -> None:
    """Write config.json, replacing an old one."""
    config = {"format": FORMAT, "version": VERSION, "dtype": None, **sections, **about}
    written = (json.dumps(config, indent=2) + "\n").encode()
    if len(written) > MAX_CONFIG_BYTES:  # raise before a fit begins, not when its result is opened
        raise ValueError(
            f"{folder / CONFIG_FILE} would have {len(written):,} bytes, and at most {MAX_CONFIG_BYTES:,} are read: "
            "too many columns have very many different values; leave out some of these columns, or round them"
        )
    write_atomically(folder / CONFIG_FILE, written)


def load(folder: str | Path, device: str | torch.device | None = None) -> Flow | Mixture:
    """Load a flow that was saved with ``save`` onto ``device``, by default the CPU. No code from the files is executed.

    The flow is in evaluation mode. Raise a :class:`FlowFileError` for files that do not hold a flow.

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
    config = read_config(Path(folder))
    described = config.get("flow")
    if isinstance(described, dict) and described.get("type") in TABLE_MODELS:
        raise FlowFileError(
            Path(folder) / CONFIG_FILE,
            "this run holds a model of the columns of a table, not a flow; use "
            f"cubicflow.tables.FittedTable.load({str(folder)!r})",
        )
    flow: Flow | Mixture = load_model(folder, device, config)
    return flow


def load_model(
    folder: str | Path, device: str | torch.device | None = None, config: dict[str, Any] | None = None
) -> Any:
    """Load any model of a run folder, as :func:`load` does. ``config`` is the folder's config, if already read."""
    if torch.device(device or "cpu").type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r} needs a GPU, and torch finds none; leave out device= for the CPU")
    folder = Path(folder)
    config = read_config(folder) if config is None else config
    path, config_path = folder / WEIGHTS_FILE, folder / CONFIG_FILE
    description = config.get("flow")
    if isinstance(description, dict) and UNREGISTERED in description:
        raise FlowFileError(
            config_path,
            f"the flow has classes that were not registered when it was fitted, {description[UNREGISTERED]}, so it "
            "cannot be built from this file; call cubicflow.register on them before fit, or build the flow in code and "
            f"call flow.load_state_dict(safetensors.torch.load_file({str(path)!r}))",
        )
    return restored(config, config_path, path, read_header(path), lambda device: read_tensors(path, device), device)


def restored(
    config: dict[str, Any],
    config_path: Path,
    path: Path,
    shapes: Shapes,
    read: Callable[[str | torch.device | None], dict[str, Tensor]],
    device: str | torch.device | None = None,
) -> Any:
    """Return the described model with its tensors. Everything is checked before ``read(device)`` reads a tensor of
    ``path``."""
    description, dtype = config.get("flow"), DTYPES.get(str(config.get("dtype")))
    if dtype is None:
        raise FlowFileError(config_path, f"dtype must be one of {sorted(DTYPES)}, got {config.get('dtype')!r}")
    if too_large := why_too_large(description, shapes):
        raise FlowFileError(config_path, too_large)
    try:
        flow = build_flow(description, dtype)
    except ValueError as error:
        raise FlowFileError(config_path, f"invalid description of a flow: {error}") from error
    compare(path, state_shapes(flow), shapes)
    if registered := bool(registered_names(description)):
        # A registered class may hold tensors outside its state, and these have no values on the meta device. The flow
        # is therefore built again on the CPU. The checks above ensure that the flow is not larger than the file.
        with SHARED_GENERATOR, torch.random.fork_rng(devices=[]):
            flow = build_flow(description, dtype, "cpu")
    tensors = read("cpu" if registered else device)
    if unusable := why_unusable(flow, tensors, registered=registered):
        raise FlowFileError(path, unusable)
    flow.load_state_dict(tensors, assign=not registered)
    if registered:
        flow.to(device or "cpu")
    share(flow, config_path, config.get(SHARED, {}))
    return flow.eval()


def pack(flow: nn.Module) -> dict[str, Any]:
    """Return a flow as plain values and bytes, for pickling without torch modules."""
    from safetensors.torch import save

    return {"flow": describe(flow), "dtype": flow_dtype(flow), "weights": save(state_of(flow))}


def unpack(packed: dict[str, Any]) -> Flow | Mixture:
    """Return the flow that :func:`pack` packed, on the CPU."""
    from safetensors.torch import load as load_tensors

    flow: Flow | Mixture = build_flow(packed["flow"], DTYPES[packed["dtype"]])
    flow.load_state_dict(load_tensors(packed["weights"]), assign=True)
    return flow.eval()


def flow_dtype(flow: nn.Module) -> str:
    """Return the name of the flow's only floating dtype. Raise a ValueError if there are several."""
    dtypes = {dtype for _, dtype in state_shapes(flow).values()}
    found = {str(dtype).removeprefix("torch.") for dtype in dtypes if dtype.is_floating_point}
    if len(found) != 1 or not found <= set(DTYPES):
        raise ValueError(
            f"a flow is saved in one dtype, float32 or float64; this flow has {sorted(found)}: use flow.float()"
        )
    return found.pop()


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json after a check of its format and version."""
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        found = "this is not a folder" if folder.exists() else "there is no such folder"
        raise FlowFileError(folder, f"{found}; give the folder of a run")
    if not path.is_file():
        raise FlowFileError(
            path, "there is no such file, so the folder does not hold a saved flow; choose another folder"
        )
    try:
        check_plain(path, MAX_CONFIG_BYTES)
        config = json.loads(path.read_text(encoding="utf-8"))
    except NotPlainError as error:
        raise FlowFileError(path, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise FlowFileError(path, f"not valid JSON ({error}); restore the file, or fit again") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FlowFileError(path, f"not a {FORMAT} config: 'format' should be {FORMAT!r}")
    if config.get("version") != VERSION:
        raise FlowFileError(
            path, f"the format has version {config.get('version')!r}; this version of cubicflow reads version {VERSION}"
        )
    return config


def build_flow(description: Any, dtype: torch.dtype, device: str = "meta") -> Any:
    """Build the described flow, by default on the meta device, without memory for its tensors."""
    # In cubicflow's own modules, integer tensors are indices of columns. They are small, and the description determines
    # them, so they get values on the CPU.
    whole_numbers = None if registered_names(description) else "cpu"
    try:
        with default_tensor_type(dtype, torch.device(device), whole_numbers=whole_numbers):
            flow = build(description)
    except RecursionError as error:
        raise ValueError("the description is nested too deeply") from error
    is_density = isinstance(flow, Flow | Mixture) or type(flow).__name__ in TABLE_MODELS
    if not is_density and not (isinstance(flow, nn.Module) and type(flow).__name__ not in BUILT_IN):
        raise ValueError(f"the description is of a {type(flow).__name__}, which is not a flow")
    return flow


def state_shapes(flow: Any) -> Shapes:
    """Return the shapes and dtypes of a flow's tensors."""
    state = flow.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} in the flow's state_dict() is not a tensor and cannot be saved; use a buffer")
    return {name: (tuple(value.shape), value.dtype) for name, value in state.items()}


def describe_state(flow: Any) -> dict[str, str]:
    """Return the dtype and shape of every tensor of a flow as text, for readers and for comparison."""
    return {name: f"{dtype}{list(shape)}".removeprefix("torch.") for name, (shape, dtype) in state_shapes(flow).items()}


def shared_names(flow: Any) -> dict[str, str]:
    """Return a dict from second names in a flow's state to first names. A tensor has two names if a parameter is
    shared, or if a module with buffers is used twice."""
    modules = dict(flow.named_modules(remove_duplicate=False))
    first: dict[Any, str] = {}
    second = {}
    for name, value in flow.state_dict(keep_vars=True).items():
        path, _, last = name.rpartition(".")
        owner = value if isinstance(value, nn.Parameter) else modules.get(path, name)
        if (known := first.setdefault((id(owner), owner is value or last), name)) != name:
            second[name] = known
    return second


def share(flow: Any, path: Path, shared: Any) -> None:
    """Restore shared tensors: tensors with two names that were one tensor when the flow was saved, such as the weights
    of a network that two layers use."""
    state = flow.state_dict(keep_vars=True)
    kinds = {name: (type(value), value.shape, value.dtype) for name, value in state.items()}
    pairs = shared.items() if isinstance(shared, dict) else [("", "")]
    if any(name not in kinds or kinds[name] != kinds.get(str(first)) for name, first in pairs):
        raise FlowFileError(path, f"the section {SHARED!r} does not match the flow")
    for name, first in pairs:
        module, _, last = name.rpartition(".")
        setattr(flow.get_submodule(module), last, state[first])


def read_header(path: Path) -> Shapes:
    """Return the shapes and dtypes of the tensors in a safetensors file, without reading the tensors."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FlowFileError(path, "there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            found = {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise FlowFileError(path, f"not a complete safetensors file: {error}") from None
    if unknown := sorted({kind for _, kind in found.values()} - set(TENSOR_DTYPES)):
        raise FlowFileError(path, f"the file holds tensors of dtype {', '.join(unknown)}, which flows do not use")
    return {key: (shape, TENSOR_DTYPES[kind]) for key, (shape, kind) in found.items()}


def differences(expected: Shapes, found: Shapes) -> str:
    """Return a text that lists unexpected names, shapes and dtypes, or an empty text if there are none."""
    problems = [f"{key} is missing" for key in sorted(expected.keys() - found.keys())]
    problems += [f"{key} is not part of the flow" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(expected.keys() & found.keys()):
        if expected[key] != found[key]:
            (shape, dtype), (shape_found, dtype_found) = expected[key], found[key]
            problems.append(f"{key} should be {dtype} of shape {shape}, but is {dtype_found} of shape {shape_found}")
    return "; ".join(problems[:3]) + (f" (and {len(problems) - 3} more)" if len(problems) > 3 else "")


def compare(path: Path, expected: Shapes, found: Shapes) -> None:
    """Raise a :class:`FlowFileError` if the weights do not match the config."""
    if problems := differences(expected, found):
        raise FlowFileError(path, f"the weights do not match {CONFIG_FILE}: {problems}")


def read_tensors(path: Path, device: str | torch.device | None) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file, on the device."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path, device=str(device or "cpu"))
    return tensors
