"""Fits and runs: how a fit begins, the scores of its parts and their verdict, two runs compared, and output files."""

from __future__ import annotations

from cubicflow.tables.run.compare import compare_runs
from cubicflow.tables.run.fitted_rows import fitted_file, some_rows
from cubicflow.tables.run.output import CsvStyle, check_file, check_output, csv_text, is_own, write_files, write_rows
from cubicflow.tables.run.scored_parts import ScoredParts, ScoreSums, score_parts, score_some
from cubicflow.tables.run.verdict import Score, score_lines, score_warnings, verdict

__all__ = [
    "CsvStyle",
    "Score",
    "ScoreSums",
    "ScoredParts",
    "check_file",
    "check_output",
    "compare_runs",
    "csv_text",
    "fitted_file",
    "is_own",
    "score_lines",
    "score_parts",
    "score_some",
    "score_warnings",
    "some_rows",
    "verdict",
    "write_files",
    "write_rows",
]
