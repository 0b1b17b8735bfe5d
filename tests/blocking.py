"""Name the places of the package that may block the event loop for a moment, each with its reason.

Everywhere else a blocking call made by arl_tangram on a running loop fails the test (blockbuster).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from blockbuster import blockbuster_ctx


@dataclass(frozen=True, slots=True)
class Exemption:
    """A function of the package that may make these blocking calls."""

    file: str
    function: str
    calls: tuple[str, ...]
    reason: str


EXEMPTIONS: tuple[Exemption, ...] = ()


@contextmanager
def no_blocking() -> Iterator[None]:
    """Turn every other blocking call that the package makes on a running loop into an error."""
    with blockbuster_ctx("arl_tangram") as watch:
        for exemption in EXEMPTIONS:
            for call in exemption.calls:
                watch.functions[call].can_block_in(exemption.file, exemption.function)
        yield
