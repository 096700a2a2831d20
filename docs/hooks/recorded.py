"""Tables of recorded figures, read from their CSV files when the site is built.

A page marks a table by a block of this kind, in YAML:

    ```recorded
    file: results/universality.csv
    where: {K: [2, 16]}
    by: [family]
    across: K
    cells: {"K = {}": largest_error max .1e}
    ```

``where`` keeps the rows with these values. ``by`` makes one line for each combination of values. A cell names a column
of the file, the function that reduces several values to one (sum, max, min, or only, which allows a single value), and
a format. With ``across``, there is one such cell for every value of that column; the heading names the value. Without
``cells``, the table shows every column unchanged.

``file`` is a path in the repository. A page links to a record by its path from the page, as in
``[The file](../results/scale.csv)``. The site has a copy of such a record, at the same path from the root.

The hook also adds the pages of docs/results to the navigation, and the pages of the rerun of the paper, which
``python -m paper`` writes beside its records.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
RERUN = {"README.md": "The paper, rerun", "table-1/table-1.md": "The paper's table, every score"}  # pages in results/
RERUN_FOLDER = "results/paper"  # on the site
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
FILE_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)(?![^)]*\.md\))[^)]*\)")
RECORD_LINK = re.compile(r"\]\(((?:\.\./)+)(results/[^)#]+\.(?:csv|png))\)")
BLOCK = re.compile(r"^```recorded\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = "Results"
Row = dict[str, str]


def on_config(config: Any) -> None:
    """Add every page of results to the navigation."""
    pages = sorted(Path(config["docs_dir"], "results").glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
    rerun = [{title: f"{RERUN_FOLDER}/{name}"} for name, title in RERUN.items() if (ROOT / "results" / name).exists()]
    for part in config["nav"]:
        if SECTION in part:
            part[SECTION] = [*(f"results/{page.name}" for page in pages), *rerun]


def on_files(files: Files, *, config: Any) -> None:
    """Add the records that pages link to, the page of the paper's rerun, and its pictures."""
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {name for file in pages for _, name in RECORD_LINK.findall(file.content_string)}
    for name in sorted(linked):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in (ROOT / "results" / name for name in RERUN):
        for path in (page, *_pictures(page)) if page.exists() else ():
            uri = f"{RERUN_FOLDER}/{path.relative_to(ROOT / 'results').as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))


def _pictures(page: Path) -> list[Path]:
    return [page.parent / name for name in PICTURE.findall(page.read_text(encoding="utf-8"))]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace each block by its table, and the address of each record by its address on the site."""
    if page.file.src_uri.startswith(f"{RERUN_FOLDER}/"):
        return FILE_LINK.sub(r"\1", markdown)  # remove links to files that are not part of the site
    markdown = RECORD_LINK.sub(lambda found: f"]({found[1].removeprefix('../')}{found[2]})", markdown)
    return BLOCK.sub(lambda found: table(yaml.safe_load(found[1])), markdown)


def table(wanted: dict[str, Any]) -> str:
    """Return the Markdown table of a block."""
    with (ROOT / wanted["file"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    for column, values in wanted.get("where", {}).items():
        kept = [str(value) for value in values]
        rows = [row for row in rows if row[column] in kept]
    if not rows:
        raise PluginError(f"{wanted['file']}: no row has {wanted.get('where')}")
    if "cells" not in wanted:
        return _markdown(list(rows[0]), [list(row.values()) for row in rows])
    by = wanted["by"]
    across = wanted.get("across")
    columns = list(dict.fromkeys(row[across] for row in rows)) if across else [None]
    head, lines = list(by), []
    for key in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        line = list(key)
        for value in columns:
            same = [row for row in rows if tuple(row[n] for n in by) == key and (not across or row[across] == value)]
            for heading, cell in wanted["cells"].items():
                line.append(_cell(same, cell) if same else "")
                if not lines:
                    head.append(heading.format(value))
        lines.append(line)
    return _markdown(head, lines, first_number=len(by))


def _cell(rows: list[Row], cell: str) -> str:
    column, how, style = cell.split(maxsplit=2)
    values = [float(row[column]) for row in rows]
    if how == "only" and len(values) > 1:
        raise PluginError(f"{column}: {len(values)} rows for one cell; name more columns in by: or where:")
    value = {"sum": sum, "max": max, "min": min, "only": max}[how](values)
    return format(int(value) if value.is_integer() and style == "," else value, style)


def _markdown(head: list[str], lines: list[list[str]], first_number: int = 1) -> str:
    rule = ["---" if i < first_number else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"
