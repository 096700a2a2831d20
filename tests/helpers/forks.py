"""Forked workers. Each runs attempts under limits of memory and time, with all modules already imported."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 20.0  # time limit of one attempt
MOST_BYTES = 4 << 30  # address space; an allocation beyond it fails
KILLED = 9
OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock")


class Ended(NamedTuple):
    """The end of a worker: exit status (negative for a signal), standard error, peak memory in KB, and timeout."""

    status: int
    errors: str
    memory: int
    late: bool


def forked(work: Callable[[], object], seconds: float = SECONDS, *, limits: bool = True) -> Ended:
    """Run the work in a forked process. Its exit status is that of SystemExit, or 1 after any other exception."""
    with tempfile.TemporaryFile() as written:
        _await_native_threads()
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
            # RLIMIT_CPU bounds the processor time. The wall clock catches a process that sleeps.
            if time.monotonic() - started > 3 * seconds and not late:
                late = True
                os.kill(child, signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        written.seek(0)
        code = os.waitstatus_to_exitcode(status)
        late = late or code == -signal.SIGXCPU
        return Ended(code, written.read().decode(errors="replace"), used.ru_maxrss, late)


def _await_native_threads() -> None:
    """Wait until no native thread runs, at most 5 seconds.

    A thread of Python can be joined shortly before its libraries have cleaned up. A fork in between copies their locks,
    held for ever: MKL's would keep the child busy at its first product.
    """
    until = time.monotonic() + 5
    while _native_thread_runs() and time.monotonic() < until:
        time.sleep(0.001)


def _native_thread_runs() -> bool:
    ours = {str(thread.native_id) for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name not in ours and state == "R":
                return True
    return False


def _work(work: Callable[[], object], errors: int, seconds: float, limits: bool) -> None:
    status = 1
    gc.disable()  # the collector would write to, and so copy, every shared page
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, target in ((0, nothing), (1, nothing), (2, errors)):
            os.dup2(target, descriptor)
        sys.stdout, sys.stderr = (open(descriptor, "w", closefd=False) for descriptor in (1, 2))  # noqa: SIM115
        if limits:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = _status_of(work)
    finally:
        with suppress(OSError):  # the child must exit here; otherwise it would continue as a second parent
            sys.stderr.flush()
        os._exit(status)


def _status_of(work: Callable[[], object]) -> int:
    """Run the work, and return the exit status that its process should have."""
    try:
        work()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def series(works: Sequence[Callable[[], object]], most_memory: int, seconds: float = SECONDS) -> list[Ended]:
    """Run the works one after the other in one worker, which is cheaper than a worker for each. A worker that is killed
    by a signal, or exceeds ``most_memory``, stops: the list ends with that work."""
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile("w+") as reports:

        def work() -> None:
            for one in works:
                signal.setitimer(signal.ITIMER_PROF, seconds)  # without a handler, the signal ends the process
                status = _status_of(one)
                sys.stderr.flush()
                errors = os.pread(written.fileno(), 1 << 20, 0).decode(errors="replace")
                os.ftruncate(written.fileno(), 0)
                os.lseek(written.fileno(), 0, os.SEEK_SET)
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                reports.write(json.dumps([status, errors, memory]) + "\n")
                reports.flush()
                if memory > most_memory:
                    break

        _await_native_threads()
        child = os.fork()
        if child == 0:
            _work(work, written.fileno(), len(works) * seconds, True)
        started = time.monotonic()
        late = False
        while not (found := os.wait4(child, os.WNOHANG))[0]:
            if not late and time.monotonic() - started > 6 * seconds * len(works):
                late = True
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        reports.seek(0)
        ends = [Ended(*json.loads(line), False) for line in reports]
        code = os.waitstatus_to_exitcode(found[1])
        if code < 0:
            late = late or -code in (signal.SIGPROF, signal.SIGXCPU)
            ends.append(Ended(code, os.pread(written.fileno(), 1 << 20, 0).decode(errors="replace"), 0, late))
        return ends


def command(*arguments: object) -> None:
    """Run a command of the command line. Always raises SystemExit."""
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
        for arguments in commands:
            with suppress(SystemExit):
                command(*arguments)
        sys.stdout.flush()
        gc.collect()
        gc.freeze()
    finally:
        for descriptor, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, descriptor)


def die_at(operation: int, folder: Path) -> None:
    """Make this process exit just before a given operation on a file in the folder."""
    remaining = [operation]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if event != "fcntl.flock" and not str(arguments[0]).startswith(str(folder)):
            return
        if remaining[0] == 0:
            os._exit(KILLED)
        remaining[0] -= 1

    sys.addaudithook(hook)
