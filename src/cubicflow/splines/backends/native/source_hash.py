"""The hash of the C sources, which the compiled library carries. ``setup.py`` runs this file: it imports no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path


def source_hash(folder: Path) -> str:
    """Of the names and contents of all C files in a folder."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
