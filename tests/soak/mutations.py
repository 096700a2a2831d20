"""Mutations of a run folder. Whatever the files contain, a command must work or fail with a one-line error.

Each attempt changes one file of a valid run, and runs one command on it in a forked worker. A failure is a traceback, a
Python warning, an end by a signal, a timeout, or a peak memory more than 200 MB above that of the valid runs.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.counts import Counts
from tests.helpers.forks import Ended, command, forked, series, warm_up
from tests.soak.hostile_values import as_text, changed, damaged, hostile
from tests.soak.victims import Victim

MOST_MEMORY = 200_000  # KB above the peak of the valid runs
BATCH = 25  # attempts in one worker
Header = dict[str, Any]


# --- safetensors files by hand: the library refuses to write invalid ones ---


def split_file(content: bytes) -> tuple[Header, bytes]:
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join_file(header: Any, data: bytes) -> bytes:
    text = as_text(header)
    return struct.pack("<Q", len(text)) + text + data


def spoiled_tensor(content: bytes, rng: random.Random) -> bytes:
    """Change some numbers of a tensor."""
    header, data = split_file(content)
    name = rng.choice([name for name in header if name != "__metadata__"])
    first, last = header[name]["data_offsets"]
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "BOOL": np.uint8, "U8": np.uint8}
    kind = kinds.get(header[name]["dtype"], np.uint8)
    values = np.frombuffer(data[first:last], dtype=kind).copy()
    if len(values):
        chosen = rng.choice([slice(None), slice(0, 1), slice(rng.randrange(len(values)), None)])
        if np.issubdtype(kind, np.floating):
            how = rng.choice([np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, 1e-40, 1e20, "scale", "negate"])
            with np.errstate(over="ignore"):
                values[chosen] = values[chosen] * 1e6 if how == "scale" else -values[chosen] if how == "negate" else how
        else:
            limits = np.iinfo(kind)
            values[chosen] = rng.choice([0, 1, 2, 100, limits.max, limits.min])
    return join_file(header, data[:first] + values.tobytes() + data[last:])


def other_header(content: bytes, rng: random.Random) -> bytes:
    header, data = split_file(content)
    return join_file(changed(header, rng), data)


def checkpoint_numbers(content: bytes, rng: random.Random) -> bytes:
    """Change the numbers of a checkpoint, and correct its digest."""
    header, data = split_file(content)
    about = header["__metadata__"]
    numbers = json.loads(about["numbers"])
    about["numbers"] = as_text(changed(numbers, rng) if rng.random() < 0.8 else hostile(rng)).decode()
    return signed(header, data)


def checkpoint_tensors(content: bytes, rng: random.Random) -> bytes:
    """Change the tensors of a checkpoint, and correct its digest."""
    header, data = split_file(spoiled_tensor(content, rng))
    return signed(header, data)


def signed(header: Header, data: bytes) -> bytes:
    """Return the file with the digest that the checkpoint's reader computes."""
    from safetensors.torch import load

    from cubicflow.training.checkpoint import digest

    about = header["__metadata__"]
    try:
        about["sha256"] = digest(load(join_file(header, data)), about["numbers"])
    except Exception:  # the content is no valid safetensors file
        about["sha256"] = hashlib.sha256(data).hexdigest()
    return join_file(header, data)


# --- mutations by the file that they change ---


def other_config(content: bytes, rng: random.Random) -> bytes:
    """Change config.json anywhere, or within one section."""
    config = json.loads(content)
    section = rng.choice([None, "flow", "table", "result", "training", "data"])
    if section not in config:
        return as_text(changed(config, rng))
    return as_text({**config, section: changed(config[section], rng)})


def other_lines(content: bytes, rng: random.Random) -> bytes:
    """Change values in lines of the metrics."""
    lines = [json.loads(line) for line in content.splitlines()] or [{"step": 1, "loss": 1.0}]
    return b"".join(as_text(changed(line, rng)) + b"\n" for line in lines) + as_text(hostile(rng))


Mutation = Callable[[bytes, random.Random], bytes]
FINISHED: list[tuple[str, Mutation]] = [
    *[("config.json", other_config)] * 6,
    ("config.json", damaged),
    *[("model.safetensors", spoiled_tensor)] * 3,
    ("model.safetensors", other_header),
    ("model.safetensors", damaged),
    ("metrics.jsonl", other_lines),
    ("metrics.jsonl", damaged),
]
INTERRUPTED: list[tuple[str, Mutation]] = [
    *[("checkpoint.safetensors", checkpoint_numbers)] * 3,
    *[("checkpoint.safetensors", checkpoint_tensors)] * 2,
    ("checkpoint.safetensors", other_header),
    ("checkpoint.safetensors", damaged),
    ("config.json", other_config),
    ("metrics.jsonl", other_lines),
]


