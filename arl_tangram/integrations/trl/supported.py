"""Which versions of TRL work: `rollout_func` is experimental there, so only the minor that was tried is let in."""

from __future__ import annotations

from arl_tangram.integrations.versions import Supported

TRL = Supported("trl", low="1.16", below="1.17")


def check() -> None:
    """Look whether a TRL is installed that works; it is not imported.

    Raises:
        MissingExtraError: there is none, or it has another version.
    """
    TRL.check()
