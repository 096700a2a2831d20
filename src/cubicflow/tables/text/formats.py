"""How a column writes its values, where that is not 1234.5 and 2024-12-31: to the plain way, and back for CSV files.

A format rewrites those values that have its form. Others stay as they are, so what is plain already is read as well.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.table_error import TableError

BLANKS = " \u00a0\u202f\u2009"
BLANK = f"[{BLANKS}]?"
UNITS = "$€£¥%"
GROUPS = (",", ".", "'", "\u2019", *BLANKS)
CLOCK = r"((?:,? |T)(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?)?"
DAY, MONTH, YEAR = "(0?[1-9]|[12][0-9]|3[01])", "(0?[1-9]|1[0-2])", "([0-9]{4})"
FIELDS = {"d": DAY, "m": MONTH, "y": YEAR}
ORDERS = {"dmy": "day first", "mdy": "month first", "ymd": "year first"}
OFFSET = r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"


@dataclass(frozen=True)
class Format(ABC):
    """A way to write values. ``kind`` is its name in a run folder."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def pattern(self) -> str:
        """A regular expression for the whole of a value."""

    @abstractmethod
    def rewritten(self, text: pa.Array) -> pa.Array:
        """Values that have the form, in the plain way."""

    @abstractmethod
    def written_one(self, plain: str) -> str:
        """A plain value in this form."""

    @abstractmethod
    def described(self) -> str:
        """What the column holds, in words."""

    def holds(self, text: pa.Array) -> bool:
        """Whether every value of an array without gaps has the form."""
        return bool(pc.all(pc.match_substring_regex(text, self.pattern), min_count=0).as_py())

    def plain(self, text: pa.Array) -> pa.Array:
        """Values in the plain way; those that do not have the form stay."""
        found = pc.match_substring_regex(text, self.pattern)
        return pc.if_else(found, self.rewritten(pc.if_else(found, text, None)), text)

    def written(self, plain: pa.Array) -> pa.Array:
        """Plain values in this form."""
        values = (None if value is None else self.written_one(value) for value in plain.to_pylist())
        return pa.array(list(values), pa.string())

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class NumberFormat(Format):
    """Numbers with a decimal mark, a mark between thousands, and a unit before or after: 1.234,50 €.

    >>> format = NumberFormat(decimal=",", group=".", after=" €")
    >>> format.plain(pa.array(["1.234,50 €", "-7 €"])).to_pylist()
    ['1234.50', '-7']
    >>> format.written(pa.array(["1234567.5", "-7"])).to_pylist()
    ['1.234.567,5 €', '-7 €']
    """

    kind: ClassVar[str] = "number"

    decimal: str = "."
    group: str = ""
    before: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        units = all(not unit or unit.strip(BLANKS) in tuple(UNITS) for unit in (self.before, self.after))
        if self.decimal not in (".", ",") or self.group not in ("", *GROUPS) or self.group == self.decimal or not units:
            raise TableError(f"numbers are not written so: {asdict(self)}")

    @property
    def pattern(self) -> str:
        before, after = (re.escape(unit.strip(BLANKS)) for unit in (self.before, self.after))
        grouped = f"[1-9][0-9]{{0,2}}(?:{re.escape(self.group)}[0-9]{{3}})+|" if self.group else ""
        number = f"(?:{grouped}0|[1-9][0-9]*)(?:{re.escape(self.decimal)}[0-9]+)?"
        sign = "[+-]?" if not before else f"(?:[+-]?{before}{BLANK}|{before}{BLANK}[+-])"
        return f"^{sign}{number}{BLANK if after else ''}{after}$"

    def rewritten(self, text: pa.Array) -> pa.Array:
        dropped = f"[{re.escape(UNITS + BLANKS + self.group + '+')}]"
        return pc.replace_substring(pc.replace_substring_regex(text, dropped, ""), self.decimal, ".")

    def written_one(self, plain: str) -> str:
        found = re.fullmatch(r"([+-]?)([0-9]+)(?:\.([0-9]+))?", plain)
        if found is None:
            return plain
        sign, whole, fraction = found.groups()
        if self.group:
            whole = f"{int(whole):,}".replace(",", self.group)
        return f"{sign}{self.before}{whole}{self.decimal + fraction if fraction else ''}{self.after}"

    def described(self) -> str:
        return "numbers in percent" if "%" in self.before + self.after else "numbers"


