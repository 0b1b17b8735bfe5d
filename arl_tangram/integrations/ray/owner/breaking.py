"""The breakers of a shared runtime: clients tell how calls go, and here those that come are refused, or wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from arl_tangram.dispatch import Dispatcher
from arl_tangram.errors import BackendDownError, ShutdownError
from arl_tangram.integrations.ray.wire import Judged
from arl_tangram.managers.breaker import Breaker
from arl_tangram.managers.breakers import Breakers, Tripped
from arl_tangram.model.lifecycle import Demand, RunningAction
from arl_tangram.model.topology import Topology


class OwnerBreakers:
    """The breakers at the owner.

    Args:
        declared: by the name of a quota.
        topology: the dimensions.
        dispatcher: the scheduler.
        refuse: ends all calls that wait and for whose demand that is true, with the error that it makes.
    """

    def __init__(
        self,
        declared: Mapping[str, Breaker],
        topology: Topology,
        dispatcher: Dispatcher,
        refuse: Callable[[Callable[[Demand], bool], Callable[[], BackendDownError]], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._masks = {
            name: sum(1 << dimension for key in topology.quotas[name] for dimension in key.breaker) for name in declared
        }

        def refuse_those(quota: str, error: Callable[[], BackendDownError]) -> None:
            refuse(lambda demand: bool(demand.dimensions & self._masks[quota]), error)

        self._breakers = Breakers(declared, topology, dispatcher, refuse_those)

    def concerns(self, demand: Demand) -> bool:
        """Whether a demand takes of a quota with a breaker."""
        return bool(self._quotas(demand))

    def refusal(self, demand: Demand) -> BackendDownError | None:
        """Return why a call cannot even wait, if so."""
        return self._breakers.refusal(self._quotas(demand), self._dispatcher.now_s())

    def called(self, caller: RunningAction, names: Iterable[str]) -> None:
        """A running call waits for another one."""
        held = self._quotas(caller.pending.demand)
        self._breakers.called(caller, held, [(name, 0) for name in names], self._dispatcher.now_s())

    def called_before(self, demand: Demand, parent: int | None, running: Mapping[int, RunningAction]) -> None:
        """Calls that run, by their ids, wait for one that was made with the owner before, however deep."""
        names = [name for name, _ in self._quotas(demand)]
        while names and parent is not None and (caller := running.get(parent)) is not None:
            self.called(caller, names)
            parent = caller.pending.parent

    def said(self, running: RunningAction, name: str, failed: bool | None) -> None:
        """A body says how a call went."""
        self._breakers.say(running, name, self._dispatcher.now_s(), failed=failed)

    def judged(self, running: RunningAction, told: Judged) -> None:
        """A caller has its answer, or a call has ended."""
        error: Exception | None = None
        if told.failed:
            error = type(told.reason, (Exception,), {})()
        elif told.failed is None:
            error = ShutdownError("it says nothing of the backend")
        tell = self._breakers.ended if told.is_over else self._breakers.answered
        tell(running, self._quotas(running.pending.demand), error, self._dispatcher.now_s())

    def over(self, running: RunningAction) -> None:
        """A call is over of which nobody will say how it went."""
        self.judged(running, Judged(running.pending.id, True, None, ""))

    def marks(self) -> tuple[tuple[str, float], ...]:
        """Return what is another as soon as one opens, closes, or opens again."""
        return tuple((one.label, one.left_s) for one in self._breakers.tripped(0.0))

    def tripped(self) -> tuple[Tripped, ...]:
        """Return those that are not closed."""
        return self._breakers.tripped(self._dispatcher.now_s())

    def trip(self, told: Iterable[Tripped], running: Collection[RunningAction]) -> None:
        """Go on with those of an earlier owner."""
        self._breakers.trip(told, running, self._dispatcher.now_s())

    def states(self) -> dict[str, str]:
        """Return the state of each, by the name of its quota."""
        return {name: str(state) for name, state in self._breakers.states(self._dispatcher.now_s()).items()}

    def notes(self) -> list[str]:
        """Return a line for each that is not closed."""
        return self._breakers.notes(self._dispatcher.now_s())

    def _quotas(self, demand: Demand) -> list[tuple[str, int]]:
        return [(name, 0) for name, mask in self._masks.items() if demand.dimensions & mask]
