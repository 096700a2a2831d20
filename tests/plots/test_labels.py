"""Labels of the figures: no text overlaps another, every column is named, and matplotlib warns of nothing.

pytest turns every warning into an error, so a figure that warns fails its test.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from cubicflow.plots import report
from cubicflow.plots.marginals import MOST_LABELS, Panel, corner, make_panel, marginals, most_correlated
from cubicflow.plots.style import plain
from cubicflow.tables import TableOptions, fit_table
from cubicflow.tables.kinds.listed import Listed
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.schema.plain_rows import plain_numbers

LONG = "a very long column name that goes on and on, in metres per second squared, 数据 größe 🎉 $x_1$"
WORDS = ("a short one", "an extremely long word that is a sentence", "日本語のとても長い言葉です", " new\tline $\\frac")


def panels() -> list[Panel]:
    """Return panels of numbers of all sizes, of words, of dates, of few values, and of missing values only."""
    rng = np.random.default_rng(0)

    def numbers(name: str, centre: float, spread: float) -> Panel:
        data, drawn = rng.normal(centre, spread, (2, 300))
        return Panel(name, data, drawn, np.linspace(data.min(), data.max(), 31))

    level = rng.integers(0, 4, 300).astype(float)
    many = rng.integers(0, MOST_LABELS, 300).astype(float)
    many[:30] = np.nan
    labels = tuple(f"{WORDS[1]} {i}" for i in range(MOST_LABELS))
    nothing, days = np.full(300, np.nan), 18_262 + rng.integers(0, 1000, 300).astype(float)
    return [
        numbers(LONG, 1e6, 1e5),
        numbers("wide " * 20, 3e7, 1e4),
        numbers("tiny", 1e-7, 1e-9),
        numbers("negative", -123_456, 20_000),
        Panel(f"words {LONG}", level, level, np.arange(5) - 0.5, WORDS),
        Panel("many words", many, many, np.arange(MOST_LABELS + 1) - 0.5, labels),
        Panel("days", days, days, np.linspace(days.min(), days.max(), 31), is_date=True),
        Panel("nothing", nothing, nothing, np.linspace(-0.5, 0.5, 31)),
    ]


def check_labels(figure: Figure) -> None:
    """Assert that all texts of a figure lie inside it, and that no two of them overlap by more than a pixel."""
    figure.draw_without_rendering()
    texts = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes.title]
        for axis in (axes.xaxis, axes.yaxis):
            ticks = axis._update_ticks()  # ticks beyond the ends of the axis are not drawn
            texts += [axis.label, axis.get_offset_text(), *(tick.label1 for tick in ticks)]
    drawn = [text for text in texts if text is not None and text.get_visible() and text.get_text().strip()]
    boxes = np.array([text.get_window_extent().extents for text in drawn])
    width, height = figure.canvas.get_width_height()
    low, high = boxes[:, :2], boxes[:, 2:]
    outside = (low < -1).any(axis=1) | (high > np.array([width, height]) + 1).any(axis=1)
    assert [text.get_text() for text, is_out in zip(drawn, outside, strict=True) if is_out] == []
    shared = np.minimum(high[:, None], high[None]) - np.maximum(low[:, None], low[None])
    pairs = np.argwhere(np.triu((shared > 1).all(axis=2), k=1))
    assert [(drawn[i].get_text(), drawn[j].get_text()) for i, j in pairs] == []


def test_no_label_overlaps_another() -> None:
    check_labels(marginals(panels()))
    check_labels(corner(panels()[:4], left_out=32))
    check_labels(corner(panels()[4:], left_out=32))


@pytest.mark.parametrize("first", range(0, 8, 2))
def test_no_label_overlaps_another_in_a_small_figure(first: int) -> None:
    check_labels(corner(panels()[first : first + 2]))


@pytest.mark.parametrize(
    ("low", "high", "columns"),
    [
        (24_000, 460_000, (4, 8)),  # 64 panels take a second, and each has the room of one of 16
        (20_000, 980_000, (4,)),
        (-998_000, -984_000, (4,)),
        (-4.8905, -4.8885, (4, 8)),
        (-9.42e-4, -9.36e-4, (4,)),
        (0, 5, (4,)),
    ],
)
def test_ticks_of_numbers_of_many_digits_have_room(low: float, high: float, columns: tuple[int, ...]) -> None:
    values = np.linspace(low, high, 50)
    panel = Panel("income", values, values, np.linspace(low, high, 41))
    for figure in (marginals([panel] * 4), *(corner([panel] * number) for number in columns)):
        check_labels(figure)
        ticks = figure.axes[-1].get_xticks()
        assert ((ticks >= low) & (ticks <= high)).sum() >= 2, "one number does not show a scale"


@pytest.mark.parametrize("days", [1e-5, 1e-3, 0.03, 0.9, 1.9, 6, 30, 61, 200, 729, 731, 1500, 40_000, 700_000])
def test_dates_of_every_span_have_ticks(days: float) -> None:
    values = np.array([10_000.0 - min(days, 9000) / 2, 10_000 + days / 2])
    panel = Panel("day", values, values, np.linspace(*values, 11), is_date=True)
    figure = marginals([panel])
    figure.draw_without_rendering()
    locator = figure.axes[0].xaxis.get_major_locator()
    assert isinstance(locator, mdates.AutoDateLocator)
    inside = [tick for tick in locator() if values[0] <= tick <= values[1]]
    assert 1 <= len(inside) <= 5


def test_characters_that_the_font_lacks_are_boxes() -> None:
    assert plain("größe 数 x") == "größe □ x"
    assert plain("a\n\tb") == "a b"
    assert plain("$5") == r"\$5"


def test_long_words_that_begin_alike_have_different_labels() -> None:
    words = tuple(f"an extremely long word that ends in {i}" for i in range(3))
    level = np.arange(3.0)
    (axes,) = marginals([Panel("word", level, level, np.arange(4) - 0.5, words)]).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(set(labels)) == 3
    assert all(label.startswith("an extr") for label in labels)


def test_missing_values_are_kept_apart_from_many_words() -> None:
    """Thirty words and missing values: shares of the most frequent words against a count of the rows."""
    rng = np.random.default_rng(0)
    levels = tuple(f"w{i:02d}" for i in range(30))
    rows = pd.Series(rng.choice(levels, 2000, p=np.arange(1, 31) / 465)).mask(rng.random(2000) < 0.2)
    array = pa.array(rows, pa.string(), from_pandas=True)
    column = Listed("word", "string", levels=levels)
    found = make_panel(column, plain_numbers(column, array), plain_numbers(column, array.slice(0, 500)))
    assert len(found.labels) == MOST_LABELS
    assert found.labels[-1] == "19 others"
    counts = np.histogram(found.data, found.edges)[0]
    assert counts[:-1].tolist() == [int((rows == word).sum()) for word in found.labels[:-1]]
    assert counts[-1] == rows.notna().sum() - counts[:-1].sum()
    assert np.isnan(found.data).sum() == rows.isna().sum()
    assert np.isnan(found.samples).sum() == rows[:500].isna().sum()
    words = marginals([found]).axes[0].get_xlabel()
    assert words == f"missing: {rows.isna().mean():.1%} of the data, {rows[:500].isna().mean():.1%} of the samples"


def test_columns_without_values_or_with_one_value_have_panels() -> None:
    rng = np.random.default_rng(0)
    values = [np.full(50, np.nan), np.full(50, 1e20), *rng.normal(size=(2, 50))]
    found = []
    for i, data in enumerate(values):
        found.append(make_panel(Real(f"c{i}", "double"), data, data))
    assert all((np.diff(panel.edges) > 0).all() for panel in found)
    assert len(most_correlated(found, 3)) == 3
    corner(found[:2]).draw_without_rendering()


def test_the_report_names_every_column_that_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column is drawn, or is named with the reason. A column of many words has missing values."""
    monkeypatch.setattr(report, "most_correlated", lambda panels: most_correlated(panels, 2))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{i}": rng.integers(0, 20, 120) for i in range(2)})
    frame["<word>"] = pd.Series(rng.choice([f"w{i}" for i in range(30)], 120)).mask(rng.random(120) < 0.2)
    frame["copy"] = frame["n0"] + (rng.random(120) < 0.1)  # n0 and its copy have the largest correlations
    frame = frame.assign(same=7, left=rng.integers(0, 9, 120), group=rng.choice(["a", "b"], 120))
    frame["weight"] = 1 + rng.random(120)
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = TableOptions(drop=("left",), weights="weight", context=("group",))
    small = {"hidden_features": 4, "num_blocks": 1}
    fit_table(tmp_path / "table.csv", tmp_path / "run", options, small, steps=1, progress=False, device="cpu")
    text = report.draw_report(tmp_path / "run", None, tmp_path / "plots", rows=60).read_text()
    said = re.findall(r"<p>(.*?)</p>", text)
    assert (
        "Not drawn, because not modelled: same (constant), left (dropped), group (context), weight (weights)." in said
    )
    assert (
        "The 2 columns with the largest sums of rank correlations with other columns are drawn. Left out: "
        "n1, &lt;word&gt;."
    ) in said
