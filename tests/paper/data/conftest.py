"""Fixtures of the loaders: an empty cache and a local web server."""

from __future__ import annotations

from tests.helpers.web_site import cache, site

__all__ = ["cache", "site"]
