"""The hash of the C sources. The compiled library contains this hash. ``setup.py`` runs this file, so it imports no
torch."""

from __future__ import annotations

import hashlib
from pathlib import Path


def source_hash(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of all C files in a folder."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
