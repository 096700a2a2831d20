"""POWER: a household's electricity, minute by minute over four years (6 columns).

The text has nine columns (date; time; seven readings). The published array holds its complete rows as eight: active
power, reactive power, voltage, intensity, three sub-meters, minute of the day. Readings are rounded to a step, so each
gets uniform noise of that step's size, which makes it continuous.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cubicflow.data.benchmarks.benchmark_table import (
    ARCHIVE,
    Form,
    Rows,
    Splits,
    one_file,
    split_and_normalise,
)
from cubicflow.data.benchmarks.text import open_text, parse_numbers, plain_or_packed

ACTIVE_POWER, REACTIVE_POWER, VOLTAGE, INTENSITY, METER_1, METER_2, METER_3, MINUTE = range(8)


def read_text(path: Path) -> Rows:
    """The complete rows of household_power_consumption.txt as the published array's eight columns."""
    with open_text(path) as file:
        header = file.readline()
        if not header.startswith("Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"):
            raise ValueError(f"{path} is not household_power_consumption.txt: its first line is {header[:80]!r}")
        return parse_numbers(_complete_rows(file), path, delimiter=";")


def _complete_rows(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.isspace():
            continue
        _, time, readings = line.rstrip("\n").split(";", 2)
        if "?" in readings or readings.endswith(";"):  # missing: "?;?;?;?;?;?;"
            continue
        hour, minute, _ = time.split(":")
        yield f"{readings};{60 * int(hour) + int(minute)}"


def prepare(rows: Rows, source: str) -> Splits:
    """Shuffle, drop two columns, add noise, split, normalise: all randomness from RandomState(42), in this order."""
    if rows.shape[1] != 8:
        raise ValueError(f"{source} has {rows.shape[1]} columns, expected 8")
    random = np.random.RandomState(42)  # the published stream
    n = len(rows)
    rows = rows[random.permutation(n)]  # the same draws as shuffling the rows in place
    voltage = 0.01 * random.rand(n, 1)
    active_power = 0.001 * random.rand(n, 1)
    meters = random.rand(n, 3)
    rows = rows[:, [ACTIVE_POWER, VOLTAGE, METER_1, METER_2, METER_3, MINUTE]]
    rows += np.hstack([active_power, voltage, meters, np.zeros((n, 1))])
    return split_and_normalise(rows, source)


_NAMES = (
    *plain_or_packed("power/household_power_consumption.txt"),
    "power/household_power_consumption.head.txt.xz",  # a part of the file: its table is labelled partial
)

FORMS = (
    Form("published", (("power/data.npy",),), ARCHIVE, one_file("power", prepare)),
    Form("raw", (_NAMES,), "https://archive.ics.uci.edu/dataset/235", one_file("power", prepare, read_text)),
)
