"""Detection of notations: which columns of text hold numbers or dates that are not written plainly.

A column gets a notation only if all of its rows match, and a remark tells the user. Other columns may resolve an
ambiguity. The text 1,084 is 1084 if another column holds 12.5; it is 1.084 if another column holds 12,5 or if
semicolons separate the columns. The date 01/02/2024 is read if another column shows the order of day and month. A
column that stays ambiguous stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import ZONED, narrowest
from cubicflow.tables.read.table import Table
from cubicflow.tables.read.text.notations import (
    BLANKS,
    OFFSET,
    UNITS,
    AnyNotation,
    DateNotation,
    NumberNotation,
    ZonedNotation,
)

AMERICAN, EUROPEAN = "american", "european"
# (decimal mark, thousands separator), the simplest pair first
MARKS = (
    (".", ""),
    (",", ""),
    (".", ","),
    (",", "."),
    *((d, g) for d in ".," for g in BLANKS),
    (".", "'"),
    (".", "\u2019"),
)
DATES = (("dmy", "/"), ("dmy", "."), ("dmy", "-"), ("mdy", "/"), ("mdy", "-"), ("ymd", "/"), ("ymd", "."))
THOUSANDS = NumberNotation(",", ".")
MOST_DECIMALS = 30
FIRST = 100  # values of a column that are checked first
AFFIXES = re.compile(f"^[+-]?([{UNITS}][{BLANKS}]?)?[+-]?[0-9].*?([{BLANKS}]?[{UNITS}])?$")


class _Candidates(NamedTuple):
    """The notations that match all values of a column."""

    numbers: list[NumberNotation]
    dates: list[DateNotation]

    def families(self) -> set[str]:
        return {_family(notation) for notation in self.numbers}

    def orders(self) -> set[str]:
        return {notation.order for notation in self.dates}


def detect_notations(table: Table, columns: Sequence[str], words: Collection[str] = ()) -> Table:
    """Return the table with the notations of its columns, and with the types of the plain values.

    ``remarks`` of the result describes the notations that are found. A table that is not text, or that is plain
    already, is returned unchanged.

    Args:
        table: a table of text with inferred types that can be read again.
        columns: the columns to check. A column with a notation is not checked again.
        words: columns that the user declares categorical; they are never rewritten.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cubicflow.tables import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("day;price\\n31.12.2024;1.234,5\\n1.1.2025;7,25\\n")
    ...     table = detect_notations(open_table(f"{folder}/t.csv").spooled(["day", "price"]), ["day", "price"])
    ...     [batch.to_pylist()[0] for batch in table.batches()], {n: str(t) for n, t in table.types.items()}
    ([{'day': '2024-12-31', 'price': '1234.5'}], {'day': 'date32[day]', 'price': 'double'})
    """
    if table.text is None:
        return table
    checked = [name for name in columns if name not in words and name not in table.notations]
    candidates = {name: _candidates(_text(table, name)) for name in checked if table.types[name] == pa.string()}
    notations = _choose(table, candidates, [name for name in checked if table.types[name] == pa.float64()])
    types = {name: _type(_text(table, name), chosen) for name, chosen in notations.items()}
    notations = {name: chosen for name, chosen in notations.items() if types[name] != pa.string()}
    notes = [_note(_text(table, name), name, chosen) for name, chosen in notations.items()]
    for name in checked:
        if table.types[name] in ZONED:
            zoned, mixed = _zone(_text(table, name))
            if zoned is not None:
                notations[name], types[name] = zoned, zoned.plain_type(table.types[name])
            if mixed:
                notes.append(f"{name!r} holds times at different offsets from UTC; samples are in UTC")
    text = replace(table.text, notations={**table.notations, **notations})
    found = {**table.types, **{name: types[name] for name in notations}}
    return replace(table, types=found, text=text, notes=(*table.notes, *notes))


def _text(table: Table, name: str) -> pa.ChunkedArray:
    """Return the values of a column without missing values."""
    return pa.Table.from_batches(table.batches([name]), pa.schema({name: pa.string()})).column(0).drop_null()


def _candidates(text: pa.ChunkedArray) -> _Candidates:
    """Return the notations that match all values of a column."""
    units = AFFIXES.match(text[0].as_py())
    before, after = ("", "") if units is None else (units[1] or "", units[2] or "")
    numbers = (NumberNotation(decimal, group, before, after) for decimal, group in MARKS)
    dates = (DateNotation(order, separator) for order, separator in DATES)
    return _Candidates(
        [each for each in numbers if _fits(text, each)],
        [each for each in dates if _fits(text, each)],
    )


def _fits(text: pa.ChunkedArray, notation: AnyNotation) -> bool:
    return notation.matches_all(text[:FIRST]) and notation.matches_all(text)  # a few values rule out most notations


def _choose(table: Table, found: Mapping[str, _Candidates], plain: list[str]) -> dict[str, AnyNotation]:
    """Return the chosen notation of each column that gets one.

    ``plain`` are columns that parse as plain numbers. A European table may write the number 1084 as 1.084 there.
    """
    notations: dict[str, AnyNotation] = {}
    sure = [*chain(*(seen.families() for seen in found.values() if len(seen.families()) == 1))]
    if any(seen.numbers for seen in found.values()):
        thousands = {name for name in plain if _fits(_text(table, name), THOUSANDS)}  # 950, 1.084, 12.500
        sure += [AMERICAN for name in plain if name not in thousands]
        if set(sure) == {EUROPEAN}:
            notations |= dict.fromkeys(thousands, THOUSANDS)
    family = _agreed(sure) if sure else {";": EUROPEAN, ",": AMERICAN}.get((table.text and table.text.delimiter) or "")
    for name, seen in found.items():
        if number := _number(seen, family):
            notations[name] = replace(number, decimals=_decimals(_text(table, name), number))
    orders = [*chain(*(seen.orders() for seen in found.values() if len(seen.orders()) == 1))]
    # Decimal commas imply the day first. Decimal points imply nothing: British dates have the day first too.
    order = _agreed(orders) if orders else "dmy" if _agreed(sure) == EUROPEAN else None
    for name, seen in found.items():
        if name not in notations and (date := _date(seen, order)):
            notations[name] = replace(date, padded=_padded(_text(table, name), date))
    return notations


def _family(number: NumberNotation) -> str:
    return AMERICAN if number.decimal == "." else EUROPEAN


def _agreed(found: Sequence[str]) -> str | None:
    return found[0] if len(set(found)) == 1 else None


def _number(seen: _Candidates, family: str | None) -> NumberNotation | None:
    """Return the simplest candidate; if candidates of both families differ, the simplest of the given family."""
    simplest = {_family(notation): notation for notation in reversed(seen.numbers)}
    if len(simplest) < 2:
        return next(iter(simplest.values()), None)
    american, european = simplest[AMERICAN], simplest[EUROPEAN]
    if american.group == european.group:  # no value has a point or a comma
        return american
    if family is not None:
        return simplest[family]
    return None if american.group else american


def _decimals(text: pa.ChunkedArray, number: NumberNotation) -> int:
    """Return the number of digits after the decimal mark if all values of a column have equally many, else 0."""
    mark = re.escape(number.decimal)
    fractions = pc.struct_field(pc.extract_regex(text, f"^[^{mark}]*{mark}?(?P<digits>[0-9]*)[^0-9]*$"), "digits")
    found = pc.unique(pc.utf8_length(fractions)).to_pylist()
    return min(found[0], MOST_DECIMALS) if len(found) == 1 and None not in found else 0


def _date(seen: _Candidates, order: str | None) -> DateNotation | None:
    if len(seen.dates) == 1:
        return seen.dates[0]
    return next((notation for notation in seen.dates if notation.order == order), None)


def _padded(text: pa.ChunkedArray, date: DateNotation) -> bool:
    """Return whether days and months below ten are written with two digits."""
    short = rf"(^|{re.escape(date.separator)})[0-9]({re.escape(date.separator)}|[ ,T]|$)"
    return not pc.any(pc.match_substring_regex(text, short)).as_py()


def _type(text: pa.ChunkedArray, notation: AnyNotation) -> pa.DataType:
    """Return the narrowest type of the plain values of a column."""
    type = pa.null()
    for chunk in text.chunks:
        type = narrowest(notation.to_plain(chunk), type)
    return type


def _zone(text: pa.ChunkedArray) -> tuple[ZonedNotation | None, bool]:
    """Return the notation of times if all have the same offset, and whether the times have several time zones."""
    offsets = pc.unique(pc.struct_field(pc.extract_regex(text, OFFSET), "offset")).drop_null().to_pylist()
    between = pc.unique(pc.utf8_slice_codeunits(text, 10, 11)).to_pylist()
    if (offset := _agreed(offsets)) is None:
        return None, len({ZonedNotation("T", found).zone for found in offsets}) > 1
    return ZonedNotation("T" if _agreed(between) != " " else " ", offset), False


def _note(text: pa.ChunkedArray, name: str, chosen: AnyNotation) -> str:
    """Return a note on the notation. The example is the longest of the first values."""
    example = max(text[:FIRST].to_pylist(), key=len)
    (plain,) = chosen.to_plain(pa.array([example])).to_pylist()
    return f"{name!r} is read as {chosen.describe()}: {example!r} is {plain}"
