"""The scheduler of a shared runtime, made when its nodes are known, and what its clients are told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from arl_tangram.dispatch import Dispatcher
from arl_tangram.errors import BackendDownError, ConfigurationError, InfeasibleError, NodeLostError
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.owner.breaking import OwnerBreakers
from arl_tangram.integrations.ray.owner.memory import Memory
from arl_tangram.integrations.ray.owner.nodes import Node, Nodes
from arl_tangram.integrations.ray.wire import Event, Remember, Reshaped, Resize, Shape, SharedQuota
from arl_tangram.managers.manager import check_whole
from arl_tangram.model.gpu import Instance, ServiceStatistics
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.quantities import capacity_units, is_name
from arl_tangram.model.statistics import Statistics
from arl_tangram.model.topology import Dimension, Topology, is_breaker, node_of, resource_of
from arl_tangram.opening import Happened, sink_of
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import check_capacity
from arl_tangram.scheduling.usage import usage_of
from arl_tangram.setup import Setup
from arl_tangram.timed_policy import watched
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import Sink
from arl_tangram.trace.summary import Summary

_MOST_DEMANDS = 10_000
_PLENTY = 1 << 50
_logger = logging.getLogger(__name__)


class Decider:
    """The scheduler and its trace.

    Attributes:
        core: decides.
        dispatcher: drives it.
        breakers: those of the quotas, if any has one.
        memory: what another owner would have to be told.
        shape: what there is now.

    Args:
        setup: what is declared.
        nodes: that there are; they get their numbers here.
        refuse: ends calls of all clients that wait for something that is down; see `OwnerBreakers`.
        tell: tells all sessions something.
        order: the names of nodes, as an earlier owner had numbered them; None if there was none. After one, a trace
            that cannot be written is no error.

    Raises:
        ConfigurationError: the nodes do not go together.
    """

    def __init__(
        self,
        setup: Setup,
        nodes: Nodes,
        refuse: Callable[[Callable[[Demand], bool], Callable[[], BackendDownError]], None],
        tell: Callable[[Event], None],
        order: Sequence[str] | None = None,
    ) -> None:
        self._setup = setup
        self._nodes = nodes
        self._tell = tell
        self._demands: dict[Demand, Demand] = {}
        nodes.settle(order or ())
        seats = nodes.seats(getattr(setup.gpus, "policy", "loss"))
        services = [service.name for service in nodes.services()]
        topology = setup.topology(nodes.dimensions(), nodes.cores(), seats, services)
        nodes.made(topology)
        self._sink = sink_of(setup, topology) if order is None else _sink_again(setup, topology)
        self._summary = Summary(topology)
        self.core = SchedulerCore(
            topology,
            watched(setup.policy),
            order=setup.order,
            record=True,
            submissions=self._sink is not None,
            seats=seats,
        )
        self.dispatcher = Dispatcher(self.core, Happened(self._summary, self._sink).tell)
        self.dispatcher.gpus.on_evicted = nodes.evicted
        self._summary.opened(self.dispatcher.time())
        breakers = {quota.name: quota.breaker for quota in setup.quotas if quota.breaker is not None}
        self.breakers = OwnerBreakers(breakers, topology, self.dispatcher, refuse) if breakers else None
        self.memory = Memory(self.dispatcher, self.breakers, lambda kept: tell(Remember(kept)))
        quotas = tuple(SharedQuota(quota.name, tuple(quota.keys), quota.longest_pause_s) for quota in setup.quotas)
        self.shape = Shape(
            1, topology.dimensions, nodes.offers(), quotas, setup.policy.reserved_cores, setup.kill_grace_s,
        )  # fmt: skip

    def interned(self, demand: Demand) -> Demand:
        """Return one object for all demands that are equal, with which the scheduler is faster."""
        with suppress(TypeError):  # a speed-up of the user's that cannot be hashed
            if len(self._demands) >= _MOST_DEMANDS:
                self._demands.clear()
            return self._demands.setdefault(demand, demand)
        return demand

    def why(self, demand: Demand, error: Exception) -> Exception:
        """Return why a demand is refused: not that there is too little, if a lost node has enough."""
        if not isinstance(error, InfeasibleError) or _can_be_met(demand, self.core.topology):
            return error
        if not _can_be_met(demand, Topology(self._nodes.capacities(self.core.topology))):
            return error
        return NodeLostError(f"{error}, as a node is lost")

    # What there is.

    def set_units(self, name: str, units: int) -> None:
        """Let a dimension have so many units, and tell everybody."""
        self.dispatcher.set_capacity(self.core.topology.index[name], units)
        self.reshape()

    def set_capacity(self, name: str, capacity: float) -> None:
        """Change what there is of a resource; what a node has, it changes itself, soon.

        Raises:
            ConfigurationError: no such resource, or a capacity that it cannot have.
            NodeLostError: its node is lost.
        """
        topology = self.core.topology
        known = [repr(other) for other in topology.index if not is_breaker(other)]
        if not is_name(name) or repr(name) not in known:
            raise ConfigurationError(f"there is no resource {name!r}; there are {', '.join(known)}")
        dimension = topology.dimensions[topology.index[name]]
        units = capacity_units(capacity, dimension.scale, f"set_capacity({name!r})", ConfigurationError)
        if resource_of(name) is None:
            self.set_units(name, units)
            return
        node = self._nodes.find(node_of(name))
        assert node is not None, "each dimension of a node has one"
        check_whole("pool", name, units, [offered.name for offered in node.offer.dimensions])
        if node.session is None:
            raise NodeLostError(f"{named(node.offer.name)} is lost, and nobody there can change its capacity")
        node.session.tell(Resize(name, units))

    @contextmanager
    def plenty(self, kept: Iterable[Dimension]) -> Generator[None]:
        """Let there be plenty while what is held is taken over: of some there may be less by now than is held.

        A trace tells of that, too, as it tells of all capacities.

        Args:
            kept: what an earlier owner had. Afterwards there is as much of quotas and the like, as it may have been
                set; nodes say themselves what they have, and a breaker begins anew.
        """
        topology = self.core.topology
        given = [
            (i, d) for i, d in enumerate(topology.dimensions) if d.window_s is None and not topology.seats >> i & 1
        ]
        units = {dimension: known.capacity for dimension, known in given}
        for known in kept:
            dimension = topology.index.get(known.name)
            if dimension is not None and not is_breaker(known.name) and not self._nodes.mask >> dimension & 1:
                units[dimension] = known.capacity
        for dimension, _ in given:
            self.dispatcher.set_capacity(dimension, _PLENTY)
        yield
        for dimension, capacity in units.items():
            if self.core.topology.dimensions[dimension].capacity != capacity:
                self.dispatcher.set_capacity(dimension, capacity)

    def keep_version(self, version: int) -> None:
        """Let the shape be a later one than that of an earlier owner."""
        self.shape = replace(self.shape, version=max(self.shape.version, version))

    # A node that is lost, for now or for good.

    def emptied(self, node: Node) -> None:
        """Nothing is resident on a node any more."""
        for service in node.offer.services:
            for dop in service.dops:
                self.core.seating.lost(Instance(service.name, dop), self.dispatcher.now_s())

    def back(self, node: Node) -> None:
        """What a node has can be used again."""
        units = {self.core.topology.index[d.name]: d.capacity for d in node.offer.dimensions} | dict(node.seated)
        for dimension, capacity in units.items():
            self.dispatcher.lift(dimension)
            if self.core.topology.dimensions[dimension].capacity != capacity:
                self.dispatcher.set_capacity(dimension, capacity)

    def given_up(self, node: Node) -> None:
        """What a node has is not there any more."""
        for dimension in node.dimensions:
            self.dispatcher.set_capacity(dimension, 0)
        self.reshape()

    def reshape(self) -> None:
        """Tell everybody what there is now."""
        self.shape = replace(
            self.shape,
            version=self.shape.version + 1,
            dimensions=self._nodes.capacities(self.core.topology),
            nodes=self._nodes.offers(),
            lost=self._nodes.lost(),
        )
        self._tell(Reshaped(self.shape))

    def remind(self, tell: Callable[[Event], None]) -> None:
        """Tell a session that has just begun what another owner would have to be told."""
        if (kept := self.memory.present()) is not None:
            tell(Remember(kept))

    # Looking in.

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now; of services all but moves."""
        core = self.core
        self.dispatcher.tell()
        core.advance(self.dispatcher.now_s())
        return Statistics(
            waiting=core.waiting,
            running=core.running,
            lingering=(),
            trajectories=core.trajectories,
            dimensions=usage_of(core),
            breakers={} if self.breakers is None else self.breakers.states(),
            services={s.name: ServiceStatistics() for s in self._nodes.services()} | self._summary.services(),
        )

    def report(self) -> str:
        """Return the text of the report."""
        self.dispatcher.tell()
        notes = () if self.breakers is None else self.breakers.notes()
        learned = self.core.durations.learned()
        return render(self._summary, now_s=self.dispatcher.now_s(), learned=learned, notes=notes)

    def figures(self) -> Figures:
        """Return the figures of the report."""
        self.dispatcher.tell()
        return self._summary.figures(self.dispatcher.now_s())

    async def aclose(self) -> None:
        """Decide nothing any more, and close the trace."""
        self.dispatcher.stop()
        self.memory.stop()
        if self._sink is not None:
            await self._sink.aclose()


def _can_be_met(demand: Demand, topology: Topology) -> bool:
    with suppress(InfeasibleError):
        check_capacity(demand, topology)
        return True
    return False


def _sink_again(setup: Setup, topology: Topology) -> Sink | None:
    """Return where the trace goes after an earlier owner; nowhere if it cannot: what runs matters more."""
    try:
        return sink_of(setup, topology)
    except ConfigurationError:
        _logger.exception("there is no trace from now on")
        return None
