"""What is sent to a worker for one call: which body, its arguments, and what was granted."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

from arl_tangram.context import Invocable
from arl_tangram.errors import ArgumentsError
from arl_tangram.managers.processes.reference import BodyReference, refer
from arl_tangram.model.allocation import Allocation


class PackedCall(NamedTuple):
    """A call as it was submitted.

    Attributes:
        reference: where the body is found.
        arguments: the positional and the keyword arguments, pickled.
    """

    reference: BodyReference
    arguments: bytes


class Grant(NamedTuple):
    """What one call was granted.

    Attributes:
        name: the action's name.
        allocation: what `current_allocation()` returns in the body.
        milli_cores: cores granted; 0 for none, and then nothing is pinned.
        memory_bytes: what the body may allocate on top of what its worker has; 0 for no limit.
    """

    name: str
    allocation: Allocation
    milli_cores: int
    memory_bytes: int


class Call(NamedTuple):
    """What a worker is told of a call, next to its pickled arguments."""

    reference: BodyReference
    grant: Grant
    environment: dict[str, str]


def pack(action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PackedCall:
    """Pickle a call as it is now; what the caller does to the arguments later is not seen by the body.

    Raises:
        ArgumentsError: an argument cannot be pickled; the message names it.
        DefinitionError: a worker would not find the body.
    """
    reference = refer(action.spec.name, action.body)
    try:
        return PackedCall(reference, pickle.dumps((args, dict(kwargs)), pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        culprit = _culprit(action, args, kwargs)
        raise ArgumentsError(
            f"{action.spec.name}: {culprit} cannot be sent to a worker process: {type(error).__name__}: {error}"
        ) from error


def _culprit(action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    for name, value in action.signature.bind(*args, **kwargs).arguments.items():
        try:
            pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - whatever the user's own code raises while it is pickled
            return f"the argument {name!r} ({type(value).__name__})"
    return "an argument"
