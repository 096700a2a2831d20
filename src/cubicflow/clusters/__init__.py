"""Large jobs in blocks of rows, run by threads of this process or by the workers of a cluster.

The modules, each built on the ones above it:

    blocks                        ranges of row numbers, each with its own seed; the outcome of a block
    stores, inputs, job_folder    local and remote files; the Parquet files of a job; the folder of output parts
    tasks                         the work on one block: score, sample, evaluate
    engines, ray_engine           threads or Ray workers that run the blocks
    jobs                          whole jobs: score, sample, evaluate
    batch_functions               functions that score or sample Arrow batches, for other engines
"""

from __future__ import annotations

from cubicflow.clusters.batch_functions import TableSampler, TableScorer, block_table
from cubicflow.clusters.jobs import JobResult, evaluate_files, sample_files, score_files

__all__ = [
    "JobResult",
    "TableSampler",
    "TableScorer",
    "block_table",
    "evaluate_files",
    "sample_files",
    "score_files",
]
