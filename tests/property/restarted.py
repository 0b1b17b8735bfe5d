"""Let the world of a core go on with another core, rebuilt from what its calls and trajectories say they hold."""

from __future__ import annotations

from dataclasses import replace

from arl_tangram.errors import TangramError
from arl_tangram.integrations.ray.owner.rebuilding import Rebuilt, rebuild
from arl_tangram.integrations.ray.wire import Declare, HeldCall, HeldTrajectory, Open, Resume, Shape, Submit
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from property.worlds import World

_PLENTY = 1 << 50


class Session:
    """What one of several sessions tells; who is in which follows from the trajectory, or the outermost caller."""

    def __init__(self, world: World, number: int, of: dict[int, int], origin: dict[int, Demand]) -> None:
        self._world = world
        self._mine = {i for i, session in of.items() if session == number}
        self._origin = origin
        self._demands: dict[int, tuple[int, Demand]] = {}

    def resume(self) -> Resume:
        world, mine = self._world, self._mine
        trajectories = tuple(
            HeldTrajectory(
                Open(i, self._number(state.demand), "g", world.now - _action(world, i).submitted_at_s),
                world.core.node_of(i),
                state.closing,
            )
            for i, state in world.open_trajectories.items()
            if i in mine
        )
        running = tuple(self._held(i) for i in sorted(world.running) if i in mine)
        waiting = tuple(self._submit(world.waiting[i]) for i in sorted(world.waiting) if i in mine)
        opening = tuple(
            Open(i, self._number(a.demand), "g", world.now - a.submitted_at_s)
            for i, a in world.opening.items()
            if i in mine
        )
        declared = tuple(Declare(number, demand) for number, demand in self._demands.values())
        return Resume(Shape(1, world.topology.dimensions, ()), declared, trajectories, running, waiting + opening)

    def _number(self, demand: Demand) -> int:
        return self._demands.setdefault(id(demand), (len(self._demands), demand))[0]

    def _submit(self, action: PendingAction, demand: Demand | None = None) -> Submit:
        return Submit(
            action.id, self._number(demand or action.demand), action.key, action.trajectory, action.turn,
            action.parent, self._world.now - action.submitted_at_s,
        )  # fmt: skip

    def _held(self, i: int) -> HeldCall:
        world, running = self._world, self._world.running[i]
        loan = world.callers.loans.get(i)
        lent = None
        if loan is not None:
            lent = not (loan.keeps_turn or (world.cores_of(running)[1] and not loan.cores))
        demand = self._origin.get(i, running.pending.demand)
        units = running.units if demand.elastic is not None else 0
        reclaim = 1 if loan is not None and loan.wanted else None
        ran_s = world.now - running.started_at_s
        return HeldCall(self._submit(running.pending, demand), None, units, False, lent, reclaim, ran_s)


def restart(world: World, origin: dict[int, Demand], sessions: int = 1) -> Rebuilt:
    """Rebuild the core of a world; everything has its old id again.

    Args:
        world: the world.
        origin: what calls that run asked for before they were pinned; is kept up to date.
        sessions: among so many what is told is divided.
    """
    core = _new_core(world)
    of = _sessions(world, sessions)
    told = [Session(world, number, of, origin).resume() for number in range(sessions)]
    for resume in told:
        demands = {declared.number: declared.demand for declared in resume.demands}
        origin.update((call.submit.id, demands[call.submit.demand]) for call in resume.running)
    told[0] = replace(told[0], charges=tuple(_charges(world, origin)))
    order = sorted(of, key=lambda i: (-(world.now - _action(world, i).submitted_at_s), of[i], i))
    ids = iter(order)

    def new_id() -> int:
        world._next_id += 0 if (known := next(ids, None)) else 1
        return known or world._next_id

    rebuilt = rebuild(core, told, world.now, new_id)
    assert not rebuilt.refused
    assert all(old == new for ids_of in rebuilt.ids for old, new in ids_of.items())
    assert rebuilt.running.keys() == world.running.keys()
    assert [w.id for w in rebuilt.waiting] == [i for i in order if i in world.waiting or i in world.opening]
    _account(world, rebuilt, origin, told[0])
    world.core = core
    _go_on(world)
    return rebuilt


