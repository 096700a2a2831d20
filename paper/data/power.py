"""POWER: electricity of a household, minute by minute over four years (6 columns).

The text has nine columns: date, time and seven readings. The published array holds the complete rows in eight columns:
active power, reactive power, voltage, intensity, three sub-meters, minute of the day. Readings are rounded to a step.
Uniform noise of the size of the step makes them continuous.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paper.data.benchmark_table import (
    ARCHIVE,
    Form,
    Rows,
    Splits,
    single_file_reader,
    split_and_normalise,
)
from paper.data.text import open_text, parse_numbers, plain_or_packed

ACTIVE_POWER, REACTIVE_POWER, VOLTAGE, INTENSITY, METER_1, METER_2, METER_3, MINUTE = range(8)


def read_text(path: Path) -> Rows:
    """Return the complete rows of household_power_consumption.txt in the eight columns of the published array."""
    with open_text(path) as file:
        header = file.readline()
        if not header.startswith("Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"):
            raise ValueError(
                f"{path} is not household_power_consumption.txt: its first line is {header[:80]!r}; download it again"
            )
        return parse_numbers(_complete_rows(file), path, delimiter=";")


def _complete_rows(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.isspace():
            continue
        _, time, readings = line.rstrip("\n").split(";", 2)
        if "?" in readings or readings.endswith(";"):  # a row of missing values is "?;?;?;?;?;?;"
            continue
        hour, minute, _ = time.split(":")
        yield f"{readings};{60 * int(hour) + int(minute)}"


def prepare(rows: Rows, source: str) -> Splits:
    """Shuffle, drop two columns, add noise, split and normalise. All random numbers come from RandomState(42)."""
    if rows.shape[1] != 8:
        raise ValueError(f"{source} has {rows.shape[1]} columns, expected 8; download the file again")
    random = np.random.RandomState(42)  # the published seed; the order of the draws matters
    n = len(rows)
    rows = rows[random.permutation(n)]  # draws the same numbers as shuffling the rows in place
    voltage = 0.01 * random.rand(n, 1)
    active_power = 0.001 * random.rand(n, 1)
    meters = random.rand(n, 3)
    rows = rows[:, [ACTIVE_POWER, VOLTAGE, METER_1, METER_2, METER_3, MINUTE]]
    rows += np.hstack([active_power, voltage, meters, np.zeros((n, 1))])
    return split_and_normalise(rows, source)


_NAMES = (
    *plain_or_packed("power/household_power_consumption.txt"),
    "power/household_power_consumption.head.txt.xz",  # the first part of the file: gives a partial table
)

FORMS = (
    Form("published", (("power/data.npy",),), ARCHIVE, single_file_reader("power", prepare)),
    Form("raw", (_NAMES,), "https://archive.ics.uci.edu/dataset/235", single_file_reader("power", prepare, read_text)),
)
