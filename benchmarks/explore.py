"""Latency of the page of `cubicflow explore`: time to the first picture, and time to redraw after a slider moves.

    python -m benchmarks.explore RUN [-o results/explore.csv]

RUN is a run of a model of columns, such as `cubicflow fit diamonds.csv -o RUN`. First picture: seconds from the start
of the command until a headless Chromium, already open, has drawn data and model of every column; the best of three. It
is measured for a run that is opened for the first time, and for a run that was opened before. Redraw: seconds from a
request to its answer over HTTP, after the server has filled its pool of rows. Each request sets one column to its
value in a sampled row, and up to two more columns to their word in that row or to a range around their number.
Processor seconds are the server's. They are the better measure on a shared machine.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.explore_screenshots import SETTLED, chromium
from cubicflow.explore.framed import unframed
from cubicflow.tables import FittedTable

REPEATS = 3
FILLED = 240.0  # seconds; longest wait for the server to fill its pool


def start(run: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "cubicflow", "explore", str(run), "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if server.stdout is None:
        raise RuntimeError("the server has no output")
    return server, next(line for line in server.stdout if line.startswith("http")).strip()


def processor(process: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_picture(run: Path, *, again: bool) -> tuple[float, float]:
    """Return seconds until data and model are drawn, and the server's processor seconds; the best of three.

    ``again`` keeps the cache folder from one repeat to the next, and leaves the first repeat out.
    """
    found = []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        for repeat in range(REPEATS + again):
            os.environ["CUBICFLOW_CACHE"] = folder if again else f"{folder}/{repeat}"
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.set_default_timeout(120_000)
            began = time.perf_counter()
            server, address = start(run)
            page.goto(address)
            page.wait_for_selector("main .card path.model, main .card .of-model")
            page.wait_for_selector("main .legend .key.data")
            found.append((time.perf_counter() - began, processor(server.pid)))
            page.wait_for_selector(SETTLED)
            page.context.close()
            server.terminate()
            server.wait(20)
    return min(found[again:])


def questions(run: Path, turns: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return random conditions on one to three columns, at or around the values of a sampled row."""
    fitted = FittedTable.load(run)
    rows = fitted.sample(4000, seed=1).to_pandas().dropna()
    generator, found = np.random.default_rng(seed), []
    for _ in range(turns):
        row = rows.iloc[int(generator.integers(len(rows)))]
        count = int(generator.integers(1, 4))
        names = generator.choice(rows.columns, count, replace=False)
        conditions: dict[str, Any] = {}
        for i, name in enumerate(names):
            value = row[name]
            if isinstance(value, str):
                conditions[name] = {"in": [value]}
            elif i == 0:
                conditions[name] = {"is": f"{value:g}"}
            else:
                low, high = (float(rows[name].quantile(q)) for q in (0.25, 0.75))
                middle = float(value)
                conditions[name] = {"from": f"{middle - (high - low) / 4:g}", "to": f"{middle + (high - low) / 4:g}"}
        found.append(conditions)
    return found


def redraws(run: Path, turns: int) -> list[dict[str, Any]]:
    server, address = start(run)
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(.*)", address)
    if found is None:
        raise RuntimeError(address)
    port, token = found.groups()
    headers = {"Cookie": f"cubicflow-{port}={token}", "X-Cubicflow": "1"}

    def ask(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        # Every request has a new connection, because the server closes idle connections.
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=600)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return unframed(content)[0] if answer.status == 200 else json.loads(content)

    ask("/api/columns")
    ask("/api/data")
    end, before = time.monotonic() + FILLED, -1.0
    while time.monotonic() < end and processor(server.pid) > before + 0.05:  # until the server is idle
        before = processor(server.pid)
        time.sleep(2)
    results = []
    for conditions in questions(run, turns):
        clock, busy = time.perf_counter(), processor(server.pid)
        answer = ask("/api/what-if", {"conditions": conditions})
        seconds, used = time.perf_counter() - clock, processor(server.pid) - busy
        size = answer.get("effectiveSize", 0.0)
        line = {"conditions": json.dumps(conditions), "columns": len(conditions), "seconds": round(seconds, 4)}
        line |= {"processor_seconds": round(used, 3), "effective_size": "exact" if size is None else round(size)}
        results.append(line)
        print(line, flush=True)
    server.terminate()
    server.wait(20)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--turns", type=int, default=160, help="number of requests")
    arguments = parser.parse_args()
    pictures = []
    for name, again in (("first picture", False), ("first picture, opened again", True)):
        seconds_of, busy = first_picture(arguments.run, again=again)
        print(f"{name} {seconds_of:.2f} s, of the processor {busy:.2f} s; load {os.getloadavg()[0]:.1f}", flush=True)
        line = {"conditions": name, "columns": 0, "seconds": round(seconds_of, 2)}
        pictures.append({**line, "processor_seconds": round(busy, 2), "effective_size": ""})
    lines = redraws(arguments.run, arguments.turns)
    seconds, used = (np.array([line[key] for line in lines]) for key in ("seconds", "processor_seconds"))
    sizes = np.array([np.inf if line["effective_size"] == "exact" else line["effective_size"] for line in lines])
    print(f"redraw: median {np.median(seconds):.3f} s, 95 % within {np.quantile(seconds, 0.95):.3f} s")
    print(f"processor: median {np.median(used):.3f} s, 95 % within {np.quantile(used, 0.95):.3f} s")
    print(f"effective size 500 or more: {np.mean(sizes >= 500):.0%}; load {os.getloadavg()[0]:.1f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")
    if arguments.output is not None:
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(pictures[0]))
            writer.writeheader()
            writer.writerows([*pictures, *lines])


if __name__ == "__main__":
    main()
