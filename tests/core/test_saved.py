"""Checked records: what a dataclass writes is read again, and every wrong value is named."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import pytest

from cubicflow.saved import LARGEST, Count, Range, SavedValueError, from_json


@dataclass
class Part:
    share: Annotated[float, Range(0, 1)]


@dataclass
class Record:
    count: Count
    kind: Literal["a", "b", 3]
    label: str | None
    part: Part
    parts: list[Part]
    pair: tuple[int, ...]
    names: dict[str, bool]
    ends: tuple[float, str]
    more: list[float] = field(default_factory=list)


GOOD = Record(3, "a", None, Part(0.5), [Part(0.0), Part(1.0)], (1, -2), {"x": True}, (0.5, "end"), [1.5, math.pi])


def test_what_is_written_is_read() -> None:
    assert from_json(Record, json.loads(json.dumps(asdict(GOOD)))) == GOOD
    plain = {name: value for name, value in json.loads(json.dumps(asdict(GOOD))).items() if name != "more"}
    assert from_json(Record, {**plain, "pair": [1], "unknown": 1}).more == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"count": -1}, "'-1' for count"),
        ({"count": LARGEST + 1}, "for count"),
        ({"count": True}, "'True' for count"),
        ({"count": 3.0}, "'3.0' for count"),
        ({"kind": "c"}, "'c' for kind"),
        ({"kind": 3.0}, "'3.0' for kind"),
        ({"kind": []}, "for kind"),
        ({"label": 1}, "'1' for label"),
        ({"part": {"share": 1.5}}, "'1.5' for share, in part"),
        ({"part": {"share": math.nan}}, "'nan' for share, in part"),
        ({"part": {"share": 10**400}}, "for share, in part"),
        ({"part": {}}, "lacks share, in part"),
        ({"part": 7}, "is a int, not a set of named values, in part"),
        ({"parts": [{"share": 0}, {"share": "0"}]}, r"'0' for share, in parts\[1\]"),
        ({"pair": 5}, "'5' for pair"),
        ({"pair": [1, None]}, r"'None' for pair\[1\]"),
        ({"names": {"x": 1}}, r"'1' for names\['x'\]"),
        ({"ends": [0.5]}, r"for ends"),
        ({"ends": ["end", 0.5]}, r"'end' for ends\[0\]"),
    ],
)
def test_a_wrong_value_is_named(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(SavedValueError, match=wrong):
        from_json(Record, {**json.loads(json.dumps(asdict(GOOD))), **change})


def test_missing_values_are_named() -> None:
    with pytest.raises(SavedValueError, match=r"^lacks kind, label, part, parts, pair, names, ends$"):
        from_json(Record, {"count": 1})
    with pytest.raises(SavedValueError, match=r"^is a list"):
        from_json(Record, [])


def test_further_values_are_left_out_or_refused() -> None:
    assert from_json(Part, {"share": 1, "more": 2}) == Part(1.0)
    with pytest.raises(SavedValueError, match="has the unknown values more"):
        from_json(Part, {"share": 1, "more": 2}, exact=True)


def test_a_field_may_be_saved_under_another_name() -> None:
    @dataclass
    class Renamed:
        notations: list[int] = field(default_factory=list, metadata={"key": "formats"})

    assert from_json(Renamed, {"formats": [1]}, exact=True).notations == [1]
    with pytest.raises(SavedValueError, match="for formats"):
        from_json(Renamed, {"formats": 1})
