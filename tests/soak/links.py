"""Put links where a run or a command writes. No file outside the run may change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.helpers.counts import Counts
from tests.helpers.forks import command, forked
from tests.soak.victims import Victim

NAMES = (
    "lock", "config.json", "metrics.jsonl", "model.safetensors", "checkpoint.safetensors", "judge.json", "plots",
    "checkpoint-next.safetensors", "checkpoint-previous.safetensors", "checkpoint-damaged.safetensors",
    ".config.json.0123456789abcdef", ".model.safetensors.0123456789abcdef", ".metrics.jsonl.0123456789abcdef",
)  # fmt: skip
MINE = "years of work"
Link = Callable[[Path, Path], None]


def attack(victims: list[Victim], folder: Path) -> Counts:
    """Replace every file name of a run by a symbolic or a hard link, and run every command that writes."""
    counts = Counts()
    links: dict[str, Link] = {"a link": Path.symlink_to, "a hard link": Path.hardlink_to}
    for victim in victims:
        for name in NAMES:
            for kind, link in links.items():
                for flag in ("--resume", "--overwrite", "plot"):
                    run, outside = folder / "run", folder / "outside"
                    for old in (run, outside):
                        shutil.rmtree(old, ignore_errors=True)
                    shutil.copytree(victim.run, run)
                    outside.mkdir()
                    mine = outside / "thesis.tex"
                    mine.write_text(MINE)
                    place = run / name
                    if place.is_dir():
                        shutil.rmtree(place)
                    place.unlink(missing_ok=True)
                    link(place, outside if name == "plots" and kind == "a link" else mine)
                    arguments = ("plot", run, "--rows", 10) if flag == "plot" else ("fit", *victim.fit, "-o", run, flag)
                    if flag == "plot" and (name != "plots" or not victim.finished):
                        continue
                    ended = forked(lambda arguments=arguments: command(*arguments))
                    what = f"{victim.name}, {name} as {kind}, {flag}"
                    if mine.read_text() != MINE or [*outside.iterdir()] != [mine]:
                        counts.fail(f"{what}: written through")
                    if ended.status not in (0, 2) or "Traceback" in ended.errors:
                        counts.fail(f"{what}: {ended.errors[-300:]}")
                    counts.add("refused" if ended.status else "replaced")
    return counts
