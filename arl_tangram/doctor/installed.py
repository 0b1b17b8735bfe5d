"""Which version of a library is installed."""

from __future__ import annotations

import importlib.metadata


def version_of(name: str) -> str | None:
    """Return the version of a distribution, or None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
