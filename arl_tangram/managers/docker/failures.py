"""What went wrong with a daemon: told in one line, or raised."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from arl_tangram.managers.docker.answers import DaemonError, mapping, text
from arl_tangram.managers.docker.location import Location

T = TypeVar("T")


def one_line(said: object) -> str:
    """Return what was said as one line of at most 1,000 characters."""
    return " ".join(str(said).split())[:1000] or type(said).__name__


def understood(reader: Callable[..., T], *answer: object) -> T:
    """Return what an answer says; raises DaemonError if the reader cannot make sense of it."""
    try:
        return reader(*answer)
    except ValueError as error:
        raise DaemonError("failed", 0, f"the daemon's answer makes no sense: {error}") from error


def check_progress(report: object) -> None:
    """Raise if a report of progress tells an error, which it does after a status of 200."""
    told = text(report, "error", "") or text(mapping(report, "errorDetail"), "message", "")
    if told:
        raise DaemonError("failed", 200, one_line(told))


def explain(location: Location, error: Exception, timeout_s: float) -> str:
    """Say why a daemon cannot be used, and what to do."""
    url = location.url
    if isinstance(error, DaemonError) and error.kind == "late":
        return f"the Docker daemon at {url} has not answered within {timeout_s:g} s"
    match _errno(error):
        case errno.EACCES | errno.EPERM:
            return (
                f"user {os.getuid()} may not use the Docker daemon at {url}: become a member of the group that owns "
                "the socket (usually `docker`), or run a rootless daemon and give its url"
            )
        case errno.ENOENT | errno.ENOTDIR:
            return f"there is no socket at {location.socket}: start the Docker daemon there, or give the url of another"
        case errno.ECONNREFUSED:
            return f"nothing listens at {url}: start the Docker daemon there, or give the url of another"
        case _:
            return f"the Docker daemon at {url} cannot be used: {one_line(error)}"


def _errno(error: BaseException | None) -> int | None:
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None
