"""Which hosts of a pool are on the same machine, and how its memory is shared among them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import GIB

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def machine_of(url: str | None, *, is_here: bool) -> str:
    """Return what tells the machine of a daemon from others: the host of its URL; empty for this machine.

    Names are not resolved, so two names of one machine are two machines; so are sockets that lead elsewhere.
    """
    host = urlsplit(url or "").hostname
    return "" if is_here or host in LOOPBACK else host or url or "elsewhere"


def share_of_memory(
    declared: int | None, beside: Sequence[int | None], *, said: str, usable: int, there_is: int
) -> int:
    """Return how much memory a host has to share out.

    Args:
        declared: bytes that were declared of it; None for its part of what is left.
        beside: the same of the other hosts of the pool that are on its machine.
        said: what it is called in messages.
        usable: bytes that are shared where nothing is declared.
        there_is: bytes that its machine has.

    Raises:
        ConfigurationError: its machine has less than was declared, or nothing is left.
    """
    everyone = (declared, *beside)
    asked = sum(size or 0 for size in everyone)
    if asked > there_is:
        others, together = (" and other hosts of the pool on its machine", " together") if beside else ("", "")
        raise ConfigurationError(
            f"{said}{others} shall give {asked / GIB:.1f} GiB of memory{together}, and there are "
            f"{there_is / GIB:.1f} GiB"
        )
    if declared is not None:
        return declared
    share = (usable - asked) // everyone.count(None)
    if share <= 0 < asked:
        raise ConfigurationError(
            f"{said} has no memory_gib=, and no memory is left: other hosts of the pool on its machine have "
            f"{asked / GIB:.1f} of {usable / GIB:.1f} GiB"
        )
    return share
