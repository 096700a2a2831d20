"""Train for one epoch on a stream of Parquet rows, score every row, and report the peak memory.

    python benchmarks/stream_parquet.py --folder /tmp/stream

The table has 8 float64 columns, once in row groups of 100,000 and once as a single row group. The report is the largest
resident anonymous memory (RssAnon of /proc/self/status) of the process that trains and scores. Pages of the
memory-mapped file do not count: the system can drop them. Each layout runs in a new process, and so does the writing of
each file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

COLUMNS = 8
LAYOUTS = {"row groups of 100,000": 100_000, "one row group": None}
LIMIT_GIB = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("stream"), help="where the files are written")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch-size", type=int, default=4_096)
    parser.add_argument("--task", choices=["write", "train"], help=argparse.SUPPRESS)
    parser.add_argument("--layout", choices=list(LAYOUTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task is None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for layout in LAYOUTS:
            for task in ("write", "train"):
                command = [sys.executable, __file__, *sys.argv[1:], "--task", task, "--layout", layout]
                subprocess.run(command, check=True)
        return
    path = arguments.folder / f"{arguments.rows}-{'groups' if LAYOUTS[arguments.layout] else 'one'}.parquet"
    if arguments.task == "write":
        write(path, arguments.rows, LAYOUTS[arguments.layout])
    else:
        train(path, arguments.layout, arguments.batch_size)


def write(path: Path, rows: int, group: int | None) -> None:
    """Write correlated, skewed columns, the same in both layouts. Skip a file that exists."""
    if path.exists():
        return
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"c{i}" for i in range(COLUMNS)]
    piece = 100_000
    mixing = np.random.default_rng(0).normal(size=(COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    schema = pa.schema([(name, pa.float64()) for name in names])
    tables = []
    with pq.ParquetWriter(path, schema) as writer:
        for i in range(0, rows, piece):
            values = np.random.default_rng([1, i]).normal(size=(min(piece, rows - i), COLUMNS)) @ mixing
            values[:, 1] += values[:, 0] ** 2
            table = pa.table(dict(zip(names, values.T, strict=True)), schema=schema)
            if group is None:
                tables.append(table)
            else:
                writer.write_table(table, row_group_size=group)
        if group is None:
            writer.write_table(pa.concat_tables(tables), row_group_size=rows)


class PeakMemory(threading.Thread):
    """A thread that records the peak of this process's resident anonymous memory, in GiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, anonymous_gib())
            time.sleep(0.02)


def anonymous_gib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kib) / 2**20


def train(path: Path, layout: str, batch_size: int) -> None:
    import pyarrow.parquet as pq
    import torch

    import cubicflow as cf
    from cubicflow.data.parquet_rows import ParquetRows
    from cubicflow.training import fit

    idle = anonymous_gib()
    memory = PeakMemory()
    memory.start()
    groups = pq.read_metadata(path).num_row_groups
    rows = ParquetRows(path)
    torch.manual_seed(0)
    flow = cf.flows.tabular(COLUMNS, num_layers=2, hidden_features=32, num_bins=8)
    began = time.perf_counter()
    steps = (rows.num_rows - 50_000) // batch_size  # 50,000 rows are validation rows
    result = fit(flow, rows, steps=steps, batch_size=batch_size, learning_rate=5e-3, validate_every=steps // 5)
    trained = time.perf_counter()
    total, scored = 0.0, 0
    with torch.no_grad():
        for batch in rows.in_order(16_384):
            total += float(flow.log_prob(batch.x.float()).double().sum())
            scored += len(batch.x)
    seconds = trained - began, time.perf_counter() - trained
    print(
        f"{layout} ({groups}): {rows.num_rows:,} rows, trained {steps:,} steps of {batch_size:,} in "
        f"{seconds[0]:.0f} s, validation loss {result.validation_loss:.3f}; scored {scored:,} rows in "
        f"{seconds[1]:.0f} s, mean {total / scored:.3f} nats; largest anonymous memory "
        f"{memory.peak:.2f} GiB (idle {idle:.2f})"
    )
    if memory.peak > LIMIT_GIB:
        sys.exit(f"peak memory {memory.peak:.2f} GiB exceeds the limit of {LIMIT_GIB} GiB")


if __name__ == "__main__":
    main()
