"""Flows in files: config.json says what to build, model.safetensors holds its numbers. Nothing is ever a pickle.

Loading trusts nothing. The config holds plain values and names of classes, cubicflow's own or registered. Its sizes are
compared with the header of the weights; the model is built on the meta device, where a shape costs no memory; its keys,
shapes and dtypes are compared with the header; only then is a tensor read, and refused if it is not finite.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.atomic_files import write_atomically
from cubicflow.flows.descriptions import OWN, TABLE_MODELS, build, describe, described, registered_names
from cubicflow.flows.flow import Flow
from cubicflow.flows.making import making
from cubicflow.flows.mixture import Mixture
from cubicflow.flows.untrusted import why_too_large, why_unusable
from cubicflow.nets.draws import SHARED_GENERATOR
from cubicflow.plain_files import NotPlainError, check_plain

FORMAT = "cubicflow"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
UNREGISTERED = "unregistered"  # the entry, instead of "type", about a flow that no config can describe
SHARED = "shared_tensors"  # the section about tensors of several names, where there are any
MOST_CONFIG_BYTES = 1 << 28  # some sixty columns with as many values as columns can have
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# What safetensors calls the dtypes of torch.
TENSOR_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]  # and dtypes, by name


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


def about_flow(flow: Any, *, or_state: bool = False) -> dict[str, Any]:
    """What config.json says of a flow: its dtype and description. A flow with modules that no description can name is
    refused, or with ``or_state`` told by the names, dtypes and shapes of its tensors."""
    missing = described(flow)[1]
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
                f"what config() of {', '.join(names)} builds is not this flow: {problems}. config() must return all "
                "arguments of the constructor; that is called on the meta device, where tensors have no values"
            )
    return about


def save_flow(flow: Any, folder: str | Path, **sections: Any) -> None:
    """Write a flow; ``sections`` are further JSON values for config.json. Each file is replaced in one step."""
    about = about_flow(flow)
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_flow(flow, Path(folder), about, sections)


def write_flow(flow: Any, folder: Path, about: dict[str, Any], sections: dict[str, Any]) -> None:
    """Write the weights of a flow, and what ``about`` and the sections say of it."""
    write_atomically(folder / WEIGHTS_FILE, state_bytes(flow, {FORMAT: str(VERSION)}))
    write_config(folder, about, sections)


def state_bytes(flow: nn.Module, metadata: dict[str, str] | None = None) -> bytes:
    """The tensors of a flow as a safetensors file."""
    from safetensors.torch import save

    # safetensors refuses tensors that share memory, as equal buffers of one layer may
    state = {key: value.detach().cpu().clone().contiguous() for key, value in flow.state_dict().items()}
    content: bytes = save(state, metadata)
    return content


def write_config(folder: Path, about: dict[str, Any], sections: dict[str, Any]) -> None:
    """Replace config.json."""
    config = {"format": FORMAT, "version": VERSION, "dtype": None, **sections, **about}
    written = (json.dumps(config, indent=2) + "\n").encode()
    if len(written) > MOST_CONFIG_BYTES:  # before a fit begins, not when its result is opened
        raise ValueError(
            f"{folder / CONFIG_FILE} would have {len(written):,} bytes, and at most {MOST_CONFIG_BYTES:,} are read: "
            "there are too many columns with very many values each; leave some out, or round them"
        )
    write_atomically(folder / CONFIG_FILE, written)


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
    config = read_config(Path(folder))
    described = config.get("flow")
    if isinstance(described, dict) and described.get("type") in TABLE_MODELS:
        raise FlowFileError(
            Path(folder) / CONFIG_FILE,
            "it holds a model of the columns of a table, which is no flow; use "
            f"cubicflow.tables.FittedTable.load({str(folder)!r})",
        )
    flow: Flow | Mixture = load_model(folder, device, config)
    return flow


def load_model(
    folder: str | Path, device: str | torch.device | None = None, config: dict[str, Any] | None = None
) -> Any:
    """The same, of any model that a run folder holds. ``config`` is that of the folder, where it was read already."""
    if torch.device(device or "cpu").type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={str(device)!r} needs a GPU, and torch finds none here; leave device= out for the CPU"
        )
    folder = Path(folder)
    config = read_config(folder) if config is None else config
    path, config_path = folder / WEIGHTS_FILE, folder / CONFIG_FILE
    description = config.get("flow")
    if isinstance(description, dict) and UNREGISTERED in description:
        raise FlowFileError(
            config_path,
            f"its flow has classes that were not registered when it was fitted, {description[UNREGISTERED]}: it cannot "
            "be built from here; call cubicflow.register on them before fit, or build the flow in code and call "
            f"flow.load_state_dict(safetensors.torch.load_file({str(path)!r}))",
        )
    shapes = read_header(path)
    dtype = DTYPES.get(str(config.get("dtype")))
    if dtype is None:
        raise FlowFileError(config_path, f"dtype must be one of {sorted(DTYPES)}, got {config.get('dtype')!r}")
    if too_large := why_too_large(description, shapes):
        raise FlowFileError(config_path, too_large)
    try:
        flow = build_flow(description, dtype)
    except ValueError as error:
        raise FlowFileError(config_path, f"it does not describe a flow: {error}") from error
    compare(path, state_shapes(flow), shapes)
    if registered_names(description):
        # A class of the user's own may keep tensors beside its state, which have no values on the meta device. What
        # there is to build is of the size of the file by now.
        with SHARED_GENERATOR, torch.random.fork_rng(devices=[]):
            flow = build_flow(description, dtype, "cpu")
        flow.load_state_dict(read_tensors(path, "cpu"))
        flow.to(device or "cpu")
    else:
        tensors = read_tensors(path, device)
        if unusable := why_unusable(flow, tensors):
            raise FlowFileError(path, unusable)
        flow.load_state_dict(tensors, assign=True)
    share(flow, config_path, config.get(SHARED, {}))
    return flow.eval()


def flow_dtype(flow: nn.Module) -> str:
    """The one floating dtype of a flow, by name."""
    dtypes = {dtype for _, dtype in state_shapes(flow).values()}
    found = {str(dtype).removeprefix("torch.") for dtype in dtypes if dtype.is_floating_point}
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
        check_plain(path, MOST_CONFIG_BYTES)
        config = json.loads(path.read_text(encoding="utf-8"))
    except NotPlainError as error:
        raise FlowFileError(path, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise FlowFileError(path, f"not valid JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FlowFileError(path, f"not a {FORMAT} config: 'format' should be {FORMAT!r}")
    if config.get("version") != VERSION:
        raise FlowFileError(
            path, f"written in version {config.get('version')!r} of the format; this cubicflow reads version {VERSION}"
        )
    return config


def build_flow(description: Any, dtype: torch.dtype, device: str = "meta") -> Any:
    """The described flow, by default without memory for its numbers."""
    # In modules of ours whole numbers say which column goes where: they are few, and known from the description.
    whole_numbers = None if registered_names(description) else "cpu"
    try:
        with making(dtype, torch.device(device), whole_numbers=whole_numbers):
            flow = build(description)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    is_density = isinstance(flow, Flow | Mixture) or type(flow).__name__ in TABLE_MODELS
    if not is_density and not (isinstance(flow, nn.Module) and type(flow).__name__ not in OWN):
        raise ValueError(f"it describes a {type(flow).__name__}")
    return flow


def state_shapes(flow: Any) -> Shapes:
    """Shapes and dtypes of a flow's tensors."""
    state = flow.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} in the flow's state_dict() is not a tensor, so no file can hold it; use a buffer")
    return {name: (tuple(value.shape), value.dtype) for name, value in state.items()}


