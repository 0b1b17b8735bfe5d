"""From a declared action and the arguments of a call to an invocation: check what can be checked before it waits."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from arl_tangram.context import ActiveAction, Invocable, Runtime, active_var
from arl_tangram.errors import ArgumentsError, DefinitionError, NestedActionError
from arl_tangram.execution import Invocation
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.managers.processes import pack
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction
from arl_tangram.model.quantities import MILLI, plain
from arl_tangram.retrying import closed_meanwhile
from arl_tangram.running import Run
from arl_tangram.scheduling.feasibility import in_sandbox, resolve
from arl_tangram.trajectories import Trajectory, trajectory_var
from arl_tangram.workshop import Workshop

_MOST_DEMANDS = 10_000


class Submitting:
    """Makes the calls of one runtime, on its event loop.

    Args:
        runtime: whose.
        workshop: what its calls share.
        reserved_cores: whole cores that each trajectory holds for its actions, or 0.
    """

    def __init__(self, runtime: Runtime, workshop: Workshop, reserved_cores: int) -> None:
        self._runtime = runtime
        self._workshop = workshop
        self._reserved = reserved_cores * MILLI
        self._host = None if workshop.cpu is None else workshop.cpu.host_node()
        self._services = {} if workshop.gpu is None else {hosted.name: hosted for hosted in workshop.gpu.services}
        self._demands: dict[tuple[int, int, int, int | None], tuple[ActionSpec, Demand]] = {}
        self._plain: dict[int, Demand] = {}

    def call(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Check a call; what is returned submits it when awaited.

        Raises:
            ArgumentsError: the arguments do not fit.
            DefinitionError: the `key=` of the action returns no string, or no worker can find the body.
            InfeasibleError: no pool can ever meet its cost.
            NestedActionError: the body that makes it has lost its own caller.
            NoTrajectoryError, GroupCancelledError: its trajectory takes no calls any more.
        """
        submitted_at_s = self._workshop.time()
        active = active_var.get()
        caller = None if active is None else self._caller(active, action)
        if kwargs or len(args) not in action.positional:  # binding costs 2 us, and the commonest calls are plain
            _bind(action, args, kwargs)
        trajectory = trajectory_var.get()
        if trajectory is not None:
            trajectory.check_open(action.spec.name)
            if trajectory.runtime is not self._runtime:
                trajectory = None
        sandbox = None
        if trajectory is not None and in_sandbox(action.spec):
            sandbox = trajectory.sandbox
        demand = self._plain.get(id(action.spec)) if trajectory is None else None
        if demand is None:
            demand = self._demand(action.spec, trajectory)
        pending = PendingAction(
            self._workshop.dispatcher.new_id(),
            demand,
            submitted_at_s,
            "" if action.spec.key is None else _key(action.spec, args, kwargs),
            None if trajectory is None else trajectory.id,
            sandbox is not None or demand.reserved > 0,
            0.0,
            None if caller is None else caller.running.pending.id,
        )
        if action.spec.kind is BodyKind.PROCESS:  # what cannot be sent is told at once, not after the wait
            args, kwargs = (pack(action, args, kwargs),), {}
        if action.spec.retries:
            return self._retried(action, args, kwargs, pending, sandbox, trajectory, caller)
        invocation = Invocation(self._workshop, action, args, kwargs, pending, sandbox)
        return invocation.result() if caller is None else invocation.nested_result(caller)

    def _retried(  # noqa: PLR0917 - what `call` has found out
        self,
        action: Invocable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        pending: PendingAction,
        sandbox: ManagedSandbox | None,
        trajectory: Trajectory | None,
        caller: Run | None,
    ) -> Coroutine[Any, Any, Any]:
        """Return a call that is tried again if it fails."""

        def attempt(pending: PendingAction) -> tuple[Invocation, Coroutine[Any, Any, Any]]:
            invocation = Invocation(self._workshop, action, args, kwargs, pending, sandbox)
            return invocation, invocation.result() if caller is None else invocation.nested_result(caller)

        def check() -> None:
            if not self._runtime.is_open:
                raise closed_meanwhile(action.spec.name)
            if caller is not None:
                self._caller(caller, action)
            if trajectory is not None:
                trajectory.check_open(action.spec.name)

        nest = None if caller is None else caller.nesting()
        return self._workshop.retrying.result(action.spec, pending, attempt, check, nest)

    def _caller(self, active: ActiveAction, action: Invocable) -> Run | None:
        """Return the running action of this runtime whose body makes a call, if there is one."""
        if not isinstance(active, Run) or not active.is_alive_in(self._workshop):
            return None
        if active.ended:
            raise NestedActionError(
                f"{active.name} → {action.spec.name}: the caller of {active.name} has been answered already, so that "
                "it can call nothing any more"
            )
        return active

    def _demand(self, spec: ActionSpec, trajectory: Trajectory | None) -> Demand:
        """Return the cost in this runtime's units; resolved once for all calls that stand alike."""
        reserved, held, node = 0, 0, None
        if trajectory is not None:
            reserved, held, node = self._reserved, trajectory.memory_bytes, trajectory.node
        known = self._demands.get((id(spec), reserved, held, node))
        if known is not None:
            return known[1]
        dispatcher = self._workshop.dispatcher
        demand = resolve(
            spec, dispatcher.topology, node=node, host=self._host, reserved=reserved, memory_held=held,
            services=self._services,
        )  # fmt: skip
        if demand.seat is not None:
            dispatcher.check_seat(demand)
        if len(self._demands) >= _MOST_DEMANDS:  # `with_options` in a loop must not grow without bound
            self.forget()
        self._demands[id(spec), reserved, held, node] = (spec, demand)  # it keeps the spec: the id stays its own
        if trajectory is None:
            self._plain[id(spec)] = demand
        return demand

    def forget(self) -> None:
        """Resolve all costs anew, because there is more or less of something."""
        self._demands.clear()
        self._plain.clear()


def _bind(action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        action.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentsError(f"{action.spec.name}{action.signature}: {error}") from None


def _key(spec: ActionSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    assert spec.key is not None
    key = spec.key(*args, **kwargs)
    if not isinstance(key, str):
        raise DefinitionError(f"{spec.name}: key= returned {key!r}; it must return a string")
    return plain(key)
