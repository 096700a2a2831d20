"""POWER: electricity of a household, minute by minute over four years (6 columns).

The text has nine columns: date, time and seven readings. The published array holds the complete rows in eight columns:
active power, reactive power, voltage, intensity, three sub-meters, minute of the day. Readings are rounded to a step.
Uniform noise of the size of the step makes them continuous.

The splits depend on every row and on their order, so a file that was cut short or changed is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paper.data.benchmark_table import (
    ARCHIVE,
    Form,
    Rows,
    Splits,
    load_rows,
    single_file_reader,
    split_and_normalise,
)
from paper.data.text import open_text, parse_numbers, plain_or_packed

ACTIVE_POWER, REACTIVE_POWER, VOLTAGE, INTENSITY, METER_1, METER_2, METER_3, MINUTE = range(8)
HEAD = "power/household_power_consumption.head.txt.xz"  # the first part of the file: gives a partial table
COMPLETE_ROWS = 2_049_280
FINGERPRINT = "5e662209e0eb6e1af7d822a2e123259114cdcb5d0602a9476caa8363f15faf4f"  # of the complete rows, in their order


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


def fingerprint(rows: Rows) -> str:
    """Return the SHA-256 of the rows in whole thousandths, the step of the file, as int32.

    It does not depend on line ends, nor on the dates, which are not read.
    """
    digest = hashlib.sha256()
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged number may be too large for an int32
        for start in range(0, len(rows), 65_536):
            digest.update(np.rint(rows[start : start + 65_536] * 1000).astype("<i4").tobytes())
    return digest.hexdigest()


def read_whole_text(path: Path) -> Rows:
    """Return the rows of the text file. Raises ValueError if they are not the published rows, in their order.

    The first part of the file is read under its own name only.
    """
    rows = read_text(path)
    if path.name == Path(HEAD).name:
        return rows
    _check_count(rows, path)
    if (found := fingerprint(rows)) != FINGERPRINT:
        raise ValueError(
            f"{path} has the expected {COMPLETE_ROWS:,} rows, but some values or their order were changed: the SHA-256 "
            f"of the rows in thousandths is {found}, expected {FINGERPRINT}; download it again"
        )
    return rows


def read_array(path: Path) -> Rows:
    """Return the rows of the published array. Raises ValueError if their number is not the published one."""
    rows = load_rows(path)
    _check_count(rows, path)
    return rows


def _check_count(rows: Rows, path: Path) -> None:
    if len(rows) != COMPLETE_ROWS:
        raise ValueError(
            f"{path} has {len(rows):,} complete rows, expected {COMPLETE_ROWS:,}: it was cut short or changed; "
            "download it again"
        )


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


_NAMES = (*plain_or_packed("power/household_power_consumption.txt"), HEAD)

FORMS = (
    Form("published", (("power/data.npy",),), ARCHIVE, single_file_reader("power", prepare, read_array)),
    Form(
        "raw",
        (_NAMES,),
        "https://archive.ics.uci.edu/dataset/235",
        single_file_reader("power", prepare, read_whole_text),
    ),
)
