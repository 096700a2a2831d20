"""Print a random draw of docstrings, comments, messages and pages: ``python -m tests.reading SEED``."""

from __future__ import annotations

import argparse
import random
import sys

from .prose import ROOT, Passage, comments, docstrings, messages, pages


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reading", description=__doc__)
    parser.add_argument("seed", type=int, help="the same seed draws the same passages from the same sources")
    parser.add_argument("--passages", type=int, default=10, help="docstrings, comments and messages of each")
    parser.add_argument("--pages", type=int, default=2)
    asked = parser.parse_args()
    drawn = random.Random(asked.seed)
    kinds = {"Docstrings": docstrings(), "Comments": comments(), "Messages": messages()}
    lines = []
    for title, passages in kinds.items():
        lines.append(f"## {title}: {asked.passages} of {len(passages)}\n")
        lines += [_shown(passage) for passage in drawn.sample(passages, asked.passages)]
    found = pages()
    lines.append(f"## Pages: {asked.pages} of {len(found)}\n")
    lines += [str(page.relative_to(ROOT)) for page in drawn.sample(found, asked.pages)]
    sys.stdout.write("\n".join(lines) + "\n")


def _shown(passage: Passage) -> str:
    return f"### {passage.file.relative_to(ROOT)}:{passage.line}\n{passage.text}\n"


if __name__ == "__main__":
    main()
