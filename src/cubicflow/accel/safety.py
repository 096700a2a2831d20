"""The check that a captured step, or gradients on a second stream, give the same results as the plain code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import nn

from cubicflow.accel import VARIABLE, choice
from cubicflow.accel.private import GLOBAL_HOOKS, MODULE_HOOKS, PARAMETER_HOOKS, allowed, hooks_are_known
from cubicflow.nets.replaced_methods import replaced_in_class, replaced_method

TRUSTED_MODULES = ("cubicflow.", "torch.nn.modules.")  # prefixes of Python modules


def why_unsafe(flow: nn.Module) -> str | None:
    """Return the reason why the shortcuts may change the results of a flow, or None if they are safe.

    A replay repeats kernels but no Python. Decisions, random draws and counts that a module makes in Python would be
    frozen, and hooks would not run. With gradients on a second stream, the gradients of a weight that is used twice
    would be added without waiting. Every module must therefore be a class of cubicflow or torch, with unchanged
    methods, used in one place, and without hooks.
    """
    if not allowed():
        return (
            f"{VARIABLE}={choice()} uses no private name of torch, and without such names cubicflow cannot see whether "
            "modules have hooks"
        )
    if not hooks_are_known():
        return "cubicflow cannot find the hooks of modules in this version of torch"
    if any(getattr(nn.modules.module, name) for name in GLOBAL_HOOKS):
        return "global module hooks are registered"
    in_classes = {kind: replaced_in_class(kind) for kind in {type(module) for module in flow.modules()}}
    for name, module in flow.named_modules():
        where = f"{type(module).__name__}{f' at {name}' if name else ''}"
        if not type(module).__module__.startswith(TRUSTED_MODULES):
            return f"{where} is not a module of cubicflow or torch, and may run Python code at every call"
        if method := replaced_method(module) or in_classes[type(module)]:
            return f"the method {method} of {where} was replaced"
        if any(getattr(module, hooks) for hooks in MODULE_HOOKS):
            return f"{where} has hooks"
        if not getattr(module, "one_pass", True):
            return f"{where} uses a weight twice, or its values decide which kernels run (one_pass is false)"
    if twice := _repeated(id(module) for _, module in flow.named_modules(remove_duplicate=False)):
        shared = next(module for module in flow.modules() if id(module) in twice)
        return f"{type(shared).__name__} is used in more than one place"
    if _repeated(id(parameter) for _, parameter in flow.named_parameters(remove_duplicate=False)):
        return "modules share a parameter"
    for name, parameter in flow.named_parameters():
        if any(getattr(parameter, hooks) for hooks in PARAMETER_HOOKS):
            return f"the parameter {name} has hooks"
    return None


def _repeated(ids: Iterable[int]) -> set[int]:
    return {key for key, count in Counter(ids).items() if count > 1}
