"""Read the code blocks of the README and of the documentation, so that they can be run.

Two languages are run, `python` and `bash`; a block of another kind must be one that nobody would paste and run. A block
is left out only by a comment on the line above it that gives the reason: `<!-- not run: needs a GPU -->`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
# These need VeRL or TRL: tests/trainers runs them.
OF_TRAINERS = ("docs/how-to/use-trl.md", "docs/how-to/use-verl.md")
RUN = frozenset({"python", "bash"})
SHOWN = frozenset({"text", "json", "toml", "yaml", "diff", "mermaid"})

_FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*).*")
_NOT_RUN = re.compile(r"\s*<!--\s*not run\b:?\s*(?P<reason>.*?)\s*-->\s*")


class DocumentError(ValueError):
    """A page cannot be read as this module's rules say."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `line` is the number of its first line of code, `not_run` the reason for leaving it out."""

    page: Path
    line: int
    language: str
    source: str
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the README and every page of the documentation."""
    return [README, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order.

    Raises:
        DocumentError: an unknown language, a fence that is not closed, or a `not run` without a reason or a block.
    """
    found: list[Block] = []
    lines = iter(enumerate(page.read_text().splitlines(), start=1))
    not_run: str | None = None
    for number, line in lines:
        if marker := _NOT_RUN.fullmatch(line):
            not_run = marker["reason"]
            if not not_run:
                raise DocumentError(f"{page}:{number}: say why: <!-- not run: reason -->")
            continue
        if fence := _FENCE.fullmatch(line):
            if fence["language"] not in RUN | SHOWN:
                allowed = ", ".join(sorted(RUN | SHOWN))
                raise DocumentError(f"{page}:{number}: a block of {fence['language']!r}; the languages are {allowed}")
            code: list[str] = []
            for _, inner in lines:
                if inner.strip() == fence["fence"]:
                    break
                code.append(inner.removeprefix(fence["indent"]))
            else:
                raise DocumentError(f"{page}:{number}: this block has no end")
            found.append(Block(page, number + 1, fence["language"], "\n".join(code) + "\n", not_run))
        elif not_run is not None:
            raise DocumentError(f"{page}:{number}: `not run` must stand on the line above a block")
        not_run = None
    return found


def script(page: Path) -> str:
    """Return the Python blocks of a page as one program in which every line keeps its number on the page."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python" and block.not_run is None:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.source.splitlines()
    return "\n".join(lines) + "\n"


def shell(page: Path) -> list[Block]:
    """Return the shell blocks of a page that are to be run."""
    return [block for block in blocks(page) if block.language == "bash" and block.not_run is None]


def not_run() -> list[Block]:
    """Return every block of every page that is left out."""
    return [block for page in pages() for block in blocks(page) if block.not_run is not None]
