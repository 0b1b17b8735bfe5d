"""Read docstrings in Google's style: what a function does, and what its parameters mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|Warnings?|See Also|Todo):\s*"
)
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
_ARGUMENTS = {"Args", "Arguments", "Parameters"}


class Described(NamedTuple):
    """What a docstring says.

    Attributes:
        text: what stands before its first section, on one line for each paragraph.
        parameters: the text of each, on one line.
    """

    text: str
    parameters: Mapping[str, str]


def described(docstring: str | None) -> Described:
    """Return what a docstring says, which has been freed from its indentation by `inspect.getdoc`."""
    lines = (docstring or "").splitlines()
    begins = [number for number, line in enumerate(lines) if _SECTION.fullmatch(line)]
    text = lines[: begins[0]] if begins else lines
    parameters: dict[str, str] = {}
    for begin, end in pairwise([*begins, len(lines)]):
        if lines[begin].partition(":")[0] in _ARGUMENTS:
            parameters |= _entries(lines[begin + 1 : end])
    paragraphs = "\n".join(text).strip().split("\n\n")
    return Described("\n".join(" ".join(paragraph.split()) for paragraph in paragraphs), parameters)


def _entries(lines: list[str]) -> dict[str, str]:
    """Return the entries of a section: each begins at its least indentation, and goes on further in."""
    told = [line for line in lines if line.strip()]
    least = min((len(line) - len(line.lstrip()) for line in told), default=0)
    found: dict[str, list[str]] = {}
    name = ""
    for line in told:
        entry = _ENTRY.fullmatch(line[least:]) if line[least] != " " else None
        if entry is not None:
            name = entry[1]
            found[name] = [entry[2]]
        elif name:
            found[name].append(line.strip())
    return {name: " ".join(parts).strip() for name, parts in found.items()}
