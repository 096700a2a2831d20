"""The report of a run: pictures as PNG files, and one HTML page that contains them.

Styles and pictures are inline, so the page loads nothing from the network.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cubicflow.files import refuse_link, write_atomically
from cubicflow.plots.marginals import Panel, corner, make_panel, marginals, most_correlated
from cubicflow.plots.training_curve import training_curve
from cubicflow.tables import FittedTable, Reading, Table, TableError, open_table
from cubicflow.tables.judging import read_judgement
from cubicflow.tables.run import Score, ScoredParts, is_own, score_some, score_warnings, verdict
from cubicflow.training.run_folder import read_metrics

PAGE_NAME = "report.html"
PLOTS = "plots"  # the folder of the report in a run folder
MARGINALS_AT_ONCE = 20  # panels of one picture; the time of the layout grows faster than the number of panels
SCORED_ROWS = 2000  # rows of each part of the table
DOTS_PER_INCH = 110
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{run}: {model} of {data}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1, h2 {{ font-weight: 600; }} h2 {{ margin-top: 2.5rem; }}
img {{ max-width: 100%; height: auto; display: block; }}
table {{ border-collapse: collapse; }} td, th {{ padding: 0.2rem 1rem 0.2rem 0; text-align: left; }}
th {{ border-bottom: 1px solid #999; }}
</style>
</head>
<body>
<h1>{run}</h1>
<p>A density of {data}, fitted to {parts} rows. The pictures compare {rows} rows of the table with {samples}
samples.</p>
{body}
</body>
</html>
"""


def draw_report(
    run: Path,
    data: str | Path | None,
    folder: Path,
    *,
    rows: int = 5000,
    seed: int = 0,
    overwrite: bool = False,
    header: str | None = None,
    comment: str | None = None,
    allow_multiline: bool = False,
) -> Path:
    """Write the report of a run to a folder, and return the path of the page.

    Args:
        run: the run folder.
        data: the table to compare samples with. Default: the fitted table.
        folder: the folder of the report. A report in the folder ``plots`` of the run is replaced.
        rows: number of table rows and of samples to plot.
        seed: seed of the samples.
        overwrite: whether to replace an existing report elsewhere.
        header, comment, allow_multiline: options for reading ``data``. Default: those of the fitted table.
    """
    fitted = FittedTable.load(run)
    if folder.parent.resolve() == run.resolve():  # a run folder from elsewhere may contain a link
        refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{folder}: this is a file; give a folder for the pictures")
    if (folder / PAGE_NAME).exists() and not overwrite and not is_own(run, PLOTS, folder):
        raise TableError(f"{folder / PAGE_NAME}: there is such a page already; replace it", overwrite=True)
    table = _table(fitted, data, fitted.reading.with_options(header, comment, allow_multiline))
    if (usable := fitted.some_rows(table, rows)) is None:
        raise TableError(f"{table.name}: the table has no complete rows; give another table", data=...)
    chosen, _ = usable
    samples = fitted.sample_like(chosen, rows, seed=seed)
    real, drawn = fitted.numbers(chosen), fitted.numbers(samples)
    panels = [make_panel(column, real[:, i], drawn[:, i]) for i, column in enumerate(fitted.schema.model)]
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [("Training", training_curve(read_metrics(run)), ""), *_pictures(fitted, panels)]
    sections = [_score(score_some(fitted, table, SCORED_ROWS), is_source=fitted.is_source(table)), _columns(fitted)]
    sections.append(_judgement(run))
    for title, figure, note in pictures:
        content = _png(figure)
        write_atomically(folder / f"{re.sub('[^a-z0-9]+', '-', title.lower())}.png", content)
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        sections.append(f'<h2>{title}</h2><img alt="{title}" src="{source}">{_paragraph(note)}')
    facts = {
        "run": run.resolve().name,
        "model": fitted.model.phrase,
        "data": table.name,
        "parts": ", ".join(f"{count} {name}" for name, count in fitted.parts.items()),
    }
    shown = {name: html.escape(text) for name, text in facts.items()}
    page = PAGE.format(**shown, rows=len(chosen), samples=len(samples), body="\n".join(sections))
    write_atomically(folder / PAGE_NAME, page.encode())
    return folder / PAGE_NAME


def _table(fitted: FittedTable, data: str | Path | None, reading: Reading) -> Table:
    if data is not None:
        return open_table(data, reading)
    try:
        return fitted.reopen(reading)
    except TableError as error:
        raise TableError(f"{error.advice.message}; give a table", data=...) from None


# --- pictures ---


def _pictures(fitted: FittedTable, panels: Sequence[Panel]) -> Iterable[tuple[str, Figure, str]]:
    """Yield the pictures of columns: a title, the figure, and a sentence on what it leaves out."""
    modelled = {column.name for column in fitted.schema.model}
    others = [f"{c.name} ({c.role})" for c in fitted.schema.columns if c.name not in modelled]
    for first in range(0, len(panels), MARGINALS_AT_ONCE):
        some = panels[first : first + MARGINALS_AT_ONCE]
        which = f", columns {first + 1} to {first + len(some)}" if len(panels) > MARGINALS_AT_ONCE else ""
        is_last = first + len(some) == len(panels)
        note = f"Not drawn, because not modelled: {', '.join(others)}." if is_last and others else ""
        yield f"One column at a time{which}", marginals(some), note
    if len(panels) > 1:
        chosen = most_correlated(panels)
        left_out = [panel.name for panel in panels if all(panel is not other for other in chosen)]
        note = (
            f"The {len(chosen)} columns with the largest sums of rank correlations with other columns are drawn. "
            f"Left out: {', '.join(left_out)}."
        )
        yield "Two columns at a time", corner(chosen, len(left_out)), note if left_out else ""


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
    return file.getvalue()


# --- sections of HTML ---


def _score(scored: ScoredParts, *, is_source: bool) -> str:
    """Return the section about the fit. With ``is_source``, the parts of the fitted table are listed separately."""
    shown = scored.parts if is_source else {"its rows": scored.whole}
    name, new = ("test", scored.parts["test"]) if is_source else ("its", scored.whole)
    train = scored.parts["train"] if is_source else None
    warnings = "".join(_paragraph(f"Warning: {text}.") for text in score_warnings(new, train, name))
    header = ("", "rows", "log likelihood", "independent columns", "gain")
    return (
        f"<h2>How good the fit is</h2>{_paragraph(verdict(new, train, name))}{warnings}"
        f"{_html_table(header, ([part, *_numbers(score)] for part, score in shown.items()))}"
        f"{_paragraph(f'In nats per row, ± two standard errors. Of the table, {scored.used}.')}"
    )


def _numbers(score: Score) -> list[str]:
    means = score.model, score.independent, score.gain
    return [f"{score.model.rows:,}", *("" if mean is None else str(mean) for mean in means)]


def _columns(fitted: FittedTable) -> str:
    rows = ((c.name, c.kind, c.describe()) for c in fitted.schema.columns)
    return _html_table(("column", "kind", "term in the likelihood"), rows)


def _judgement(run: Path) -> str:
    """Return the section with the result of ``cubicflow judge`` for this run; empty if there is none."""
    found = read_judgement(run)
    if found is None:
        return ""
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in found.remarks)
    lines = _html_table(("", "samples", "real rows"), found.lines)
    return f"<h2>How good the samples are</h2>{_paragraph(found.verdict)}{lines}<ul>{remarks}</ul>"


def _html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [("th", header), *(("td", row) for row in rows)]
    lines = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) for tag, line in cells)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>" if text else ""