def mutate(victim: Victim, folder: Path, rng: random.Random) -> str:
    """Copy a run to ``folder``, change one file, and return which file and how."""
    shutil.copytree(victim.run, folder)
    name, mutation = rng.choice(FINISHED if victim.finished else INTERRUPTED)
    path = folder / name
    try:
        changed_bytes = mutation(path.read_bytes(), rng)
    except RecursionError:  # too deeply nested to be written
        changed_bytes = b"[" * 100_000
    path.write_bytes(changed_bytes)
    if not victim.finished and rng.random() < 0.5:  # otherwise the previous checkpoint is the fallback
        (folder / "checkpoint-previous.safetensors").unlink(missing_ok=True)
    return f"{name} by {mutation.__name__}"


def commands(victim: Victim, run: Path, rng: random.Random) -> tuple[object, ...]:
    """Return a random command on a run."""
    resume, *others = every_command(victim, run)
    if not victim.finished:
        return resume
    drawn = rng.random()
    return resume if drawn < 0.05 else ("plot", run, "--rows", 10) if drawn < 0.07 else rng.choice(others)


def every_command(victim: Victim, run: Path) -> list[tuple[object, ...]]:
    """Return the quick commands on a run. The first one resumes the run."""
    return [
        ("fit", *victim.fit, "-o", run, "--resume"),
        ("sample", run, "-n", 5, "-o", "-", "--seed", 0),
        ("score", run, victim.table, "-o", "-"),
        ("evaluate", run, victim.table),
        ("compare", run, victim.run, victim.table),
    ]


def verdict(ended: Ended, honest: int) -> str | None:
    """Return the fault of a command's result, or None if there is none."""
    if ended.late:
        return "takes too long"
    if ended.status < 0:
        return f"ends by signal {-ended.status}"
    if ended.status not in (0, 2) or "Traceback" in ended.errors:
        last = (ended.errors.strip().splitlines() or ["nothing said"])[-1]
        return f"ends with status {ended.status}: {last[:200]}"
    if "Warning:" in ended.errors:
        return f"warns: {next(line for line in ended.errors.splitlines() if 'Warning:' in line)}"
    if ended.status == 2 and not ended.errors.strip().splitlines()[-1].startswith("error: "):
        return f"says nothing clear: {ended.errors[-200:]}"
    if ended.memory - honest > MOST_MEMORY:
        return f"takes {ended.memory - honest:,} KB more than an honest run"
    return None


def attack(victims: list[Victim], folder: Path, number: int, seed: int = 0, first: int = 0) -> Counts:
    """Try ``number`` mutations of the runs. The seed and the mutation's number, from ``first`` on, determine each."""
    counts = Counts()
    done = [victim for victim in victims if victim.finished]
    plots = [("plot", victim.run, "-o", folder / f"{victim.run.name}-plots", "--rows", 10) for victim in done]
    warm_up([arguments for victim in done for arguments in every_command(victim, victim.run)] + plots)
    honest = max(forked(lambda plot=plot: command(*plot, "--overwrite"), 120).memory for plot in plots)
    last = first + number
    while first < last:
        numbers = range(first, min(first + BATCH, last))
        attempts = [prepare(victims, folder / f"mutated-{i}", seed, i) for i in numbers]
        works = [lambda arguments=arguments: command(*arguments) for _, arguments in attempts]
        ends = series(works, honest + MOST_MEMORY)
        for (what, arguments), ended in zip(attempts, ends, strict=False):
            wrong = verdict(ended, honest)
            if wrong is not None:
                counts.fail(f"{what}, {arguments[0]}: {wrong}")
            counts.add("refused" if ended.status == 2 else "worked" if ended.status == 0 else "failed")
        for i in numbers:
            shutil.rmtree(folder / f"mutated-{i}", ignore_errors=True)
        first += len(ends)
    return counts


def prepare(victims: list[Victim], run: Path, seed: int, number: int) -> tuple[str, tuple[object, ...]]:
    """Make a mutated run, and return its description and a command on it."""
    rng = random.Random(f"{seed} {number}")
    victim = rng.choice(victims)
    how = mutate(victim, run, rng)
    return f"mutation {number} (seed {seed}) of {victim.name}, {how}", commands(victim, run, rng)
