"""Fits and runs: how a fit begins, the scores of its parts and their verdict, two runs compared, and output files."""

from __future__ import annotations

from cubicflow.tables.run.compare import compare_runs
from cubicflow.tables.run.output import CsvStyle, check_file, check_output, csv_text, is_own, write_files, write_rows
from cubicflow.tables.run.scored_parts import ScoredParts, ScoreSums, score_parts, score_some
from cubicflow.tables.run.verdicts import Score, score_warnings, verdict

__all__ = [
    "CsvStyle",
    "Score",
    "ScoreSums",
    "ScoredParts",
    "check_file",
    "check_output",
    "compare_runs",
    "csv_text",
    "is_own",
    "score_parts",
    "score_some",
    "score_warnings",
    "verdict",
    "write_files",
    "write_rows",
]
