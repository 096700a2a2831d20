"""Every Python example of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.splitlines()[-1][:40] for example in EXAMPLES])
def test_example_runs(example: str) -> None:
    names: dict[str, object] = {}
    exec(compile(example, str(README), "exec"), names)
    assert "torch" in names


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (README.parent / target).exists()]
    assert targets
    assert not missing
