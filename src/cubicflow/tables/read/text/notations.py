"""Notations of numbers and dates other than the plain 1234.5 and 2024-12-31: conversion to plain text and back.

A notation rewrites the values that match its pattern. Other values stay as they are, so plain values are read as well.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.saved import Range
from cubicflow.tables.arrow_types import ZONED
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
class Notation(ABC):
    """A way to write values. ``kind`` is the name of the notation in a run folder, ``saved.from_json`` reads it."""

    kind: str

    @property
    @abstractmethod
    def pattern(self) -> str:
        """A regular expression that matches a whole value."""

    @abstractmethod
    def rewrite_matches(self, text: pa.Array) -> pa.Array:
        """Return values that match the pattern as plain text."""

    @abstractmethod
    def write_value(self, plain: str) -> str:
        """Return a plain value in this notation."""

    @abstractmethod
    def describe(self) -> str:
        """Return a phrase for the user that describes the values."""

    def matches_all(self, text: pa.Array) -> bool:
        """Return whether every value of an array without missing values matches the pattern."""
        return bool(pc.all(pc.match_substring_regex(text, self.pattern), min_count=0).as_py())

    def to_plain(self, text: pa.Array) -> pa.Array:
        """Return the values as plain text. Values that do not match the pattern stay as they are."""
        matches = pc.match_substring_regex(text, self.pattern)
        return pc.if_else(matches, self.rewrite_matches(pc.if_else(matches, text, None)), text)

    def from_plain(self, plain: pa.Array) -> pa.Array:
        """Return plain values in this notation."""
        values = (None if value is None else self.write_value(value) for value in plain.to_pylist())
        return pa.array(list(values), pa.string())

    def plain_type(self, narrowest: pa.DataType) -> pa.DataType:
        """Return the type of a column whose plain values all fit the type ``narrowest``."""
        return narrowest

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class NumberNotation(Notation):
    """Numbers with a decimal mark, a thousands separator, and a unit before or after the number: 1.234,50 €.

    ``decimals`` is the least number of digits after the decimal mark with which numbers are written.

    >>> notation = NumberNotation(decimal=",", group=".", after=" €")
    >>> notation.to_plain(pa.array(["1.234,50 €", "-7 €"])).to_pylist()
    ['1234.50', '-7']
    >>> notation.from_plain(pa.array(["1234567.5", "-7"])).to_pylist()
    ['1.234.567,5 €', '-7 €']
    >>> NumberNotation(",", after=" €", decimals=2).from_plain(pa.array(["68.4"])).to_pylist()
    ['68,40 €']
    """

    kind: Literal["number"] = field(default="number", kw_only=True)
    decimal: str = "."
    group: str = ""
    before: str = ""
    after: str = ""
    decimals: Annotated[int, Range(0, 30)] = 0

    def __post_init__(self) -> None:
        units = all(not unit or unit.strip(BLANKS) in tuple(UNITS) for unit in (self.before, self.after))
        if self.decimal not in (".", ",") or self.group not in ("", *GROUPS) or self.group == self.decimal or not units:
            raise TableError(f"invalid notation of numbers: {asdict(self)}")

    @property
    def pattern(self) -> str:
        before, after = (re.escape(unit.strip(BLANKS)) for unit in (self.before, self.after))
        grouped = f"[1-9][0-9]{{0,2}}(?:{re.escape(self.group)}[0-9]{{3}})+|" if self.group else ""
        number = f"(?:{grouped}0|[1-9][0-9]*)(?:{re.escape(self.decimal)}[0-9]+)?"
        sign = "[+-]?" if not before else f"(?:[+-]?{before}{BLANK}|{before}{BLANK}[+-])"
        return f"^{sign}{number}{BLANK if after else ''}{after}$"

    def rewrite_matches(self, text: pa.Array) -> pa.Array:
        dropped = f"[{re.escape(UNITS + BLANKS + self.group + '+')}]"
        return pc.replace_substring(pc.replace_substring_regex(text, dropped, ""), self.decimal, ".")

    def write_value(self, plain: str) -> str:
        found = re.fullmatch(r"([+-]?)([0-9]+)(?:\.([0-9]+))?", plain)
        if found is None:
            return plain
        sign, whole, fraction = found.groups()
        if self.group:
            whole = f"{int(whole):,}".replace(",", self.group)
        fraction = (fraction or "").ljust(self.decimals, "0")
        return f"{sign}{self.before}{whole}{self.decimal + fraction if fraction else ''}{self.after}"

    def describe(self) -> str:
        return "numbers in percent" if "%" in self.before + self.after else "numbers"


@dataclass(frozen=True)
class DateNotation(Notation):
    """Dates in digits, with or without a time of day.

    >>> notation = DateNotation("mdy", "/", padded=False)
    >>> notation.to_plain(pa.array(["12/1/2024", "2/29/2024 7:05"])).to_pylist()
    ['2024-12-01', '2024-02-29 07:05']
    >>> notation.from_plain(pa.array(["2024-12-01", "2024-02-29 07:05:00"])).to_pylist()
    ['12/1/2024', '2/29/2024 07:05:00']
    """

    kind: Literal["date"] = field(default="date", kw_only=True)
    order: str
    separator: str
    padded: bool = True

    def __post_init__(self) -> None:
        if self.order not in ORDERS or self.separator not in ("/", ".", "-") or not isinstance(self.padded, bool):
            raise TableError(f"invalid notation of dates: {asdict(self)}")

    @property
    def pattern(self) -> str:
        return f"^{re.escape(self.separator).join(FIELDS[field] for field in self.order)}{CLOCK}$"

    def rewrite_matches(self, text: pa.Array) -> pa.Array:
        groups = {field: i + 1 for i, field in enumerate(self.order)}
        date = "-".join(rf"\{groups[field]}" for field in "ymd")
        text = pc.replace_substring_regex(text, self.pattern, rf"{date}\4")
        # two passes: matches of one pass cannot overlap, and the month and the day share a hyphen
        for short in (r"-([0-9])(-|[^0-9]|$)", r"-([0-9])([^0-9]|$)"):
            text = pc.replace_substring_regex(text, short, r"-0\1\2")
        return pc.replace_substring_regex(pc.replace_substring_regex(text, "(?:,? |T)", " "), " ([0-9]):", r" 0\1:")

    def write_value(self, plain: str) -> str:
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(.*)", plain)
        if found is None:
            return plain
        fields = dict(zip("ymd", found.groups(), strict=False))
        if not self.padded:
            fields = {name: str(int(value)) for name, value in fields.items()}
        return self.separator.join(fields[field] for field in self.order) + found[4]

    def describe(self) -> str:
        return f"dates, {ORDERS[self.order]}"


@dataclass(frozen=True)
class ZonedNotation(Notation):
    """Times with the same offset from UTC in all rows.

    ``offset`` is the offset as the file writes it. ``between`` is the mark between date and time.

    >>> notation = ZonedNotation("T", "+02:00")
    >>> notation.zone
    '+02:00'
    >>> notation.from_plain(pa.array(["2024-12-31 23:59:59+0200"])).to_pylist()
    ['2024-12-31T23:59:59+02:00']
    """

    kind: Literal["zoned"] = field(default="zoned", kw_only=True)
    between: str
    offset: str

    def __post_init__(self) -> None:
        if self.between not in ("T", " ") or not re.fullmatch(OFFSET, self.offset):
            raise TableError(f"invalid notation of times: {asdict(self)}")

    @property
    def pattern(self) -> str:
        return re.escape(self.offset) + "$"

    @property
    def zone(self) -> str:
        """The name of the time zone in arrow."""
        digits = re.sub("[^0-9]", "", self.offset).ljust(4, "0")
        return "UTC" if digits == "0000" else f"{self.offset[0]}{digits[:2]}:{digits[2:]}"

    def rewrite_matches(self, text: pa.Array) -> pa.Array:
        return text

    def plain_type(self, narrowest: pa.DataType) -> pa.DataType:
        return pa.timestamp(narrowest.unit, self.zone) if narrowest in ZONED else narrowest

    def write_value(self, plain: str) -> str:
        return re.sub(OFFSET, self.offset, plain).replace(" ", self.between)

    def describe(self) -> str:
        return f"times at the offset {self.offset}"


AnyNotation = NumberNotation | DateNotation | ZonedNotation
