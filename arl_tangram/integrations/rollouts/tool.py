"""A tool: an action that a model can call, with its schema and with bounds to its waiting and its running."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.errors import ConfigurationError, DefinitionError, UsageError
from arl_tangram.integrations.rollouts.addresses import find_action
from arl_tangram.integrations.rollouts.json_schema import Parameters, parameters_of
from arl_tangram.model.quantities import seconds

QUEUE_TIMEOUT_S = 600.0
"""For how long a call of a tool waits at most, unless it is said otherwise."""


@dataclass(frozen=True, slots=True)
class Tool:
    """An action that a model can call; made by `declare`.

    Attributes:
        action: with a `timeout` and a `queue_timeout`.
        name: what the model calls it.
        schema: what the model is told of it, in OpenAI's form.
        given: parameters that the model does not give.
    """

    action: BoundAction[..., Any]
    name: str
    schema: dict[str, Any]
    given: tuple[str, ...]
    _parameters: Parameters = field(repr=False)
    _nullable: frozenset[str] = field(repr=False)  # of `given`: what may be None

    @classmethod
    def declare(
        cls,
        action: BoundAction[..., Any] | str,
        *,
        name: str | None = None,
        timeout_s: float | None = None,
        queue_timeout_s: float | None = None,
        given: Sequence[str] = (),
        where: str = "Tool.declare()",
    ) -> Self:
        """Make a tool of an action.

        Args:
            action: an action, or its address, such as `my_agent.tools:run_tests`.
            name: what the model calls it; by default the name of its function.
            timeout_s: seconds that a call may run; by default as the action says, which must do so then.
            queue_timeout_s: seconds that a call may wait; by default as the action says, or 600.
            given: parameters that the model does not give and is not told of, such as what comes from a dataset.
            where: begins the message of an error.

        Raises:
            ConfigurationError: no such action, no `timeout` anywhere, or seconds that are not possible.
            DefinitionError: what it takes cannot be told to a model.
        """
        found = find_action(action, where=where) if isinstance(action, str) else action
        try:
            spec = invocable_of(found).spec
        except UsageError as error:
            raise ConfigurationError(f"{where}: {error}") from None
        timeout_s = spec.timeout if timeout_s is None else seconds(timeout_s, f"{where}: timeout_s", ConfigurationError)
        if timeout_s is None:
            text = "has no timeout, so that one call could run for ever: declare it with timeout=, or give timeout_s"
            raise ConfigurationError(f"{where}: {spec.name} {text}")
        if queue_timeout_s is None:
            queue_timeout_s = spec.queue_timeout or QUEUE_TIMEOUT_S
        queue_timeout_s = seconds(queue_timeout_s, f"{where}: queue_timeout_s", ConfigurationError)
        left_out = _names(given, where)
        try:
            parameters = parameters_of(found, name=name, without=left_out)
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from None
        hints = get_type_hints(found)
        nullable = frozenset(each for each in left_out if each not in hints or takes_none(hints[each]))
        in_bounds = bounded(found, timeout_s, queue_timeout_s)
        return cls(in_bounds, parameters.name, parameters.schema, left_out, parameters, nullable)

    def arguments(self, said: object, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call.

        Args:
            said: what the model gives, from JSON.
            given: the rest; what the tool does not take is left out, and None where the action takes no None: a dataset
                fills with that what a row does not have.

        Raises:
            ArgumentsError: what the model gives does not fit.
        """
        read = self._parameters.read(said)
        return read | {name: given[name] for name in self.given if self._has(given, name)}

    def lacking(self, given: Mapping[str, Any]) -> list[str]:
        """Return which of the parameters that the model does not give are missing, and have no default."""
        parameters = inspect.signature(self.action).parameters
        needed = [name for name in self.given if parameters[name].default is inspect.Parameter.empty]
        return [name for name in needed if not self._has(given, name)]

    def _has(self, given: Mapping[str, Any], name: str) -> bool:
        return name in given and (given[name] is not None or name in self._nullable)


def takes_none(annotation: Any) -> bool:
    """Return whether an annotation admits None, or says nothing of it."""
    annotation = getattr(annotation, "__value__", annotation)  # of a name that `type` declares
    if get_origin(annotation) in {Union, UnionType}:
        return any(takes_none(member) for member in get_args(annotation))
    if get_origin(annotation) is Literal:
        return None in get_args(annotation)
    return annotation in {Any, object, None, NoneType}


def bounded(action: Any, timeout_s: float, queue_timeout_s: float) -> BoundAction[..., Any]:
    """Return a copy with these bounds, bound to the same object if it is bound to one."""
    function = getattr(action, "__func__", action)
    copy = function.with_options(timeout=timeout_s, queue_timeout=queue_timeout_s)
    return copy if function is action else copy.__get__(action.__self__)  # type: ignore[no-any-return]


def _names(given: object, where: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(f"{where}: given takes a list of names of parameters, not {given!r}")
    return tuple(str(name) for name in given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
