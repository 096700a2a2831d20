"""For which flows a recorded step, or gradients that arrive late, are the same as the plain ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import nn

from cubicflow.accel.private import GLOBAL_HOOKS, MODULE_HOOKS, PARAMETER_HOOKS, hooks_are_known

OWN = ("cubicflow.", "torch.nn.modules.")


def why_unsafe(flow: nn.Module) -> str | None:
    """Why a flow cannot be proved safe, or None.

    A replay repeats kernels and no Python: whatever a module decides, draws or counts in Python would be frozen, and
    hooks would not run. Gradients on a second stream are added up without waiting where a weight is used twice. So
    every module has to be one of ours or torch's, as its class defines it, in one place, and without hooks.
    """
    if not hooks_are_known():
        return "this torch does not tell whether modules have hooks"
    if any(getattr(nn.modules.module, name) for name in GLOBAL_HOOKS):
        return "hooks on all modules are registered"
    for name, module in flow.named_modules():
        where = f"{type(module).__name__}{f' at {name}' if name else ''}"
        if not type(module).__module__.startswith(OWN):
            return f"{where} is not one of cubicflow's own modules, and may do something in Python at every call"
        if "forward" in vars(module) or "inverse" in vars(module):
            return f"the methods of {where} were replaced"
        if any(getattr(module, hooks) for hooks in MODULE_HOOKS):
            return f"{where} has hooks"
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
