"""What the columns of a file of text hold: whole numbers, numbers, truth values, dates or words, over all rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.source import Table

# Each ladder goes from the narrow to the wide; what fits a rung fits those above it. What falls off a ladder is words.
NUMBERS = (pa.int64(), pa.float64())
TRUTHS = (pa.bool_(),)
DATES = (pa.date32(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")))
ZONED = tuple(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns"))
LADDERS = (TRUTHS, NUMBERS, DATES, ZONED)

TRUTH = r"(?i)^(true|false)$"
# 007 is a code, not a number, and 0x1F a word
NOT_DECIMAL = r"^[+-]?0[0-9xX]"


class TypeOfText:
    """Watches a column of text go by. ``type`` is the narrowest type that fits all of it; null where all is missing."""

    def __init__(self) -> None:
        self._ladder: tuple[pa.DataType, ...] | None = None
        self._rung = 0
        self.type: pa.DataType = pa.null()

    def see(self, text: pa.Array) -> None:
        if self.type == pa.string():
            return
        text = text.drop_null()
        if not len(text):
            return
        if self._ladder is None:
            self._ladder = next((ladder for ladder in LADDERS if any(fits(text, type) for type in ladder)), ())
        while self._rung < len(self._ladder) and not fits(text, self._ladder[self._rung]):
            self._rung += 1
        self.type = self._ladder[self._rung] if self._rung < len(self._ladder) else pa.string()


def fits(text: pa.Array, type: pa.DataType) -> bool:
    """Whether every text reads as a value of the type."""
    if pa.types.is_boolean(type):
        return bool(pc.all(pc.match_substring_regex(text, TRUTH)).as_py())
    if type in NUMBERS and pc.any(pc.match_substring_regex(text, NOT_DECIMAL)).as_py():
        return False
    try:
        read_text(text, type)
    except pa.ArrowInvalid:
        return False
    return True


def read_text(text: pa.Array, type: pa.DataType) -> pa.Array:
    """Text as values of the type; raises ArrowInvalid at the first that is not one."""
    if type in NUMBERS:
        text = pc.replace_substring_regex(text, r"^\+", "")
    return pc.cast(text, type)


def types_of_text(table: Table, columns: list[str]) -> dict[str, pa.DataType]:
    """The types of the columns of a file of text, from one pass over it."""
    seen = {name: TypeOfText() for name in columns}
    for batch in table.batches(columns):
        for name in columns:
            seen[name].see(batch.column(name))
    return {name: column.type for name, column in seen.items()}
