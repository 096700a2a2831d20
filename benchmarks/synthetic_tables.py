"""Comparison of table generators: cubicflow with its defaults, SDV and mostlyai-engine.

    python -m benchmarks.synthetic_tables FOLDER --judge PYTHON [--sdv PYTHON] [--mostlyai PYTHON]

FOLDER holds penguins.csv, diamonds.csv, adult-train.csv.gz, adult-test.csv.gz, magic.csv.gz and shoppers.csv.gz.
Each PYTHON is the interpreter of a separate environment. The judge's environment has xgboost, sdmetrics and pandas
below 3; the peers' environments have sdv and mostlyai-engine. Every generator runs in its own process with one thread.

A table and generator with a record in results/synthetic-tables is not run again, unless ``--again`` is given. The parts
of the tables and the samples stay in ``--work``, and samples that are there are judged without another fit. So rows can
be sampled on one machine, without ``--judge``, and judged on another. The command ends by writing
docs/results/synthetic_tables.md and its pictures from all records. Without an interpreter it only writes these.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.synthetic.compared_tables import TABLES
from benchmarks.synthetic.page import draw, page
from benchmarks.synthetic.records import MODELS, failed_record, make_record, read_records, record_path, write_record

HERE = Path(__file__).parent
RECORDS = HERE.parent / "results" / "synthetic-tables"
RESULTS = HERE.parent / "docs" / "results"
SCRIPTS = HERE / "synthetic"
MOST_REASON = 300  # characters of an error kept in a record


class RunFailedError(Exception):
    """A script in another environment ended with an error."""


def run_script(interpreter: str, script: str, *arguments: str) -> None:
    """Run a script of this package with another interpreter, on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    if interpreter != sys.executable:
        environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [interpreter, str(SCRIPTS / script), *arguments],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise RunFailedError((lines[-1] if lines else f"exit status {done.returncode}")[:MOST_REASON])


def run_one(table: str, model: str, interpreter: str, arguments: argparse.Namespace, command: str) -> None:
    """Fit and sample one generator on one table, unless its samples are there. Then judge them and write the record."""
    folder = arguments.work / table
    run_path, judged_path = folder / f"{model}-run.json", folder / f"{model}-judged.json"
    where: dict[str, Any] = {"command": command, "machine": machine("cpu")}
    where["began"] = datetime.now(UTC).isoformat(timespec="seconds")
    limits = ("--seconds", str(60 * arguments.minutes), "--steps", str(arguments.steps))
    try:
        if arguments.again or not run_path.exists():
            TABLES[table].write_parts(arguments.folder, folder)
            run_script(interpreter, "generate_rows.py", model, str(folder), *limits)
            run_path.write_text(json.dumps(where))
            print(f"{table}, {model}: sampled", flush=True)
        if arguments.judge is None:
            return
        where = json.loads(run_path.read_text())
        run_script(arguments.judge, "judge_rows.py", model, str(folder))
    except RunFailedError as error:
        write_record(RECORDS, failed_record(table, model, str(error), where))
        print(f"{table}, {model}: failed, {error}", flush=True)
        return
    generated, judged = (json.loads(path.read_text()) for path in (folder / f"{model}.json", judged_path))
    write_record(RECORDS, make_record(table, model, generated, judged, where))
    print(f"{table}, {model}: detection {judged['detection']['score']:.3f}", flush=True)


def write_results() -> None:
    """Write the page and its pictures from the records."""
    records = read_records(RECORDS, list(TABLES))
    for table in {record["table"] for record in records if "judged" in record}:
        draw(records, table, RESULTS / "synthetic_tables" / f"{table}.png")
    (RESULTS / "synthetic_tables.md").write_text(page(records, list(TABLES)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the tables")
    parser.add_argument("--judge", help="interpreter with xgboost and sdmetrics; without it, rows are only sampled")
    parser.add_argument("--sdv", help="interpreter with sdv")
    parser.add_argument("--mostlyai", help="interpreter with mostlyai-engine")
    parser.add_argument("--table", action="append", choices=list(TABLES), help="run only this one; repeatable")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="run only this one; repeatable")
    parser.add_argument("--minutes", type=float, default=15.0, help="training limit for mostlyai-engine")
    parser.add_argument("--steps", type=int, default=10_000, help="training limit for TVAE and CTGAN")
    parser.add_argument("--work", type=Path, default=Path("runs/synthetic-tables"))
    parser.add_argument("--again", action="store_true", help="run again what has a record")
    arguments = parser.parse_args()
    own = sys.executable if arguments.judge is not None else None
    interpreters = {"cubicflow": own, "sdv": arguments.sdv, "mostlyai": arguments.mostlyai}
    if any(interpreters.values()) and arguments.folder is None:
        parser.error("FOLDER, the folder of the tables, is needed")
    recorded = ["--table", "--model", "--minutes", "--steps"]
    chosen = [f"{name} {value}" for name in recorded for value in _values(getattr(arguments, name[2:]), parser, name)]
    command = " ".join(["python -m benchmarks.synthetic_tables FOLDER", *chosen])
    for model in arguments.model or MODELS:
        interpreter = interpreters[model.split("-")[0]]
        for table in arguments.table or TABLES:
            done = record_path(RECORDS, table, model).exists() and not arguments.again
            if interpreter is None or done:
                continue
            run_one(table, model, interpreter, arguments, command)
    write_results()


def _values(given: Any, parser: argparse.ArgumentParser, name: str) -> list[Any]:
    """Return an option's values as a list, empty if they are the default."""
    if given is None or given == parser.get_default(name[2:]):
        return []
    return list(given) if isinstance(given, list) else [given]


if __name__ == "__main__":
    main()
