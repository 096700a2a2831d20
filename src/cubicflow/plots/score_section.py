"""The section of the report about the quality of a fit: a verdict, warnings, and the scores of the parts."""

from __future__ import annotations

import html

from cubicflow.tables.run.scored_parts import ScoredParts
from cubicflow.tables.run.verdict import Score, score_warnings, verdict


def score_section(scored: ScoredParts, *, is_source: bool) -> str:
    """Return the section as HTML. With ``is_source``, the parts of the fitted table are listed separately.

    >>> from cubicflow.tables.run.verdict import Used
    >>> from cubicflow.tables.run.means import Mean
    >>> score = Score(Mean(10, -3.0, 0.4), Mean(10, -5.0, 0.4), Mean(10, 2.0, 0.1))
    >>> text = score_section(ScoredParts(score, {}, Used(10, 10, 2)), is_source=False)
    >>> "Its rows score 2.000 ± 0.100 nats higher than by independent columns." in text
    True
    """
    shown = scored.parts if is_source else {"its rows": scored.whole}
    name, new = ("test", scored.parts["test"]) if is_source else ("its", scored.whole)
    train = scored.parts["train"] if is_source else None
    lines = "".join(_line(part, score) for part, score in shown.items())
    warnings = "".join(f"<p>Warning: {html.escape(text)}.</p>" for text in score_warnings(new, train, name))
    return (
        f"<h2>How good the fit is</h2><p>{html.escape(verdict(new, train, name))}</p>{warnings}"
        "<table><tr><th></th><th>rows</th><th>log likelihood</th><th>independent columns</th><th>gain</th></tr>"
        f"{lines}</table><p>In nats per row, ± two standard errors. Of the table, {html.escape(str(scored.used))}.</p>"
    )


def _line(part: str, score: Score) -> str:
    means = (score.model, score.independent, score.gain)
    cells = [part, f"{score.model.rows:,}", *("" if mean is None else str(mean) for mean in means)]
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