def describe_state(flow: Any) -> dict[str, str]:
    """The dtype and shape of every tensor of a flow, to be read by people and compared by programs."""
    return {name: f"{dtype}{list(shape)}".removeprefix("torch.") for name, (shape, dtype) in state_shapes(flow).items()}


def shared_names(flow: Any) -> dict[str, str]:
    """Names in a flow's state that are a second name of a parameter, or of a buffer in a module that is used twice,
    with the first name of it."""
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
    """Make one tensor again of those that were one when the flow was saved, as those of a network in two layers."""
    state = flow.state_dict(keep_vars=True)
    kinds = {name: (type(value), value.shape, value.dtype) for name, value in state.items()}
    pairs = shared.items() if isinstance(shared, dict) else [("", "")]
    if any(name not in kinds or kinds[name] != kinds.get(str(first)) for name, first in pairs):
        raise FlowFileError(path, f"the section {SHARED!r} does not fit the flow")
    for name, first in pairs:
        module, _, last = name.rpartition(".")
        setattr(flow.get_submodule(module), last, state[first])


def read_header(path: Path) -> Shapes:
    """Shapes and dtypes of the tensors in a safetensors file, none of which is read."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FlowFileError(path, "there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            found = {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise FlowFileError(path, f"not a whole safetensors file: {error}") from None
    if unknown := sorted({kind for _, kind in found.values()} - set(TENSOR_DTYPES)):
        raise FlowFileError(path, f"it holds tensors of dtype {', '.join(unknown)}, which no flow has")
    return {key: (shape, TENSOR_DTYPES[kind]) for key, (shape, kind) in found.items()}


def differences(expected: Shapes, found: Shapes) -> str:
    """Names, shapes and dtypes that are not as expected, in words; nothing where all are."""
    problems = [f"{key} is missing" for key in sorted(expected.keys() - found.keys())]
    problems += [f"{key} is not part of the flow" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(expected.keys() & found.keys()):
        if expected[key] != found[key]:
            (shape, dtype), (shape_found, dtype_found) = expected[key], found[key]
            problems.append(f"{key} should be {dtype} of shape {shape}, is {dtype_found} of shape {shape_found}")
    return "; ".join(problems[:3]) + (f" (and {len(problems) - 3} more)" if len(problems) > 3 else "")


def compare(path: Path, expected: Shapes, found: Shapes) -> None:
    """Refuse weights that are not those the config asks for."""
    if problems := differences(expected, found):
        raise FlowFileError(path, f"does not fit its {CONFIG_FILE}: {problems}")


def read_tensors(path: Path, device: str | torch.device | None) -> dict[str, Tensor]:
    """All tensors of a safetensors file on the device."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path, device=str(device or "cpu"))
    return tensors
