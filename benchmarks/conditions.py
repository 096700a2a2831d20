"""Sampling under a condition on one column: the time of 1,000 rows, and their effective sample size.

    python -m benchmarks.conditions RUN [-o results/conditions.csv]

RUN is a run of a model of columns, such as `cubicflow fit diamonds.csv -o RUN`. Every column gets two conditions: its
most common value, and a rare one (the rarest word, or numbers above the 99.9 % quantile of samples). The records hold
wall-clock seconds and processor seconds. OMP_NUM_THREADS sets torch's threads.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import pandas as pd
import torch

from cubicflow.tables import FittedTable

ROWS = 1_000
SAMPLES = 20_000


def questions(samples: pd.DataFrame) -> list[str]:
    found = []
    for name in samples:
        column = samples[name].dropna()
        counts = column.value_counts()
        found.append(f"{name}={counts.index[0]}")
        is_number = pd.api.types.is_numeric_dtype(column) and counts.size > 2
        found.append(f"{name}>{column.quantile(0.999):g}" if is_number else f"{name}={counts.index[-1]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    fitted = FittedTable.load(arguments.run)
    results = []
    for question in questions(fitted.sample(SAMPLES, seed=1).to_pandas()):
        said: list[str] = []
        clock, processor = time.perf_counter(), time.process_time()
        rows = [batch.to_pandas() for batch in fitted.sample_batches(ROWS, [question], seed=0, say=said.append)]
        seconds = time.perf_counter() - clock, time.process_time() - processor
        numbers = re.findall(r"\d[\d,]*", said[0])
        results.append(
            {
                "condition": question,
                "rows": sum(map(len, rows)),
                "repeated": int(pd.concat(rows).duplicated().sum()),
                "seconds": round(seconds[0], 2),
                "processor_seconds": round(seconds[1], 2),
                "threads": torch.get_num_threads(),
                "drawn": numbers[0].replace(",", ""),
                "effective_size": "exact" if "exact" in said[0] else numbers[1].replace(",", ""),
            }
        )
        print(results[-1], flush=True)
    if arguments.output is not None:
        pd.DataFrame(results).to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
