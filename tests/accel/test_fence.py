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
    ("accel", "kinds"), [("off", ["Calls", "StepHook"]), ("public", ["FastCalls", "FastStepHook"])]
)
def test_everything_works_without_shortcuts_and_without_private_names(accelerated, accel, kinds):
    done = run(accel, PROGRAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("kinds") == kinds
    assert accelerated["kinds"] == ["FastCalls", "FastStepHook"]
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


class Doubling:
    """A kernel of Triton, y = 2 x, that notes its launches: plain ones by name, compiled ones by position. A compiled
    one writes 2 x + ``error``."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, error: float) -> None:
        self.x, self.y, self.error = x, y, error
        self.launches: list[tuple] = []
        self.fn = lambda x_ptr, y_ptr, count, SIZE: None  # noqa: N803

    def __getitem__(self, grid):
        def by_position(*arguments):
            self.launches.append((grid, "by position", arguments))
            self.y.copy_(2 * self.x + self.error)

        def by_name(*tensors, **named):
            self.launches.append((grid, "by name", tuple(named)))
            self.y.copy_(2 * self.x)
            return {grid: by_position}

        return by_name


def launched(error: float, times: int, monkeypatch) -> tuple[list[str], torch.Tensor]:
    """Return how a kernel was launched, and its last result."""
    from cubicflow.accel import eager_fast_path

    monkeypatch.setattr(eager_fast_path, "_agreements", {})
    x, y = torch.tensor([1.0, torch.nan]), torch.zeros(2)
    kernel = Doubling(x, y, error)
    plan = SimpleNamespace(
        kernel=kernel, grid=(3, 1, 1), compiled={}, kernel_arguments=lambda _: {"SIZE": 4, "count": 7}
    )
    for _ in range(times):
        eager_fast_path.FastCalls().launch(plan, (x, y), (1,))
    expected = {"by name": ("SIZE", "count"), "by position": (x.data_ptr(), y.data_ptr(), 7, 4)}
    assert all(launch == ((3, 1, 1), launch[1], expected[launch[1]]) for launch in kernel.launches)
    return [how for _, how, _ in kernel.launches], y


@pytest.mark.parametrize("known", [True, False])
def test_kernels_are_launched_by_position_if_this_triton_is_known(known, monkeypatch):
    """The first call launches the kernel in both ways and compares the results."""
    from cubicflow.accel import eager_fast_path

    monkeypatch.setattr(eager_fast_path, "_KNOWS_LAUNCHES", known)
    both = ["by name", "by position", "by position", "by position"]
    assert launched(0.0, 3, monkeypatch)[0] == (both if known else ["by name"] * 3)


def test_a_launch_by_position_with_another_result_is_never_used(monkeypatch):
    from cubicflow.accel import eager_fast_path

    monkeypatch.setattr(eager_fast_path, "_KNOWS_LAUNCHES", True)
    with pytest.warns(UserWarning, match="does not launch compiled kernels as cubicflow expects"):
        how, y = launched(1.0, 3, monkeypatch)
    assert how == ["by name", "by position", "by name", "by name", "by name"]
    assert y[0] == 2


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
