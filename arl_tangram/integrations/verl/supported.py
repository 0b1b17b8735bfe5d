"""Which versions of verl work: its interfaces change with every minor, so only the one that was tried is let in."""

from __future__ import annotations

from arl_tangram.integrations.versions import Supported

VERL = Supported("verl", low="0.9.1", below="0.9.2")


def check() -> None:
    """Look whether a verl is installed that works; it is not imported.

    Raises:
        MissingExtraError: there is none, or it has another version.
    """
    VERL.check()
