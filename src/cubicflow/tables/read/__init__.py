"""Readers: bytes of any origin to tables of text or of Arrow values. No reader knows the kinds of columns."""

from __future__ import annotations

from cubicflow.tables.arrow_types import is_readable, without_views
from cubicflow.tables.read.fetched import file_system, without_secrets
from cubicflow.tables.read.file_checks import changed, check_unpacked, fingerprint_of_files
from cubicflow.tables.read.places import BUILT_IN, URL, URL_AS_PATH, is_path
from cubicflow.tables.read.table import Table, Text, check_names, in_memory

__all__ = [
    "BUILT_IN",
    "URL",
    "URL_AS_PATH",
    "Table",
    "Text",
    "changed",
    "check_names",
    "check_unpacked",
    "file_system",
    "fingerprint_of_files",
    "in_memory",
    "is_path",
    "is_readable",
    "without_secrets",
    "without_views",
]
