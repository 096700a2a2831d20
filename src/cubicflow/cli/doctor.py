"""``cubicflow doctor`` and ``cubicflow --version``. The latter imports no torch: its version is in its metadata."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from cubicflow import __version__
from cubicflow.extras import PACKAGES


def doctor() -> None:
    """Show which packages, devices, spline backends and shortcuts work on this machine, and why others do not.

    Example: cubicflow doctor
    """
    typer.echo(f"cubicflow {__version__}, Python {sys.version.split()[0]}, {platform.platform()}")
    for works, name, detail in (*packages(), *devices(), *backends(), *shortcuts()):
        typer.echo(f"  {'yes' if works else 'no '}  {name:<16}  {detail}")


def packages() -> Iterator[tuple[bool, str, str]]:
    """Yield whether each package is installed, its name, and its version and purpose."""
    for name, package in PACKAGES.items():
        try:
            yield True, name, f"{version(name)}, for {package.purpose}"
        except PackageNotFoundError:
            yield False, name, f"not installed; needed for {package.purpose}"


def devices() -> Iterator[tuple[bool, str, str]]:
    """Yield whether each device works, its name, and a description."""
    import torch

    yield True, "cpu", f"{torch.get_num_threads()} threads"
    if not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no GPU or no driver"
        yield False, "cuda", why
    for i in range(torch.cuda.device_count()):
        yield True, f"cuda:{i}", torch.cuda.get_device_name(i)


def backends() -> Iterator[tuple[bool, str, str]]:
    """Yield whether each spline backend works, its name, and the error of a round trip or the reason why it does not
    work."""
    import torch

    from cubicflow.splines import cubic_spline
    from cubicflow.splines.dispatch import BACKENDS

    for name, backend in BACKENDS.items():
        if reason := backend.unavailable():
            yield False, f"backend {name}", reason
            continue
        device = "cuda" if name == "triton" and torch.cuda.is_available() else "cpu"
        x = torch.linspace(-3, 3, 64, device=device)
        params = torch.linspace(-1, 1, 22, device=device)
        try:
            y, _ = cubic_spline(x, params, backend=name)
            back, _ = cubic_spline(y, params, inverse=True, backend=name)
        except RuntimeError as error:
            yield False, f"backend {name}", " ".join(str(error).split())
            continue
        yield True, f"backend {name}", f"works on {device}: round-trip error {float((back - x).abs().max()):.1g}"


def shortcuts() -> Iterator[tuple[bool, str, str]]:
    """Yield whether the shortcuts of ``accel`` are on, their name, and a description."""
    from cubicflow.accel import VARIABLE, choice
    from cubicflow.accel.private import missing

    if choice() != "on":
        yield False, "shortcuts", f"{VARIABLE}={choice()} switches them off: everything works, but slower"
    elif names := missing():
        yield False, "shortcuts", f"this torch lacks {', '.join(sorted(names))}: everything works, partly slower"
    else:
        yield True, "shortcuts", "captured steps, light calls, flat weights, forked gradients, replayed pieces"


def print_version(wanted: bool) -> None:
    """Print the versions of cubicflow, torch and Python, and exit, if they are wanted."""
    if not wanted:
        return
    try:
        torch = f"torch {version('torch')}"
    except PackageNotFoundError:
        torch = "no torch"
    typer.echo(f"cubicflow {__version__}, {torch}, Python {platform.python_version()}")
    raise typer.Exit


def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=print_version,
            is_eager=True,
            help="Print the versions of cubicflow, torch and Python.",
        ),
    ] = False,
) -> None:
    """Options of the command line itself, before the name of a command."""
