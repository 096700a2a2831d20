"""The report of a run: pictures as PNG files, and one HTML page that contains them."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure

from cubicflow.files import refuse_link, write_atomically
from cubicflow.plots.marginals import corner, marginals
from cubicflow.plots.panels import make_panel, most_correlated
from cubicflow.plots.report_frame import PAGE, STYLE
from cubicflow.plots.score_section import score_section
from cubicflow.plots.training_curve import training_curve
from cubicflow.tables import FittedTable, Reading, Table, TableError, open_table
from cubicflow.tables.judging.judge_file import read_judgement
from cubicflow.tables.read.places import is_path
from cubicflow.tables.run.output import is_own
from cubicflow.tables.run.scored_parts import score_some
from cubicflow.tables.schema.split import RowSample
from cubicflow.tables.schema.usable_rows import pieces
from cubicflow.training.metrics_file import read_metrics

PAGE_NAME = "report.html"
PLOTS = "plots"  # the folder of the report in a run folder
MARGINALS_AT_ONCE = 20  # panels of one picture; the time of the layout grows faster than the number of panels
SCORED_ROWS = 2000  # rows of each part of the table
DOTS_PER_INCH = 110


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
        raise TableError(f"{folder / PAGE_NAME}: there is such a page already; replace it", "--overwrite")
    table = _table(fitted, data, fitted.reading.with_options(header, comment, allow_multiline))
    found = _rows(fitted, table, rows)
    samples = fitted.sample_like(found, rows, seed=seed)
    figures, notes = _figures(fitted, found, samples, run)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: _png(figure) for name, figure in figures.items()}
    for name, picture in pictures.items():
        write_atomically(folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.png", picture)
    score = score_section(score_some(fitted, table, SCORED_ROWS), is_source=fitted.is_source(table))
    page = _page(run, table.name, fitted, score, pictures, notes, len(found), len(samples))
    write_atomically(folder / PAGE_NAME, page.encode())
    return folder / PAGE_NAME


def _table(fitted: FittedTable, data: str | Path | None, reading: Reading) -> Table:
    if data is not None:
        return open_table(data, reading)
    source = Path(fitted.source)
    if not is_path(fitted.source):
        raise TableError(
            "the fitted table came from a query, a URL or a pipe, which is not read again; give a table", "--data"
        )
    if not source.exists():
        raise TableError(f"the fitted table {source} no longer exists; give a table", "--data")
    table = open_table(source, reading)
    if not fitted.is_source(table):
        raise TableError(f"{source} has changed since the fit; to plot it anyway, give it", "--data")
    return table


def _rows(fitted: FittedTable, table: Table, rows: int) -> pa.RecordBatch:
    """Return a sample of complete rows of the table, chosen by row number."""
    chosen = RowSample(rows)
    for piece in pieces(table, fitted.schema.check(table), fitted.missing):
        chosen.update(piece.batch, piece.numbers)
    found = chosen.table().combine_chunks()
    if not len(found):
        raise TableError(f"{table.name}: the table has no complete rows; give another table", "--data")
    return found.to_batches()[0]


def _figures(
    fitted: FittedTable, found: pa.RecordBatch, samples: pa.RecordBatch, run: Path
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures by their titles, and sentences on what a figure leaves out, by the same titles."""
    encoder = fitted.encoder
    numbers = encoder.read(found)
    typed = encoder.decode_numbers(numbers.y)
    panels = [make_panel(column, typed[column.name], samples.column(column.name)) for column in encoder.columns]
    figures, notes = {"Training": training_curve(read_metrics(run))}, {}
    for first in range(0, len(panels), MARGINALS_AT_ONCE):
        shown = panels[first : first + MARGINALS_AT_ONCE]
        which = f", columns {first + 1} to {first + len(shown)}" if len(panels) > MARGINALS_AT_ONCE else ""
        figures[title := f"One column at a time{which}"] = marginals(shown)
    drawn = {column.name for column in encoder.columns}
    others = [f"{c.name} ({c.role})" for c in fitted.schema.columns if c.name not in drawn]
    if others:
        notes[title] = f"Not drawn, because not modelled: {', '.join(others)}."
    if len(panels) > 1:
        chosen = most_correlated(panels)
        left_out = [panel.name for panel in panels if all(panel is not other for other in chosen)]
        figures[title := "Two columns at a time"] = corner(chosen, len(left_out))
        if left_out:
            notes[title] = (
                f"The {len(chosen)} columns with the largest sums of rank correlations with other columns are drawn. "
                f"Left out: {', '.join(left_out)}."
            )
    return figures, notes


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
    return file.getvalue()


def _page(
    run: Path,
    data: Path | str,
    fitted: FittedTable,
    score: str,
    pictures: Mapping[str, bytes],
    notes: Mapping[str, str],
    rows: int,
    samples: int,
) -> str:
    columns = "".join(
        f"<tr><td>{html.escape(c.name)}</td><td>{c.kind}</td><td>{html.escape(c.describe())}</td></tr>"
        for c in fitted.schema.columns
    )
    figures = "".join(
        f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        + (f"<p>{html.escape(notes[title])}</p>" if title in notes else "")
        for title, picture in pictures.items()
    )
    parts = ", ".join(f"{count} {name}" for name, count in fitted.parts.items())
    return PAGE.format(
        style=STYLE,
        run=html.escape(run.resolve().name),
        model="a cubic-spline flow" if fitted.cells is None else "a model of the columns",
        data=html.escape(data.name if isinstance(data, Path) else data),
        rows=rows,
        samples=samples,
        parts=html.escape(parts),
        score=score,
        columns=columns,
        judgement=_judgement(run),
        figures=figures,
    )


def _judgement(run: Path) -> str:
    """Return HTML with the result of ``cubicflow judge`` for this run; empty if there is none."""
    found = read_judgement(run)
    if found is None:
        return ""
    lines = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in found.lines)
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in found.remarks)
    return (
        f"<h2>How good the samples are</h2><p>{html.escape(found.verdict)}</p>"
        f"<table><tr><th></th><th>samples</th><th>real rows</th></tr>{lines}</table><ul>{remarks}</ul>"
    )
