"""Every private name of torch that cubicflow uses. A torch that has renamed one costs its shortcut and nothing else."""

from __future__ import annotations

import importlib
from typing import Any

from cubicflow.accel import choice

NAMES = {
    "torch._C._functorch": ("peek_interpreter_stack", "unwrap_if_dead", "is_legacy_batchedtensor"),
    "torch._C": ("_len_torch_dispatch_stack", "_get_tracing_state"),
    "torch": ("_addmm_activation", "_fused_adamw_"),
    # The values of these two change while a program runs, so their modules are asked at every call.
    "torch.autograd.forward_ad": ("_current_level",),
    "torch.autograd.profiler": ("_is_profiler_enabled",),
}
# Set on a function, as torch.compiler.assume_constant_result does. Finding out whether a torch still reads it would
# take importing its compiler; if it does not, compiled code breaks its graph there.
CONSTANT_MARK = "_dynamo_marked_constant"
# Where hooks are kept: on a module, for all modules, on a parameter.
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in MODULE_HOOKS)
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def allowed() -> bool:
    """Whether private names may be used at all."""
    return choice() == "on"


def find(module: str, name: str) -> Any:
    """What a private name stands for, or None where it is not there or may not be used."""
    if not allowed():
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def missing() -> set[str]:
    """The names that cannot be used."""
    return {name for module, names in NAMES.items() for name in names if find(module, name) is None}


def hooks_are_known() -> bool:
    """Whether hooks are kept where we look for them."""
    from torch import nn

    places = ((nn.Identity(), MODULE_HOOKS), (nn.modules.module, GLOBAL_HOOKS), (nn.Parameter(), PARAMETER_HOOKS))
    return allowed() and all(hasattr(place, name) for place, names in places for name in names)


def has(*names: str) -> bool:
    """Whether all of these can be used."""
    return not missing() & set(names)
