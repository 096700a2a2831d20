"""All private names of torch and Triton that cubicflow uses. If a version lacks a name, only the shortcut that uses the
name is lost."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from cubicflow.accel import choice

NAMES = {
    "torch._C._functorch": ("peek_interpreter_stack", "unwrap_if_dead", "is_legacy_batchedtensor"),
    # _FunctionBase has the apply of autograd.Function that binds no arguments. It is reached through super().
    "torch._C": ("_len_torch_dispatch_stack", "_get_tracing_state", "_FunctionBase"),
    "torch": ("_addmm_activation", "_fused_adamw_"),
    # The values of these two names change while a program runs, so they are read from their modules at every call.
    "torch.autograd.forward_ad": ("_current_level",),
    "torch.autograd.profiler": ("_is_profiler_enabled",),
}
# The attribute that torch.compiler.assume_constant_result sets on a function. Checking whether this version of torch
# still reads the attribute would import the compiler. If torch does not read the attribute, compiled graphs break at
# such a function.
CONSTANT_MARK = "_dynamo_marked_constant"
# The attributes that hold hooks: of a module, of all modules, of a parameter.
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in MODULE_HOOKS)
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")

# Versions of Triton in which a compiled kernel is launched by compiled[grid](*arguments): addresses in place of
# tensors, and all other arguments by position, constants included. Triton documents none of this, and with another
# order of arguments a kernel would write to wrong addresses. With other versions, launches are as documented.
KNOWN_TRITON = ("3.5.", "3.6.", "3.7.")


def allowed() -> bool:
    """Return whether private names may be used."""
    return choice() == "on"


def find(module: str, name: str) -> Any:
    """Return the object with a private name, or None if it does not exist or private names are not allowed."""
    if not allowed():
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def missing() -> set[str]:
    """Return the names that cannot be used."""
    return {name for module, names in NAMES.items() for name in names if find(module, name) is None}


def hooks_are_known() -> bool:
    """Return whether this version of torch has the attributes that hold hooks."""
    from torch import nn

    places = ((nn.Identity(), MODULE_HOOKS), (nn.modules.module, GLOBAL_HOOKS), (nn.Parameter(), PARAMETER_HOOKS))
    return all(hasattr(place, name) for place, names in places for name in names)


def launches_are_known() -> bool:
    """Return whether compiled kernels of the installed Triton may be launched by position."""
    try:
        return allowed() and importlib.metadata.version("triton").startswith(KNOWN_TRITON)
    except importlib.metadata.PackageNotFoundError:
        return False


def has(*names: str) -> bool:
    """Return whether all of these names can be used."""
    return not missing() & set(names)