def _new_core(world: World) -> SchedulerCore:
    """Return a core with the present capacities; if these were ever changed, with plenty until all is rebuilt."""
    dimensions = list(world.topology.dimensions)
    if world.core._resizing.happened:
        dimensions = [d if d.window_s is not None else replace(d, capacity=_PLENTY) for d in dimensions]
    return SchedulerCore(Topology(dimensions), world.policy, order=world.core._order, record=True)


def _action(world: World, i: int) -> PendingAction:
    if i in world.running:
        return world.running[i].pending
    if i in world.open_trajectories:
        held = world.core._trajectories[i].held
        assert held is not None
        return held
    return world.waiting.get(i) or world.opening[i]


def _sessions(world: World, count: int) -> dict[int, int]:
    known = [*world.running.values()]
    actions = {r.pending.id: r.pending for r in known} | world.waiting
    of: dict[int, int] = {}

    def session(i: int) -> int:
        action = actions.get(i)
        if action is None:
            return i % count
        if action.trajectory is not None:
            return action.trajectory % count
        return session(action.parent) if action.parent in actions else i % count

    for i in [*world.open_trajectories, *world.opening, *actions]:
        of[i] = session(i)
    return of


def _charges(world: World, origin: dict[int, Demand]) -> list[tuple[int, int, float]]:
    """What those took of rates that do not run any more, and how long ago."""
    left = list(world._in_windows)
    for i, running in world.running.items():
        for dimension, units in origin[i].fixed:
            window_s = world.topology.dimensions[dimension].window_s
            entry = (running.started_at_s + (window_s or 0), dimension, units)
            if window_s is not None and entry in left:
                left.remove(entry)
    return [
        (dimension, units, world.now - (at_s - (world.topology.dimensions[dimension].window_s or 0)))
        for at_s, dimension, units in left
    ]


def _account(world: World, rebuilt: Rebuilt, origin: dict[int, Demand], told: Resume) -> None:
    """Let the account know what was rounded, and what is another object now."""
    started_s = {i: world.now - (world.now - running.started_at_s) for i, running in world.running.items()}
    world.running = {i: rebuilt.running[i] for i in world.running}
    assert {i: running.started_at_s for i, running in world.running.items()} == started_s
    taken = [(world.now - age_s, dimension, units) for dimension, units, age_s in told.charges]
    taken += [
        (r.started_at_s, dimension, units) for i, r in world.running.items() for dimension, units in origin[i].fixed
    ]
    world._in_windows = [
        (at_s + window_s, dimension, units)
        for at_s, dimension, units in taken
        if (window_s := world.topology.dimensions[dimension].window_s) is not None and at_s + window_s > world.now
    ]
    world._deferred.clear()
    world.refusals.clear()


def _go_on(world: World) -> None:
    """Do with the new core what an owner does then: capacities, what is wanted back, and those who wait."""
    core = world.core
    for dimension, units in enumerate(world.capacity):
        if core.topology.dimensions[dimension].capacity != units:
            core.set_capacity(dimension, units, world.now)
    for dimension, until_s in world.paused.items():
        core.pause(dimension, until_s)
    core.halt(world.halted, world.now)
    for i, loan in list(world.callers.loans.items()):
        if loan.wanted and core.reclaim(i, world.now):
            del world.callers.loans[i]
    for i in sorted([*world.waiting, *world.opening]):
        try:
            if i in world.waiting:
                core.submit(world.waiting[i])
            else:
                core.open(world.opening[i], group="g")
        except TangramError:
            world._leave(i)
    core.drain_events()
    world.check()
