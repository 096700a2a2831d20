"""Processes that start in milliseconds: they are forked from a server that has imported torch and cubicflow.

A new interpreter needs three seconds to import torch. A forked process is a process of its own: it can be killed, and
it shares no state with its siblings. Tests of imports, of standard streams before Python starts, and of memory need a
new interpreter instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("pytest", "torch.distributed.run", "pyarrow.parquet", "safetensors.torch", "typer.main", "typer.testing"),
        *("cubicflow.cli.fit", "cubicflow.training.loop", "cubicflow.tables.fitting"),
    ]
)


class Forked:
    """A running process with the interface of ``subprocess.Popen``. ``log`` holds its output and its errors."""

    def __init__(self, process: ForkServerProcess, log: Path) -> None:
        self.process, self.log = process, log
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None if the process runs."""
        return self.process.exitcode

    def wait(self, timeout: float = 900) -> int:
        """Return the exit status. A process that runs on after ``timeout`` seconds is killed."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            raise TimeoutError(f"process {self.pid} did not end in {timeout} s: {self.log.read_text()}")
        return self.process.exitcode

    def kill(self) -> None:
        """Kill the process and the processes that it started."""
        with suppress(ProcessLookupError):  # the process has ended, or has not yet made its group
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def start(
    function: Callable[..., Any], *arguments: Any, log: Path, environment: Mapping[str, str] | None = None
) -> Forked:
    """Call a function in a forked process. Output and errors go to the file ``log``."""
    process = _SERVER.Process(target=_call, args=(function, arguments, log, dict(environment or {})), daemon=False)
    process.start()
    return Forked(process, log)


def start_command(*arguments: object, log: Path, environment: Mapping[str, str] | None = None) -> Forked:
    """Run ``cubicflow`` with these arguments in a forked process."""
    return start(run_command, *map(str, arguments), log=log, environment=environment)


def run_held_command(go: Path, *arguments: str) -> None:
    """Run ``cubicflow`` in this process. A fit waits after its first checkpoint until the file ``go`` exists."""
    hold_at_checkpoint(go)
    run_command(*arguments)


def run_command(*arguments: str) -> None:
    """Run ``cubicflow`` in this process. The command ends with SystemExit."""
    from cubicflow.cli import main

    sys.argv = ["cubicflow", *arguments]
    main()


def torchrun(options: list[str], function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in several processes as the command ``torchrun`` does, with the same options and restarts.

    The only difference is that torchrun's agent forks the workers, so that they need not import torch.
    """
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    config, _, _ = config_from_args(parse_args([*options, "--master-port", str(free_port()), "unused_script"]))
    config.start_method = "fork"
    elastic_launch(config, entrypoint=function)(*arguments)


def worker_of_torchrun(folder: Path, hold: int, *arguments: str) -> None:
    """Run ``cubicflow`` as a worker of :func:`torchrun`. The process id is written to ``folder`` under the rank.

    A fit waits after a checkpoint of step ``hold`` or later until ``folder`` holds the file ``go``.
    """
    hold_at_checkpoint(folder / "go", hold)
    (folder / os.environ["RANK"]).write_text(str(os.getpid()))
    try:
        run_command(*arguments)
    except SystemExit as ended:  # torchrun's agent waits for a return or an exception
        if ended.code:
            raise RuntimeError(f"cubicflow ended with status {ended.code}") from None


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], process: Forked, seconds: float = 900) -> None:
    """Return when the condition is true, the process has ended, or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def hold_at_checkpoint(go: Path, step: int = 0) -> None:
    """Make the fits of this process wait after a checkpoint of ``step`` or later until the file ``go`` exists.

    So a test can kill or interrupt a fit that would otherwise end first on a loaded machine.
    """
    from cubicflow.training.run_folder import RunFolder

    save = RunFolder.save

    def held(self: RunFolder, tensors: dict[str, Any], numbers: Any) -> None:
        save(self, tensors, numbers)
        deadline = time.monotonic() + 900
        while numbers.step >= step and not go.exists() and time.monotonic() < deadline:
            time.sleep(0.005)

    RunFolder.save = held


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], log: Path, environment: dict[str, str]) -> None:
    os.setsid()  # a group of processes: a killed agent of torchrun takes its workers along
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore SIGINT
    with log.open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
    function(*arguments)
