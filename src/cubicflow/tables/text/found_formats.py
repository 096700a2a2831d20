"""Detection of formats: which columns of text hold numbers or dates that are not written plainly.

A column gets a format only if all of its rows match, and a remark tells the user. Other columns may resolve an
ambiguity. The text 1,084 is 1084 if another column holds 12.5; it is 1.084 if another column holds 12,5 or if
semicolons separate the columns. The date 01/02/2024 is read if another column shows the order of day and month. A
column that stays ambiguous stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import ZONED, narrowest
from cubicflow.tables.source import Table
from cubicflow.tables.text.formats import BLANKS, OFFSET, UNITS, DateFormat, Format, NumberFormat, ZonedFormat

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
THOUSANDS = NumberFormat(",", ".")
FIRST = 100  # values of a column that are checked first
AFFIXES = re.compile(f"^[+-]?([{UNITS}][{BLANKS}]?)?[+-]?[0-9].*?([{BLANKS}]?[{UNITS}])?$")


class FormattedTable(Table):
    """A table of text whose columns have formats. Its batches hold plain values.

    ``formats`` also holds the formats of the wrapped table, whose batches are plain already.
    """

    def __init__(self, inner: Table, formats: Mapping[str, Format], types: Mapping[str, pa.DataType]) -> None:
        super().__init__(inner.path, {**inner.types, **types})
        self._read_like(inner)
        self.files, self.formats = inner.files, {**inner.formats, **formats}
        self._inner, self._own = inner, dict(formats)

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._inner.batches(columns, rows):
            arrays = [
                self._own[name].to_plain(array) if name in self._own else array
                for name, array in zip(columns, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)
        self._add_remarks(self._inner)

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:
        kept = self._inner.spooled(columns, folder)
        formats = {name: found for name, found in self._own.items() if name in columns}
        return FormattedTable(kept, formats, _types(kept, formats))

    def fingerprint(self) -> str:
        return self._inner.fingerprint()

    def source(self) -> str | None:
        return self._inner.source()


@dataclass
class _Candidates:
    """The formats that match all values of a column so far."""

    numbers: list[NumberFormat] = field(default_factory=list)
    dates: list[DateFormat] = field(default_factory=list)
    example: str = ""

    def see(self, text: pa.Array) -> None:
        if self.example:
            self._keep(text)
            return
        self.example = text[0].as_py()
        units = AFFIXES.match(self.example)
        before, after = ("", "") if units is None else (units[1] or "", units[2] or "")
        self.numbers = [NumberFormat(decimal, group, before, after) for decimal, group in MARKS]
        self.dates = [DateFormat(order, separator) for order, separator in DATES]
        self._keep(text[:FIRST])  # a few values rule out most formats
        self._keep(text[FIRST:])

    def _keep(self, text: pa.Array) -> None:
        self.numbers = [format for format in self.numbers if format.matches_all(text)]
        self.dates = [format for format in self.dates if format.matches_all(text)]

    def families(self) -> set[str]:
        return {_family(format) for format in self.numbers}

    def orders(self) -> set[str]:
        return {format.order for format in self.dates}


def detect_formats(table: Table, columns: Sequence[str], words: Collection[str] = ()) -> Table:
    """Return the table with plain values and the types of these values.

    ``formats`` of the result holds the format of each rewritten column, and ``remarks`` describes the formats. A table
    that is not text, or that is plain already, is returned unchanged.

    Args:
        table: a table of text with inferred types that can be read again.
        columns: the columns to check.
        words: columns that the user declares categorical; they are never rewritten.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cubicflow.tables.source import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("day;price\\n31.12.2024;1.234,5\\n1.1.2025;7,25\\n")
    ...     table = detect_formats(open_table(f"{folder}/t.csv").spooled(["day", "price"]), ["day", "price"])
    ...     [batch.to_pylist()[0] for batch in table.batches()], {n: str(t) for n, t in table.types.items()}
    ([{'day': '2024-12-31', 'price': '1234.5'}], {'day': 'date32[day]', 'price': 'double'})
    """
    if not table.is_text:
        return table
    checked = [name for name in columns if name not in words]
    candidates = _candidates(table, [name for name in checked if table.types[name] == pa.string()])
    formats = _choose(table, candidates, [name for name in checked if table.types[name] == pa.float64()])
    types = _types(table, formats)
    formats = {name: chosen for name, chosen in formats.items() if types[name] != pa.string()}
    remarks = [_remark(table, name, chosen) for name, chosen in formats.items()]
    for name in checked:
        if table.types[name] in ZONED:
            zoned, mixed = _zone(table, name)
            if zoned is not None:
                formats[name], types[name] = zoned, pa.timestamp(table.types[name].unit, zoned.zone)
            if mixed:
                remarks.append(f"{name!r} holds times at different offsets from UTC; samples are in UTC")
    if not formats and not remarks:
        return table
    plain = FormattedTable(table, formats, {name: types[name] for name in formats})
    plain.remarks = (*table.remarks, *remarks)
    return plain


def _candidates(table: Table, columns: list[str]) -> dict[str, _Candidates]:
    """Return the formats that match all values of each column."""
    found = {name: _Candidates() for name in columns}
    for batch in table.batches(columns) if columns else ():
        for name, seen in found.items():
            text = batch.column(name).drop_null()
            if len(text) and (seen.numbers or seen.dates or not seen.example):
                seen.see(text)
    return found


def _choose(table: Table, found: Mapping[str, _Candidates], plain: list[str]) -> dict[str, Format]:
    """Return the chosen format of each column that gets one.

    ``plain`` are columns that parse as plain numbers. A European table may write the number 1084 as 1.084 there.
    """
    formats: dict[str, Format] = {}
    sure = [*chain(*(seen.families() for seen in found.values() if len(seen.families()) == 1))]
    if any(seen.numbers for seen in found.values()):
        thousands = {name for name in plain if _in_thousands(table, name)}
        sure += [AMERICAN for name in plain if name not in thousands]
        if set(sure) == {EUROPEAN}:
            formats |= dict.fromkeys(thousands, THOUSANDS)
    family = _agreed(sure) if sure else {";": EUROPEAN, ",": AMERICAN}.get(table.delimiter or "")
    formats |= {name: number for name, seen in found.items() if (number := _number(seen, family))}
    orders = [*chain(*(seen.orders() for seen in found.values() if len(seen.orders()) == 1))]
    # Decimal commas imply the day first. Decimal points imply nothing: British dates have the day first too.
    order = _agreed(orders) if orders else "dmy" if _agreed(sure) == EUROPEAN else None
    for name, seen in found.items():
        if name not in formats and (date := _date(seen, order)):
            formats[name] = replace(date, padded=_padded(table, name, date))
    return formats


def _family(number: NumberFormat) -> str:
    return AMERICAN if number.decimal == "." else EUROPEAN


def _agreed(found: Sequence[str]) -> str | None:
    return found[0] if len(set(found)) == 1 else None


def _in_thousands(table: Table, name: str) -> bool:
    """Return whether every point in a column could be a thousands separator: 950, 1.084, 12.500."""
    texts = (batch.column(0).drop_null() for batch in table.batches([name]))
    return all(THOUSANDS.matches_all(text) for text in texts if len(text))


def _number(seen: _Candidates, family: str | None) -> NumberFormat | None:
    """Return the simplest candidate; if candidates of both families differ, the simplest of the given family."""
    simplest = {_family(format): format for format in reversed(seen.numbers)}
    if len(simplest) < 2:
        return next(iter(simplest.values()), None)
    american, european = simplest[AMERICAN], simplest[EUROPEAN]
    if american.group == european.group:  # no value has a point or a comma
        return american
    if family is not None:
        return simplest[family]
    return None if american.group else american


def _date(seen: _Candidates, order: str | None) -> DateFormat | None:
    if len(seen.dates) == 1:
        return seen.dates[0]
    return next((format for format in seen.dates if format.order == order), None)


def _padded(table: Table, name: str, date: DateFormat) -> bool:
    """Return whether days and months below ten are written with two digits."""
    short = rf"(^|{re.escape(date.separator)})[0-9]({re.escape(date.separator)}|[ ,T]|$)"
    texts = (batch.column(0).drop_null() for batch in table.batches([name]))
    return not any(pc.any(pc.match_substring_regex(text, short)).as_py() for text in texts)


def _types(table: Table, formats: Mapping[str, Format]) -> dict[str, pa.DataType]:
    """Return the narrowest type of each column's plain values."""
    types = dict.fromkeys(formats, pa.null())
    for batch in table.batches(list(formats)) if formats else ():
        for name, chosen in formats.items():
            types[name] = narrowest(chosen.to_plain(batch.column(name)), types[name])
    for name, chosen in formats.items():
        if isinstance(chosen, ZonedFormat) and types[name] in ZONED:
            types[name] = pa.timestamp(types[name].unit, chosen.zone)
    return types


def _zone(table: Table, name: str) -> tuple[ZonedFormat | None, bool]:
    """Return the format of times if all have the same offset, and whether the times have several time zones."""
    offsets: set[str] = set()
    between: set[str] = set()
    for batch in table.batches([name]):
        text = batch.column(0).drop_null()
        offsets |= set(pc.unique(pc.struct_field(pc.extract_regex(text, OFFSET), "offset")).to_pylist())
        between |= set(pc.unique(pc.utf8_slice_codeunits(text, 10, 11)).to_pylist())
    offset, mark = _agreed([*filter(None, offsets)]), _agreed(sorted(between))
    if offset is None:
        zones = {ZonedFormat("T", found).zone for found in offsets if found}
        return None, len(zones) > 1
    return ZonedFormat(mark if mark in ("T", " ") else "T", offset), False


def _remark(table: Table, name: str, chosen: Format) -> str:
    """Return a remark on the format. The example is the longest of the first values."""
    texts = next(text for batch in table.batches([name]) if len(text := batch.column(0).drop_null()))
    example = max(texts[:FIRST].to_pylist(), key=len)
    (plain,) = chosen.to_plain(pa.array([example])).to_pylist()
    return f"{name!r} is read as {chosen.describe()}: {example!r} is {plain}"
