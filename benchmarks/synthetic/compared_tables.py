"""The five tables of the generator comparison: their files, their columns of words, and their training and test rows.

Adult comes with a training and a test file. In the other tables, a random nine tenths of the rows are training rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TRAINING_SHARE = 0.9
SEED = 0


@dataclass(frozen=True)
class CompareOn:
    """A table: its file (or its training and test files), the columns with words, truth values or codes, and the
    columns shown in its picture."""

    name: str
    files: tuple[str, ...]
    words: tuple[str, ...]
    shown: tuple[str, str, str]

    def write_parts(self, source: Path, folder: Path) -> None:
        """Write train.csv, test.csv and table.json to ``folder``, from the table's files in ``source``."""
        folder.mkdir(parents=True, exist_ok=True)
        tables = [read_cells(source / name) for name in self.files]
        header = tables[0][0]
        missing = {*self.words, *self.shown} - set(header)
        if missing:
            raise ValueError(f"{self.files[0]} lacks the columns {', '.join(sorted(missing))}")
        if len(tables) == 2:
            train, test = (rows[1:] for rows in tables)
        else:
            train, test = split_rows(tables[0][1:])
        for name, rows in (("train", train), ("test", test)):
            with (folder / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([header, *rows])
        (folder / "table.json").write_text(json.dumps({"words": self.words, "shown": self.shown}))


TABLES = {
    table.name: table
    for table in (
        CompareOn(
            "penguins", ("penguins.csv",), ("species", "island", "sex"), ("bill_length_mm", "body_mass_g", "island")
        ),
        CompareOn(
            "shoppers",
            ("shoppers.csv.gz",),
            (
                "Month",
                "OperatingSystems",
                "Browser",
                "Region",
                "TrafficType",
                "VisitorType",
                "Weekend",
                "Revenue",
            ),
            ("ProductRelated_Duration", "ExitRates", "TrafficType"),
        ),
        CompareOn("magic", ("magic.csv.gz",), ("class",), ("Width", "Conc1", "Dist")),
        CompareOn(
            "adult",
            ("adult-train.csv.gz", "adult-test.csv.gz"),
            (
                "workclass",
                "education",
                "marital-status",
                "occupation",
                "relationship",
                "race",
                "sex",
                "native-country",
                "income",
            ),
            ("age", "hours-per-week", "occupation"),
        ),
        CompareOn("diamonds", ("diamonds.csv",), ("cut", "color", "clarity"), ("carat", "depth", "price")),
    )
}


def read_cells(path: Path) -> list[list[str]]:
    """Return the header and the rows of a CSV file as text. The file may be gzipped."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [row for row in csv.reader(io.StringIO(data.decode())) if row]


def split_rows(rows: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Split rows into nine tenths for training and one tenth for the test, both in random order.

    >>> train, test = split_rows([[str(i)] for i in range(20)])
    >>> len(train), len(test), len({row[0] for row in train + test})
    (18, 2, 20)
    """
    order = np.random.default_rng(SEED).permutation(len(rows))
    first = round(TRAINING_SHARE * len(rows))
    return [rows[i] for i in order[:first]], [rows[i] for i in order[first:]]
