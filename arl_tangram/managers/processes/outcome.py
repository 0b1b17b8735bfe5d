"""How a call ended in its worker: put into bytes there, and made into a value or an error again here."""

from __future__ import annotations

import inspect
import pickle
import traceback
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

from arl_tangram.errors import ArgumentsError, DefinitionError, RemoteError, ResultError


class RemoteTraceback(Exception):
    """The traceback in a worker process, as text: the cause of an error that comes from there."""


class Ending(StrEnum):
    """What came of a call."""

    RETURNED = "returned"
    RAISED = "raised"
    NOT_FOUND = "not found"
    NOT_UNPACKED = "not unpacked"
    NOT_PACKED = "not packed"
    AWAITABLE = "awaitable"


class Told(NamedTuple):
    """The end of a call, without its value.

    Attributes:
        ending: what came of it.
        body_s: seconds that the body ran, measured in the worker.
        leaves_processes: something that the body has started still runs.
        error: type name of what it raised.
        text: the text of that.
        traceback: the same with the traceback.
    """

    ending: Ending
    body_s: float = 0.0
    leaves_processes: bool = False
    error: str = ""
    text: str = ""
    traceback: str = ""


def returned(value: Any, body_s: float) -> tuple[Told, bytes]:
    """Put what a body returned into bytes."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        return Told(Ending.AWAITABLE, body_s), b""
    try:
        return Told(Ending.RETURNED, body_s), pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever the user's own code raises while it is pickled
        told, _ = failed(Ending.NOT_PACKED, error, body_s)
        return told._replace(text=f"{type(value).__qualname__}: {told.error}: {told.text}"), b""


def failed(ending: Ending, error: BaseException, body_s: float = 0.0) -> tuple[Told, bytes]:
    """Put an error into bytes: as text, and as itself where that can be pickled and made again."""
    text = "its text cannot be told"
    with suppress(Exception):
        text = str(error)
    lines = [f"{type(error).__name__}: {text}"]
    with suppress(Exception):
        lines = traceback.format_exception(error)
    told = Told(ending, body_s, False, type(error).__name__, text, "".join(lines))
    if ending is not Ending.RAISED or not _travels(error):
        return told, b""
    with suppress(Exception):
        load = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        if type(pickle.loads(load)) is type(error):
            return told, load
    return told, b""


def _travels(error: BaseException) -> bool:
    """Whether an error may be raised in the trainer: what ends a process or a generator may not."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def value_or_error(name: str, told: Told, load: memoryview | bytes) -> tuple[Any, BaseException | None]:
    """Return what a body returned, or the error that its caller gets."""
    if told.ending is Ending.RETURNED:
        try:
            return pickle.loads(load), None
        except Exception as error:  # noqa: BLE001 - whatever the user's own code raises while it is made again
            return None, ResultError(
                f"{name}: its result came back from the worker process and cannot be made again here: "
                f"{type(error).__name__}: {error}"
            )
    raised = _error(name, told, load)
    raised.__cause__ = RemoteTraceback(f"\n{told.traceback}") if told.traceback else None
    return None, raised


def _error(name: str, told: Told, load: memoryview | bytes) -> BaseException:
    reason = f"{told.error}: {told.text}"
    match told.ending:
        case Ending.NOT_FOUND:
            return DefinitionError(f"{name} cannot be imported in a worker process: {reason}")
        case Ending.NOT_UNPACKED:
            return ArgumentsError(f"{name}: its arguments cannot be made again in a worker process: {reason}")
        case Ending.NOT_PACKED:
            return ResultError(f"{name}: its result cannot be sent back from the worker process: {told.text}")
        case Ending.AWAITABLE:
            return DefinitionError(f"{name} is a plain function and returned an awaitable; make it `async def`")
        case _:
            with suppress(Exception):
                if load:
                    return pickle.loads(load)  # type: ignore[no-any-return]
            return RemoteError(told.error, told.text, told.traceback)
