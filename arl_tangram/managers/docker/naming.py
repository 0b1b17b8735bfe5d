"""How images and containers are named in requests to a daemon. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote


def split_reference(ref: str) -> tuple[str, str]:
    """Return the name and the tag of an image; with a digest, all of it and no tag."""
    if "@" in ref:
        return ref, ""
    name, colon, tag = ref.rpartition(":")
    if not colon or "/" in tag:  # the colon, if any, stands before the port of a registry
        return ref, "latest"
    return name, tag


def quoted(ref: str) -> str:
    """Return the name of an image as a part of a path."""
    return quote(ref, safe="/:@")


def label_filter(labels: Mapping[str, str]) -> list[str]:
    """Return the filter for containers that have all of these labels; an empty value stands for any."""
    return [f"{name}={value}" if value else name for name, value in labels.items()]
