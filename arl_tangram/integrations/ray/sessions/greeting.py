"""The words with which a session begins: builtins and pickled bytes, so that another version can read and refuse them.

A greeting is answered with a welcome or a refusal. The same greeting may arrive twice: both are to be answered alike,
which is what its token is for.
"""

from __future__ import annotations

import os
import pickle
import platform
from collections.abc import Mapping
from typing import Any

import arl_tangram
from arl_tangram import errors
from arl_tangram.errors import TangramError, VersionMismatchError
from arl_tangram.integrations.ray.wire import WIRE_VERSION, Kept, Resume, Shape, Welcome

CLIENT, NODE = "client", "node"
"""Who greets."""


def greeting(
    about: Mapping[str, Any],
    token: str,
    *,
    turn: int = 0,
    epoch: str | None = None,
    session: str | None = None,
    resume: Resume | None = None,
    known: Shape | None = None,
) -> dict[str, Any]:
    """Return a greeting.

    Args:
        about: who greets, in builtins: `kind` (`CLIENT` or `NODE`), `name`, `host`, `node_id` and the like.
        token: unique for what begins with it; a greeting that is sent again has the same.
        turn: ascends over the greetings of one client with different tokens, as they may come in another order.
        epoch: of the owner whose session is resumed; None to begin anew.
        session: its name there, which it keeps.
        resume: what is held there.
        known: what there was, as it was told last; of use to an owner that was started again, if nothing is resumed.
    """
    return {
        **about,
        "wire": WIRE_VERSION,
        "library": arl_tangram.__version__,
        "python": platform.python_version(),
        "pid": os.getpid(),
        "token": token,
        "turn": turn,
        "epoch": epoch,
        "session": session,
        "resume": None if resume is None else pickle.dumps(resume),
        "known": None if known is None else pickle.dumps(known),
        "kept": None,
    }


def with_kept(message: Mapping[str, Any], kept: Kept | None) -> Mapping[str, Any]:
    """Return a greeting, whenever it is sent, with what who greets was to remember; of use as `known` is."""
    return message if kept is None else {**message, "kept": pickle.dumps(kept)}


def check_versions(message: Mapping[str, Any]) -> None:
    """Check, at the owner, that whoever greets has the same library.

    Raises:
        VersionMismatchError: another one; the message names both.
    """
    there, here = (message.get("library"), message.get("wire")), (arl_tangram.__version__, WIRE_VERSION)
    if there != here:
        raise VersionMismatchError(
            f"{message.get('kind')} {message.get('name')!r} at {message.get('host')!r} has arl_tangram {there[0]} "
            f"(protocol {there[1]}), and the owner of the shared runtime has {here[0]} (protocol {here[1]})"
        )


def resume_of(message: Mapping[str, Any]) -> Resume | None:
    """Return what a greeting of the same version says to hold; None if it begins anew."""
    resume: Resume | None = None if message["resume"] is None else pickle.loads(message["resume"])
    return resume


def known_of(message: Mapping[str, Any]) -> Shape | None:
    """Return what a greeting of the same version knows of what there was."""
    shape: Shape | None = None if message["known"] is None else pickle.loads(message["known"])
    return shape


def kept_of(message: Mapping[str, Any]) -> Kept | None:
    """Return what a greeting of the same version was to remember."""
    kept: Kept | None = None if message["kept"] is None else pickle.loads(message["kept"])
    return kept


def welcome_answer(welcome: Welcome) -> dict[str, Any]:
    """Return the answer to a greeting that is welcome."""
    return {
        "epoch": welcome.epoch,
        "session": welcome.session,
        "lease_s": welcome.lease_s,
        "grace_s": welcome.grace_s,
        "shape": None if welcome.shape is None else pickle.dumps(welcome.shape),
    }


def refusal_answer(error: TangramError) -> dict[str, Any]:
    """Return the answer to a greeting that is not."""
    return {"error": (type(error).__name__, str(error))}


class NotYetError(Exception):
    """The owner lets nobody begin yet; whoever greets is to greet again.

    Attributes:
        limit_s: for how long that can last from when it has begun; 0 if it is not known.
    """

    def __init__(self, why: str, limit_s: float) -> None:
        super().__init__(why)
        self.limit_s = limit_s


def not_yet_answer(error: NotYetError) -> dict[str, Any]:
    """Return the answer to a greeting that is to be sent again, at once."""
    return {"not_yet": str(error), "limit_s": error.limit_s}


def read_answer(message: Mapping[str, Any]) -> Welcome:
    """Return what a greeting was answered with.

    Raises:
        TangramError: it was refused; of the type that the owner had, if there is one here.
        NotYetError: it is to be sent again.
    """
    if "not_yet" in message:
        raise NotYetError(message["not_yet"], message["limit_s"])
    if "error" in message:
        name, text = message["error"]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, TangramError):
            raise kind(text)
        raise TangramError(f"{name}: {text}")
    shape = None if message["shape"] is None else pickle.loads(message["shape"])
    return Welcome(message["epoch"], message["session"], message["lease_s"], message["grace_s"], shape)
