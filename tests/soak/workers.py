"""Forked workers: each does one attempt, under limits of memory and time, after all modules were imported."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SECONDS = 20.0  # of one attempt
MOST_BYTES = 4 << 30  # of address space, beyond which an allocation fails
KILLED = 9


class Ended(NamedTuple):
    """How a worker ended: its exit status (negative for a signal), what it wrote, and the most memory it had (KB)."""

    status: int
    errors: str
    memory: int
    late: bool


def forked(work: Callable[[], object], seconds: float = SECONDS, *, limits: bool = True) -> Ended:
    """Do the work in a process of its own. Its exit status is that of SystemExit, or 1 after any other exception."""
    with tempfile.TemporaryFile() as written:
        child = os.fork()
        if child == 0:
            _work(work, written.fileno(), seconds, limits)
        late = False
        started = time.monotonic()
        pause = 0.001
        while True:
            found, status, used = os.wait4(child, os.WNOHANG)
            if found:
                break
            if (
                time.monotonic() - started > 3 * seconds and not late
            ):  # it sleeps: time on the processor is limited below
                late = True
                os.kill(child, signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        written.seek(0)
        code = os.waitstatus_to_exitcode(status)
        late = late or code == -signal.SIGXCPU
        return Ended(code, written.read().decode(errors="replace"), used.ru_maxrss, late)


def _work(work: Callable[[], object], errors: int, seconds: float, limits: bool) -> None:
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, target in ((0, nothing), (1, nothing), (2, errors)):
            os.dup2(target, descriptor)
        if limits:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def command(*arguments: object) -> None:
    """Run a command of the command line; ends in SystemExit."""
    from cubicflow.cli import main

    sys.argv = ["cubicflow", *map(str, arguments)]
    main()


def warm_up(commands: list[tuple[object, ...]]) -> None:
    """Run commands in this process, silently, so that workers find all modules imported."""
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        for told in commands:
            with suppress(SystemExit):
                command(*told)
        sys.stdout.flush()
    finally:
        for descriptor, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, descriptor)