@dataclass(frozen=True)
class DateFormat(Format):
    """Dates in figures, with or without a time of the day after them.

    >>> format = DateFormat("mdy", "/", padded=False)
    >>> format.plain(pa.array(["12/1/2024", "2/29/2024 7:05"])).to_pylist()
    ['2024-12-01', '2024-02-29 07:05']
    >>> format.written(pa.array(["2024-12-01", "2024-02-29 07:05:00"])).to_pylist()
    ['12/1/2024', '2/29/2024 07:05:00']
    """

    kind: ClassVar[str] = "date"

    order: str
    separator: str
    padded: bool = True

    def __post_init__(self) -> None:
        if self.order not in ORDERS or self.separator not in ("/", ".", "-") or not isinstance(self.padded, bool):
            raise TableError(f"dates are not written so: {asdict(self)}")

    @property
    def pattern(self) -> str:
        return f"^{re.escape(self.separator).join(FIELDS[field] for field in self.order)}{CLOCK}$"

    def rewritten(self, text: pa.Array) -> pa.Array:
        places = {field: i + 1 for i, field in enumerate(self.order)}
        date = "-".join(rf"\{places[field]}" for field in "ymd")
        text = pc.replace_substring_regex(text, self.pattern, rf"{date}\4")
        for short in (r"-([0-9])(-|[^0-9]|$)", r"-([0-9])([^0-9]|$)"):  # neighbours, one after the other
            text = pc.replace_substring_regex(text, short, r"-0\1\2")
        return pc.replace_substring_regex(pc.replace_substring_regex(text, "(?:,? |T)", " "), " ([0-9]):", r" 0\1:")

    def written_one(self, plain: str) -> str:
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(.*)", plain)
        if found is None:
            return plain
        fields = dict(zip("ymd", found.groups(), strict=False))
        if not self.padded:
            fields = {name: str(int(value)) for name, value in fields.items()}
        return self.separator.join(fields[field] for field in self.order) + found[4]

    def described(self) -> str:
        return f"dates, {ORDERS[self.order]}"


@dataclass(frozen=True)
class ZonedFormat(Format):
    """Times with an offset from UTC that is the same in all rows. ``offset`` is as it was written.

    >>> format = ZonedFormat("T", "+02:00")
    >>> format.zone
    '+02:00'
    >>> format.written(pa.array(["2024-12-31 23:59:59+0200"])).to_pylist()
    ['2024-12-31T23:59:59+02:00']
    """

    kind: ClassVar[str] = "zoned"

    between: str
    offset: str

    def __post_init__(self) -> None:
        if self.between not in ("T", " ") or not re.fullmatch(OFFSET, self.offset):
            raise TableError(f"times are not written so: {asdict(self)}")

    @property
    def pattern(self) -> str:
        return re.escape(self.offset) + "$"

    @property
    def zone(self) -> str:
        """The name that arrow has for it."""
        digits = re.sub("[^0-9]", "", self.offset).ljust(4, "0")
        return "UTC" if digits == "0000" else f"{self.offset[0]}{digits[:2]}:{digits[2:]}"

    def rewritten(self, text: pa.Array) -> pa.Array:
        return text

    def written_one(self, plain: str) -> str:
        return re.sub(OFFSET, self.offset, plain).replace(" ", self.between)

    def described(self) -> str:
        return f"times at the offset {self.offset}"


KINDS: dict[str, Callable[..., Format]] = {"number": NumberFormat, "date": DateFormat, "zoned": ZonedFormat}


def format_from_json(value: Any) -> Format:
    """The format that :meth:`Format.to_json` described. Trusts nothing."""
    if not isinstance(value, dict) or str(value.get("kind")) not in KINDS:
        raise TableError(f"a format should be one of {', '.join(KINDS)}, got {str(value)[:80]}")
    settings = {key: setting for key, setting in value.items() if key != "kind"}
    if not all(isinstance(setting, str | bool) for setting in settings.values()):
        raise TableError(f"a format cannot be made of {str(value)[:80]}")
    try:
        return KINDS[str(value["kind"])](**settings)
    except (TypeError, AttributeError) as error:
        raise TableError(f"a format cannot be made of this: {error}") from None
