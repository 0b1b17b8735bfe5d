"""The scheduler of a shared runtime, made when its nodes are known, and what its clients are told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from arl_tangram.dispatch import Dispatcher, watched
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray.nodes import Node, Nodes
from arl_tangram.integrations.ray.wire import Reshaped, Shape, SharedQuota
from arl_tangram.model.gpu import Instance
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.quantities import capacity_units, is_name
from arl_tangram.model.statistics import DimensionStatistics, Statistics
from arl_tangram.model.topology import Dimension, is_breaker, resource_of
from arl_tangram.opening import Happened, sink_of
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.setup import Setup
from arl_tangram.trace.report import render
from arl_tangram.trace.summary import Summary

_MOST_DEMANDS = 10_000


class Decider:
    """The scheduler and its trace.

    Attributes:
        core: decides.
        dispatcher: drives it.
        shape: what there is now.

    Args:
        setup: what is declared.
        nodes: that there are; they get their numbers here.
        on_shape: called when there is more or less of something.
        order: the names of nodes, as an earlier owner had numbered them.

    Raises:
        ConfigurationError: the nodes do not go together.
    """

    def __init__(self, setup: Setup, nodes: Nodes, on_shape: Callable[[], None], order: Sequence[str] = ()) -> None:
        self._setup = setup
        self._nodes = nodes
        self._on_shape = on_shape
        self._demands: dict[Demand, Demand] = {}
        nodes.settle(order)
        seats = nodes.seats(getattr(setup.gpus, "policy", "loss"))
        services = [service.name for service in nodes.services()]
        topology = setup.topology(nodes.dimensions(), nodes.cores(), seats, services)
        nodes.made(topology)
        self._sink = sink_of(setup, topology)
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
        self.dispatcher.on_evicted = nodes.evicted
        self._summary.opened(self.dispatcher.time())
        quotas = tuple(SharedQuota(quota.name, tuple(quota.keys), quota.longest_pause_s) for quota in setup.quotas)
        self.shape = Shape(
            1, topology.dimensions, nodes.offers(), quotas, setup.policy.reserved_cores, setup.kill_grace_s,
            setup.max_processes,
        )  # fmt: skip

    @property
    def told(self) -> Reshaped:
        """What sessions are told of the shape."""
        return Reshaped(self.shape)

    def interned(self, demand: Demand) -> Demand:
        """Return one object for all demands that are equal, with which the scheduler is faster."""
        with suppress(TypeError):  # a speed-up of the user's that cannot be hashed
            if len(self._demands) >= _MOST_DEMANDS:
                self._demands.clear()
            return self._demands.setdefault(demand, demand)
        return demand

    # What there is.

    def set_units(self, name: str, units: int) -> None:
        """Let a dimension have so many units, and tell everybody."""
        self.dispatcher.set_capacity(self.core.topology.index[name], units)
        self.reshape()

    def set_capacity(self, name: str, capacity: float) -> None:
        """Change what there is of a resource that no node has.

        Raises:
            ConfigurationError: no such resource, or a capacity that it cannot have.
        """
        topology = self.core.topology
        known = [other for other in topology.index if not is_breaker(other) and resource_of(other) is None]
        if not is_name(name) or name not in known:
            raise ConfigurationError(f"there is no resource {name!r} of all nodes; there are {', '.join(known)}")
        dimension = topology.dimensions[topology.index[name]]
        self.set_units(name, capacity_units(capacity, dimension.scale, f"set_capacity({name!r})", ConfigurationError))

    def keep_capacity(self, dimension: Dimension) -> None:
        """Let a dimension have what an earlier owner had set."""
        index = self.core.topology.index.get(dimension.name)
        if index is not None and self.core.topology.dimensions[index].capacity != dimension.capacity:
            self.dispatcher.set_capacity(index, dimension.capacity)

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
            dimensions=self.core.topology.dimensions,
            nodes=self._nodes.offers(),
            lost=self._nodes.lost(),
        )
        self._on_shape()

    # Looking in.

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now."""
        core = self.core
        core.advance(self.dispatcher.now_s())
        return Statistics(
            waiting=core.waiting,
            running=core.running,
            lingering=(),
            trajectories=core.trajectories,
            dimensions={
                d.name: DimensionStatistics(core.capacity(i) / d.scale, core.used(i) / d.scale, core.free(i) / d.scale)
                for i, d in enumerate(core.topology.dimensions)
                if not is_breaker(d.name)
            },
        )

    def report(self) -> str:
        """Return the text of the report."""
        self.dispatcher.tell()
        return render(self._summary, now_s=self.dispatcher.now_s(), learned=self.core.durations.learned())

    async def aclose(self) -> None:
        """Decide nothing any more, and close the trace."""
        self.dispatcher.stop()
        if self._sink is not None:
            await self._sink.aclose()
