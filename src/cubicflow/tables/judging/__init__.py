"""Quality of sampled rows, compared with held-out rows of the table.

tables      tables as matrices with the same columns and the same codes for the same words
measures    detection by a classifier, closeness to training rows, contradictions of rules
similarity  similarities of single columns and of pairs of columns
judgement   all measures as numbers, as lines of a table, as one sentence, and as judge.json in a run folder
rows        the rows to judge, from files or from a run
"""

from __future__ import annotations

from cubicflow.tables.judging.judgement import JUDGE_FILE, judgement_text, read_judgement, write_judgement
from cubicflow.tables.judging.rows import judge_files, judge_run

__all__ = [
    "JUDGE_FILE",
    "judge_files",
    "judge_run",
    "judgement_text",
    "read_judgement",
    "write_judgement",
]
