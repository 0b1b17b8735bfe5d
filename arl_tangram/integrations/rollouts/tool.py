"""A tool: an action that a model can call, with its schema and with bounds to its waiting and its running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

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
        return cls(bounded(found, timeout_s, queue_timeout_s), parameters.name, parameters.schema, left_out, parameters)

    def arguments(self, said: object, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call.

        Args:
            said: what the model gives, from JSON.
            given: the rest; what the tool does not take is left out.

        Raises:
            ArgumentsError: what the model gives does not fit.
        """
        read = self._parameters.read(said)
        return read | {name: given[name] for name in self.given if name in given}


def bounded(action: Any, timeout_s: float, queue_timeout_s: float) -> BoundAction[..., Any]:
    """Return a copy with these bounds, bound to the same object if it is bound to one."""
    function = getattr(action, "__func__", action)
    copy = function.with_options(timeout=timeout_s, queue_timeout=queue_timeout_s)
    return copy if function is action else copy.__get__(action.__self__)  # type: ignore[no-any-return]


def _names(given: object, where: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(f"{where}: given takes a list of names of parameters, not {given!r}")
    return tuple(str(name) for name in given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
