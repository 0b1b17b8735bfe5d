"""The error for a command that a sandbox could not start. Pure."""

from __future__ import annotations

import errno
import os


def not_started(number: int, subject: str, *, program: str, cwd: str) -> OSError:
    """Return it, of the kind that belongs to its number; `filename` is the program or the folder, as it was given.

    Args:
        number: of the error.
        subject: what it is about, `program` or `cwd`.
        program: the first word of the command.
        cwd: the working folder that was asked for.
    """
    if subject != "cwd":
        return OSError(number, f"{os.strerror(number)} (as seen inside the sandbox)", program)
    if number == errno.ENOENT:
        return OSError(number, f"the working folder {cwd!r} does not exist", cwd)
    return OSError(number, f"the working folder {cwd!r} cannot be used: {os.strerror(number)}", cwd)
