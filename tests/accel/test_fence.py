"""Everything works without the shortcuts, and only the shortcuts use private names of torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cubicflow
from cubicflow.accel import choice, private

from .everything import results

SOURCES = Path(cubicflow.__file__).parent
PROGRAM = Path(__file__).with_name("everything.py")
# Private names of torch, such as torch._C, torch._dynamo, forward_ad._current_level and x._forward_hooks.
PRIVATE = re.compile(
    r"(?<![\w.])(torch(\.\w+)*|nn(\.\w+)*|forward_ad|profiler)\._[a-z]\w*|_(forward|backward)_(pre_)?hooks"
)


def run(accel: str, program: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "CUBICFLOW_ACCEL": accel},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def accelerated() -> dict:
    """Return the results of this process, which has all shortcuts."""
    return results()


@pytest.mark.parametrize(
    ("accel", "kinds"), [("off", ["Calls", "StepHook"]), ("public", ["LightCalls", "FastStepHook"])]
)
def test_everything_works_without_shortcuts_and_without_private_names(accelerated, accel, kinds):
    done = run(accel, PROGRAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("kinds") == kinds
    assert accelerated["kinds"] == ["LightCalls", "FastStepHook"]
    for name, values in found.items():
        for mine, theirs in zip(values, accelerated[name], strict=True):
            # Adam divides gradients by their size, so rounding errors of tiny gradients become large.
            tolerance = 2e-3 if name in ("training", "flow", "loaded") else 1e-5
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=tolerance, atol=tolerance)


def test_private_names_of_torch_are_used_in_one_package():
    found = [
        f"{path.relative_to(SOURCES)}: {match.group()}"
        for path in SOURCES.rglob("*.py")
        if path.parent.name != "accel"
        for match in PRIVATE.finditer(path.read_text())
    ]
    assert found == []


def test_every_private_name_is_listed():
    listed = {*private.MODULE_HOOKS, *private.GLOBAL_HOOKS, *private.PARAMETER_HOOKS}
    listed.update(name for names in private.NAMES.values() for name in names)
    for path in (SOURCES / "accel").glob("*.py"):
        for match in PRIVATE.finditer(path.read_text()):
            name = match.group().rpartition(".")[2]
            module = re.fullmatch(r"torch\._C(\._functorch)?", match.group())
            assert name in listed or module, f"{path.name}: {match.group()}"


class OneKernel:
    """A kernel of Triton that notes its launches: plain ones by name, compiled ones by position."""

    def __init__(self) -> None:
        self.launches: list[tuple] = []
        self.fn = lambda x_ptr, y_ptr, count, SIZE: None  # noqa: N803

    def __getitem__(self, grid):
        def run(*tensors, **named):
            self.launches.append((grid, "by name", tuple(named)))
            return {grid: lambda *arguments: self.launches.append((grid, "by position", arguments))}

        return run


@pytest.mark.parametrize("known", [True, False])
def test_kernels_are_launched_by_position_if_this_triton_is_known(known, monkeypatch):
    from cubicflow.accel import light_calls

    monkeypatch.setattr(light_calls, "_KNOWS_LAUNCHES", known)
    kernel = OneKernel()
    plan = SimpleNamespace(kernel=kernel, grid=(3, 1, 1), compiled={}, named=lambda _: {"SIZE": 4, "count": 7})
    x, y = torch.zeros(8), torch.zeros(8)
    for _ in range(2):
        light_calls.LightCalls().launch(plan, (x, y), (1,))
    plain = ((3, 1, 1), "by name", ("SIZE", "count"))
    by_position = ((3, 1, 1), "by position", (x.data_ptr(), y.data_ptr(), 7, 4))
    assert kernel.launches == [plain, by_position if known else plain]


@pytest.mark.parametrize(("version", "known"), [("3.7.1", True), ("3.40.0", False), ("4.0.0", False)])
def test_other_versions_of_triton_are_launched_as_documented(version, known, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    assert private.launches_are_known() is known
    monkeypatch.setenv("CUBICFLOW_ACCEL", "public")
    assert not private.launches_are_known()


def test_this_torch_has_all_private_names():
    """A missing name only disables a shortcut. This test is a reminder to update the name."""
    assert private.missing() == set()
    assert private.hooks_are_known()


def test_a_wrong_choice_is_refused(monkeypatch):
    monkeypatch.setenv("CUBICFLOW_ACCEL", "fast")
    with pytest.raises(ValueError, match="CUBICFLOW_ACCEL must be one of on, public, off, got 'fast'"):
        choice()
