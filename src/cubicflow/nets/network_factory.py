"""The network of a layer or a base, given as a module or as a factory, and checks of a user's network: a copy runs on
made-up rows. cubicflow's own networks are right by construction, and are not run."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, nn

from cubicflow.nets.rng import SHARED_GENERATOR, use_generator

ROWS = 2
PIXELS = (4, 4)  # height and width of a made-up image
LOW_PRECISION = (torch.float16, torch.bfloat16)
TOLERANCE = 1e-3  # a share of the largest change of any output


class NetworkFactory(Protocol):
    """A function that makes the network of a layer from its sizes: a network class, or a ``functools.partial`` of a
    class. If some inputs are angles, the factory is also called with ``circles=[...]``, one bool for each input."""

    def __call__(self, in_features: int, out_features: int, *, context_features: int) -> nn.Module: ...


def make_network(
    network: nn.Module | NetworkFactory,
    in_features: int,
    out_features: int,
    context_features: int,
    circles: Sequence[bool] = (),
    *,
    causal: bool = False,
) -> nn.Module:
    """Return the given network, or the network that the factory makes. Raise a ValueError if its sizes or its circular
    inputs do not fit the layer, or if it should be ``causal`` and is not."""
    angles = {"circles": list(circles)} if any(circles) else {}
    if not isinstance(network, nn.Module):
        network = network(in_features, out_features, context_features=context_features, **angles)
    elif list(getattr(network, "circles", None) or []) != angles.get("circles", []) and hasattr(network, "circles"):
        raise ValueError(f"this layer needs a network with circles={angles.get('circles')}, got {network.circles}")
    needed = {"in_features": in_features, "out_features": out_features, "context_features": context_features}
    for name, size in needed.items():
        if (found := getattr(network, name, size)) != size:
            raise ValueError(f"this layer needs a network with {name}={size}, got one with {found}")
    if not type(network).__module__.startswith("cubicflow."):
        check_outputs(network, in_features, out_features, context_features)
        if causal:
            check_causal(network, in_features, out_features, context_features)
    return network


def check_outputs(network: nn.Module, in_features: int, out_features: int, context_features: int) -> None:
    """Raise a ValueError if the network returns another number of outputs. A network that raises an error for made-up
    rows, and for made-up images, is not checked."""
    found: list[tuple[int, ...]] = []
    sizes: list[tuple[int, ...]] = [(), PIXELS]
    for pixels in sizes:
        with _copied(network) as probe:
            outputs = _run(probe, torch.zeros(ROWS, in_features, *pixels), context_features)
        if outputs is not None:
            found.append(tuple(outputs.shape))
            if found[-1] == (ROWS, out_features, *pixels):
                return
            if pixels == PIXELS and math.prod(found[-1][2:]) > math.prod(PIXELS):  # perhaps the least size, or the only
                sizes.append(found[-1][2:])
    if found:
        raise ValueError(
            f"this layer needs a network with out_features={out_features}, outputs of shape (N, {out_features}, ...); "
            f"for {ROWS} rows this {type(network).__name__} returns shape {found[0]}: change its last layer"
        )


def check_causal(network: nn.Module, features: int, out_features: int, context_features: int) -> None:
    """Raise a ValueError if the outputs for feature i depend on feature i or on a later feature.

    The copy runs on one row, and on rows that differ from this row in one feature. Trained parameters that are
    constant, such as a last layer that starts at zero, are drawn at random, because the outputs would depend on
    nothing. Other parameters keep their values: zeros among them, or the parameter itself, may be the mask.
    """
    generator = torch.Generator().manual_seed(0)
    with _copied(network) as probe:
        row, other = torch.rand(2, features, generator=generator)
        rows = torch.cat([row[None], torch.where(torch.eye(features, dtype=torch.bool), other, row)])
        if probe is not None and any(parameter.dtype in LOW_PRECISION for parameter in probe.parameters()):
            probe.float()  # a rounding to 8 or 11 bits could hide a dependence
        if probe is None or _run(probe, rows, context_features) is None:  # the first run makes lazy parameters
            return
        for parameter in filter(Tensor.numel, probe.parameters()):
            if parameter.requires_grad and bool((parameter == parameter.flatten()[:1]).all()):
                fan_in = parameter[0].numel() if parameter.ndim > 1 else 4
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) / math.sqrt(fan_in))
        outputs = _run(probe, rows, context_features)
    if outputs is None or outputs.shape != (features + 1, out_features):
        return
    by_feature = outputs.reshape(features + 1, features, -1)
    changes = (by_feature[1:] - by_feature[0]).abs().amax(2)  # [j, i]: of the outputs for feature i, by feature j
    rounding = 64 * torch.finfo(outputs.dtype).eps * outputs.abs().max()
    wrong = (changes > torch.maximum(TOLERANCE * changes.max(), rounding)).tril().nonzero()
    if len(wrong):
        j, i = wrong[0].tolist()
        size = out_features // features
        raise ValueError(
            f"this layer needs a causal network, but outputs {i * size} to {(i + 1) * size - 1} of this "
            f"{type(network).__name__}, which are for feature {i}, depend on feature {j}; outputs for feature i may "
            "depend on features before i alone: mask the network, or use MaskedResidualMLP or CausalTransformer"
        )


@contextmanager
def _copied(network: nn.Module) -> Iterator[nn.Module | None]:
    """Yield a copy of the network in evaluation mode on the CPU, or None if there is none. Inside the block there are
    no gradients, and random numbers come from generators whose states do not matter."""
    with SHARED_GENERATOR, torch.random.fork_rng(devices=[]), use_generator(torch.Generator()), torch.no_grad():
        tensors = chain(network.parameters(), network.buffers(), [torch.empty(0)])
        # On the meta device there are no values. A compiled network would be compiled for the made-up rows.
        is_compiled = any(type(module).__name__ == "OptimizedModule" for module in network.modules())
        if is_compiled or any(tensor.is_meta for tensor in tensors):
            yield None
            return
        try:
            probe = copy.deepcopy(network).cpu().eval()
        except Exception:
            yield None
            return
        yield probe


def _run(network: nn.Module | None, x: Tensor, context_features: int) -> Tensor | None:
    """Return the outputs for x and a constant context, or None if the network raises an error."""
    if network is None:
        return None
    tensors = chain(network.parameters(), network.buffers())
    x = x.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), x.dtype))
    # Not 0, because a context of zeros could hide a dependence on x.
    context = (x.new_full((len(x), context_features), 0.5),) if context_features else ()
    try:
        outputs = network(x, *context)
    except Exception:
        return None
    return outputs if isinstance(outputs, Tensor) else None
