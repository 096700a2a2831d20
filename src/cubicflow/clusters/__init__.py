"""Work on more rows than one process should see: blocks of rows, done by threads here or by workers of a cluster.

In the order in which they build on one another:

    blocks, outcomes              ranges of row numbers with seeds of their own; what becomes of one
    stores, inputs, job_folder    files anywhere; the Parquet files of a job; the folder of its parts
    works                         what is done with a block
    engines, ray_engine           who does the blocks
    jobs                          whole jobs: score, sample, evaluate
    batch_functions               scores and samples of Arrow batches, for engines of your own
"""

from __future__ import annotations

from cubicflow.clusters.batch_functions import TableSampler, TableScorer, block_table
from cubicflow.clusters.jobs import evaluate_files, sample_files, score_files
from cubicflow.clusters.outcomes import JobResult

__all__ = [
    "JobResult",
    "TableSampler",
    "TableScorer",
    "block_table",
    "evaluate_files",
    "sample_files",
    "score_files",
]
