"""How a call at an agent ended: put into a reply there, and made into a value or an error again at the client.

Values of builtins, of `wire` and of `model` go as they are. What is the user's is pickled here, apart from the reply,
so that a class which only one side can import spoils neither the reply nor the actor.
"""

from __future__ import annotations

import pickle
from typing import Any

from arl_tangram.errors import RemoteError, ResultError, SandboxLostError, TangramError
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import AgentReply
from arl_tangram.managers.processes.outcome import Ending, RemoteTraceback, Told, failed, returned, value_or_error

_ERRORS = SandboxLostError.__module__


def valued(value: Any) -> AgentReply:
    """Return the reply of a call that has ended well."""
    return AgentReply(value)


def raised(error: BaseException, value: Any = None) -> AgentReply:
    """Return the reply of a call that has failed; with a value, where something is to be known all the same."""
    told, load = failed(Ending.RAISED, error)
    return AgentReply(value, pickle.dumps(told), load)


def error_of(reply: AgentReply, name: str) -> BaseException | None:
    """Return what a call has raised, to be raised at the client; None if it has ended well."""
    return value_or_error(name, _told(reply), reply.load)[1] if reply.told else None


def result_of(reply: AgentReply, name: str) -> Any:
    """Return the value of a call.

    Raises:
        BaseException: what it has raised.
    """
    if (error := error_of(reply, name)) is not None:
        raise error
    return reply.value


# What is the user's: the arguments and the answers of services.


def packed(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> bytes:
    """Put the arguments of a call of a service into bytes.

    Raises:
        TypeError: they cannot be pickled.
    """
    try:
        return pickle.dumps((args, kwargs), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(f"{name}: its arguments cannot be sent to the node of the service: {_said(error)}") from error


def unpacked(load: bytes, name: str, node: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the arguments of a call of a service again.

    Raises:
        RemoteError: that is not possible here, as when their module is missing; it is the caller's to mend.
    """
    try:
        args, kwargs = pickle.loads(load)
    except Exception as error:
        raise _unreadable(error, f"{name}: its arguments cannot be made again on {named(node)}") from error
    return args, kwargs


def unreadable(error: Exception, what: str) -> AgentReply:
    """Return the reply of a call that cannot be made again here; it is the caller's to mend."""
    return raised(_unreadable(error, what))


def _unreadable(error: Exception, what: str) -> RemoteError:
    return RemoteError(type(error).__name__, f"{error} ({what})", failed(Ending.RAISED, error)[0].traceback)


def served(value: Any, name: str, node: str) -> AgentReply:
    """Return the reply of a service that has answered."""
    told, load = returned(value, 0.0)
    if told.ending is not Ending.RETURNED:
        reason = told.text or "an awaitable"
        return raised(ResultError(f"{name}: its answer cannot be sent back from {named(node)}: {reason}"))
    return AgentReply(None, pickle.dumps(told), load)


def answer_of(reply: AgentReply, name: str) -> Any:
    """Return what a service has answered.

    Raises:
        ResultError: it cannot be made again here.
        BaseException: what the call has raised.
    """
    told = _told(reply)
    if told.ending is not Ending.RETURNED:
        raise value_or_error(name, told, reply.load)[1] or AssertionError(told.ending)
    try:
        return pickle.loads(reply.load)
    except Exception as error:
        raise ResultError(f"{name}: its answer came back and cannot be made again here: {_said(error)}") from error


def of_the_library(error: Exception, otherwise: type[TangramError]) -> TangramError:
    """Return an error that both sides can import: itself, or its text in another class."""
    if isinstance(error, TangramError) and type(error).__module__ == _ERRORS:
        return error
    made = otherwise(_said(error))
    made.__cause__ = RemoteTraceback(f"\n{failed(Ending.RAISED, error)[0].traceback}")
    return made


def _told(reply: AgentReply) -> Told:
    told = pickle.loads(reply.told)
    assert isinstance(told, Told)
    return told


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
