"""What a model is told: results as text, and errors in short texts that are always the same. Pure."""

from __future__ import annotations

import json
from typing import Any

from arl_tangram.errors import (
    ArgumentsError,
    BodyCancelledError,
    BodyExitedError,
    InfrastructureError,
    OutOfMemoryError,
    RemoteError,
    ResultError,
    RunTimeout,
    SandboxPathError,
    TangramError,
)

_MOST = 300
_OWN = (
    ArgumentsError,
    BodyCancelledError,
    BodyExitedError,
    OutOfMemoryError,
    RemoteError,
    ResultError,
    RunTimeout,
    SandboxPathError,
)


def text_of(result: Any) -> str:
    """Return what a tool returned as text: a text as it is, what JSON can say as JSON, and `str()` of all else.

    What UTF-8 cannot write, such as the name of a file that is no text, is told as question marks.
    """
    if isinstance(result, str):
        return in_utf_8(result)
    try:
        return in_utf_8(json.dumps(result, ensure_ascii=False))
    except (TypeError, ValueError):
        return in_utf_8(str(result))


def in_utf_8(text: str) -> str:
    """Return a text as UTF-8 can write it: tokenizers refuse surrogates that stand alone."""
    return text.encode(errors="replace").decode()


def words_for(error: BaseException, tool: str) -> str:
    """Return what a model is told of an error: short, and without what changes from run to run.

    Args:
        error: what a call raised.
        tool: the name by which the model knows what it called.
    """
    match error:
        case ArgumentsError():
            text = _short(str(error))
        case RunTimeout():
            text = f"{tool} ran for too long and was stopped"
        case OutOfMemoryError():
            text = f"{tool} ran out of memory"
        case BodyExitedError() | BodyCancelledError():
            text = f"{tool} ended without a result"
        case ResultError():
            text = f"{tool} returned what cannot be shown"
        case RemoteError():
            text = f"{tool} failed: {error.error}: {_short(error.text)}"
        case SandboxPathError():
            text = f"{tool} failed: {_short(str(error))}"
        case InfrastructureError():
            text = f"{tool} is not available"
        case _:
            said = _short(_text(error))
            text = f"{tool} failed: {type(error).__name__}" + (f": {said}" if said else "")
    return in_utf_8(f"Error: {text}")


def is_masked(error: BaseException) -> bool:
    """Return whether an error is one of the infrastructure, after which a sample must not be trained on.

    What Ray wraps it in counts, too.
    """
    return infrastructure_error(error) is not None


def infrastructure_error(error: BaseException) -> InfrastructureError | None:
    """Return the error of the infrastructure that an error is, or that Ray has wrapped in it; None if there is none."""
    seen: object = error
    known: set[int] = set()  # errors of others may have each other as their causes
    while isinstance(seen, BaseException) and id(seen) not in known:
        if isinstance(seen, InfrastructureError):
            return seen
        known.add(id(seen))
        seen = getattr(seen, "cause", None)  # of a RayTaskError
    return None


def is_own(error: Exception) -> bool:
    """Return whether an error is the doing of the tool or of the model: told to it, and never masked."""
    return isinstance(error, _OWN) or not isinstance(error, TangramError)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - of a class that the project does not know
        return ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
