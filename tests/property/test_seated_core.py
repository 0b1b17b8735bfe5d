"""The core with a pool of GPUs under any order of what can happen to it, beside an account of who uses what."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arl_tangram.errors import InfeasibleError, NestedActionError, RestoreError
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.events import ActionStarted, RestoreFailed, ServiceEvicted, ServiceLost, ServiceRestored
from arl_tangram.model.gpu import Chunk, Footprint, GpuDevice, GpuNode, HostedService, Instance
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction, RunningAction
from arl_tangram.model.topology import CPU, GPU, PROCESSES, Dimension, Topology, service_seats
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import resolve
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.seats import Seats
from arl_tangram.scheduling.policies import elastic

MOST_STEPS = 5000


@st.composite
def services(draw: st.DrawFn) -> list[HostedService]:
    hosted = []
    for number in range(draw(st.integers(1, 4))):
        dops = draw(st.sampled_from([(1,), (1,), (2,), (1, 2)]))
        resident = draw(st.integers(1, 10))
        hosted.append(
            HostedService(
                f"s{number}",
                tuple((dop, Footprint(resident, resident + draw(st.integers(0, 3)))) for dop in dops),
                tuple((dop, draw(st.sampled_from([0.1, 1.0, 10.0]))) for dop in dops),
                draw(st.integers(1, 3)),
                draw(st.booleans()),
            )
        )
    return hosted


class World:
    """A core with seats, and what a manager would have done with each decision."""

    def __init__(self, gpus: int, hosted: list[HostedService], policy: str, nodes: list[GpuNode] | None = None) -> None:
        self.hosted = {service.name: service for service in hosted}
        node = GpuNode("", tuple(GpuDevice(f"gpu{n}", 10) for n in range(gpus)))
        self.seats = Seats(nodes or [node], hosted, make_eviction(policy))  # type: ignore[arg-type]
        counted = [Dimension(service_seats(s.name), self.seats.capacity_of(s.name)) for s in hosted]
        self.topology = Topology([Dimension(CPU, 4000, 1000), Dimension(PROCESSES, 4), Dimension(GPU, gpus), *counted])
        self.core = SchedulerCore(self.topology, elastic(), record=True, seats=self.seats)
        self.now = 0.0
        self.waiting: dict[int, PendingAction] = {}
        self.running: dict[int, RunningAction] = {}
        self.lent: set[int] = set()
        self.wanted: set[int] = set()
        self.children: dict[int, set[int]] = {}
        self.there: dict[Instance, Chunk] = {}
        self.restoring: list[Instance] = []
        self.unseated: set[int] = set()
        self.gave_up: dict[int, Exception] = {}
        self.died: set[Instance] = set()
        self.next_id = 0

    def demand(self, service: str | None, gpu: int | Elastic, cpu: float, queue_timeout: float | None) -> Demand:
        name = f"{service}-{gpu}-{cpu}-{queue_timeout}"
        cost = declare_cost(name, cpu=cpu, service=service, gpu=gpu)
        kind = BodyKind.PROCESS if gpu else BodyKind.ASYNC
        spec = ActionSpec(name, cost, kind, queue_timeout=queue_timeout)
        demand = resolve(spec, self.topology, services=self.hosted)
        self.core.seating.check(demand)
        return demand

    def submit(self, demand: Demand, parent: int | None = None) -> bool:
        self.next_id += 1
        action = PendingAction(self.next_id, demand, self.now, parent=parent)
        try:
            self.core.submit(action)
        except NestedActionError:
            assert parent is not None
            return False
        self.waiting[action.id] = action
        if parent is not None:
            self.children.setdefault(parent, set()).add(action.id)
        return True

    def decide(self) -> bool:
        """Decide once, and do what is decided; return whether anything was."""
        decisions = self.core.decide(self.now)
        for instance in decisions.evicted or ():
            self.evict(instance)
        for running in decisions.started:
            self.start(running)
        for action_id in decisions.expired:
            self.forget(action_id)
        for action_id, error in decisions.impossible:
            assert isinstance(error, (NestedActionError, RestoreError, InfeasibleError)), error
            self.gave_up[action_id] = error
            self.forget(action_id)
        for running in decisions.resumed:
            self.wanted.discard(running.pending.id)
            self.lent.discard(running.pending.id)
        events = self.core.drain_events()
        told = [e.action for e in events if isinstance(e, ActionStarted)]
        assert told == decisions.started, (told, decisions.started)
        return decisions.any or decisions.more

    def evict(self, instance: Instance) -> None:
        users = [r for r in self.running.values() if r.seat is not None and r.seat.instance == instance]
        assert all(user.pending.id in self.unseated for user in users), f"{instance} is evicted under {users}"
        assert instance not in self.restoring, f"{instance} is evicted while it is restored"
        assert self.there.pop(instance, None) is not None or instance in self.died, f"{instance} is not there"

    def start(self, running: RunningAction) -> None:
        action = self.waiting.pop(running.pending.id)
        need, seat = action.demand.seat, running.seat
        assert (need is None) == (seat is None)
        if seat is not None and need is not None:
            for victim in seat.evicts:
                self.evict(victim)
            assert seat.chunk.size in need.dops
            if seat.instance is None:
                taken = [c for c in self.there.values() if set(c.devices) & set(seat.chunk.devices)]
                assert not taken, "somebody is where a body has the GPUs to itself"
            elif seat.restores:
                assert seat.instance not in self.there
                self.there[seat.instance] = seat.chunk
                self.restoring.append(seat.instance)
            else:
                assert self.there[seat.instance] == seat.chunk, "joined what is not there"
        self.running[action.id] = running

    def forget(self, action_id: int) -> None:
        action = self.waiting.pop(action_id)
        if action.parent in self.children:
            self.children[action.parent].discard(action_id)

    def finish(self, action_id: int, duration_s: float | None = 1.0) -> None:
        running = self.running.pop(action_id)
        for child in self.children.pop(action_id, ()):
            if child in self.waiting:
                self.waiting[child] = self.waiting[child]._replace(parent=None)
        self.core.finish(action_id, self.now, duration_s)
        self.lent.discard(action_id)
        self.wanted.discard(action_id)
        self.unseated.discard(action_id)
        parent = running.pending.parent
        if parent in self.children:
            self.children[parent].discard(action_id)

    def restored(self, instance: Instance) -> None:
        self.restoring.remove(instance)
        self.core.seating.restored(instance, 0.5, self.now)
        assert isinstance(self.core.drain_events()[-1], ServiceRestored)

    def failed(self, instance: Instance) -> None:
        self.restoring.remove(instance)
        users = self.users(instance)
        self.core.seating.failed(instance, self.now)
        assert any(isinstance(event, RestoreFailed) for event in self.core.drain_events())
        del self.there[instance]
        self.unseated |= set(users)

    def lost(self, instance: Instance) -> None:
        users = self.users(instance)
        self.core.seating.lost(instance, self.now)
        assert any(isinstance(event, ServiceLost) for event in self.core.drain_events())
        if instance in self.restoring:
            self.restoring.remove(instance)
        del self.there[instance]
        self.died.add(instance)
        self.unseated |= set(users)

    def users(self, instance: Instance) -> list[int]:
        return [
            i
            for i, r in self.running.items()
            if r.seat is not None and r.seat.instance == instance and i not in self.unseated
        ]

    def send_back(self, action_id: int) -> None:
        running = self.running.pop(action_id)
        assert self.core.send_back(action_id, self.now)
        self.unseated.discard(action_id)
        self.waiting[action_id] = running.pending

    def idle_callers(self) -> list[int]:
        return [i for i in self.lent if i not in self.wanted and not self.children.get(i)]

    def reclaim(self, action_id: int) -> None:
        if self.core.reclaim(action_id, self.now):
            self.lent.discard(action_id)
        else:
            self.wanted.add(action_id)

    def check(self) -> None:
        core = self.core
        for index in range(len(self.topology.dimensions)):
            assert core.free(index) >= 0
            assert core.free(index) + core.used(index) == core.capacity(index)
        assert core.waiting == len(self.waiting)
        assert core.running == len(self.running)
        for name, dimension in self.topology.services.items():
            needs = [running.pending.demand.seat for running in self.running.values()]
            using = [need for need in needs if need is not None and need.service == name]
            assert core.used(dimension) == len(using)
        for device in range(self.seats.devices):
            used, free = self.seats.used_bytes(device), self.seats.free_bytes(device)
            assert used + free == self.seats.capacity_bytes(device)
        bodies = [r for r in self.running.values() if r.seat is not None and r.seat.instance is None]
        assert core.used(self.topology.index[GPU]) == sum(r.seat.chunk.size for r in bodies if r.seat is not None)
        leaving = self.seats._evicted  # what the next decision says that has to go
        assert dict(self.seats.resident()) == {i: chunk for i, chunk in self.there.items() if i not in leaving}
        assert {i for i, _ in self.seats.resident() if self.seats.is_restoring(i)} == set(self.restoring)
        held: set[int] = set()
        for action_id, running in self.running.items():
            seat = running.seat
            if action_id in self.unseated or seat is None:
                assert self.seats.seat_of(action_id) is None
                continue
            assert self.seats.seat_of(action_id) == seat
            if seat.instance is None:
                assert not held & set(seat.chunk.devices)
                held |= set(seat.chunk.devices)
        for instance in self.there:
            assert len(self.users(instance)) <= self.hosted[instance.service].max_concurrency
            if self.hosted[instance.service].exclusive and self.users(instance):
                others = [
                    i
                    for i, r in self.running.items()
                    if r.seat is not None
                    and i not in self.unseated
                    and r.seat.instance != instance
                    and set(r.seat.chunk.devices) & set(self.there[instance].devices)
                ]
                assert not others, "compute is not shared with an exclusive service"


class Seated(RuleBasedStateMachine):
    """Every command in any order."""

    @initialize(
        gpus=st.sampled_from([1, 2, 4]), hosted=services(), policy=st.sampled_from(["loss", "loss", "lru", "gdsf"])
    )
    def begin(self, gpus: int, hosted: list[HostedService], policy: str) -> None:
        self.world = World(gpus, hosted, policy)
        self.demands: list[Demand] = []
        for service in [*self.world.hosted, None]:
            for gpu in (0,) if service else (1, 2, Elastic(1, 2), Elastic.of(1, 4, speedup=Linear())):
                for cpu in (0, 1):
                    for timeout in (None, 5.0):
                        with suppress(InfeasibleError):
                            self.demands.append(self.world.demand(service, gpu, cpu, timeout))
        with suppress(InfeasibleError):
            self.demands.append(self.world.demand(None, 0, 2, None))

    @rule(which=st.integers(0, 1 << 20), repeat=st.sampled_from([1, 1, 2, 5, 40]))
    def submit(self, which: int, repeat: int) -> None:
        for n in range(repeat):
            self.world.submit(self.demands[(which + n // 8) % len(self.demands)])

    @rule()
    def decide(self) -> None:
        self.world.decide()

    @precondition(lambda self: self.world.running)
    @rule(which=st.integers(0, 1 << 20), duration_s=st.sampled_from([None, 0.1, 3.0]))
    def finish(self, which: int, duration_s: float | None) -> None:
        self.world.finish(_pick(self.world.running, which), duration_s)

    @precondition(lambda self: self.world.waiting)
    @rule(which=st.integers(0, 1 << 20))
    def withdraw(self, which: int) -> None:
        action_id = _pick(self.world.waiting, which)
        self.world.core.withdraw(action_id)
        self.world.forget(action_id)

    @precondition(lambda self: self.world.restoring)
    @rule(which=st.integers(0, 1 << 20))
    def restored(self, which: int) -> None:
        self.world.restored(_pick(self.world.restoring, which))

    @precondition(lambda self: self.world.restoring)
    @rule(which=st.integers(0, 1 << 20))
    def failed(self, which: int) -> None:
        self.world.failed(_pick(self.world.restoring, which))

    @precondition(lambda self: self.world.there)
    @rule(which=st.integers(0, 1 << 20))
    def lost(self, which: int) -> None:
        self.world.lost(_pick(self.world.there, which))

    @precondition(lambda self: self.world.unseated)
    @rule(which=st.integers(0, 1 << 20))
    def send_back(self, which: int) -> None:
        action_id = _pick(sorted(self.world.unseated), which)
        if action_id not in self.world.lent and not self.world.children.get(action_id):
            self.world.send_back(action_id)

    @precondition(lambda self: self.world.running)
    @rule(parent=st.integers(0, 1 << 20), which=st.integers(0, 1 << 20), repeat=st.integers(1, 2))
    def call(self, parent: int, which: int, repeat: int) -> None:
        caller = _pick(self.world.running, parent)
        if caller in self.world.unseated or caller in self.world.wanted:
            return
        called = [self.world.submit(self.demands[(which + n) % len(self.demands)], caller) for n in range(repeat)]
        if any(called):
            self.world.core.lend(caller, self.world.now)
            self.world.lent.add(caller)

    @precondition(lambda self: self.world.idle_callers())
    @rule(which=st.integers(0, 1 << 20))
    def reclaim(self, which: int) -> None:
        self.world.reclaim(_pick(self.world.idle_callers(), which))

    @rule(step_s=st.sampled_from([0.0, 0.1, 1.0, 10.0]))
    def advance(self, step_s: float) -> None:
        self.world.now += step_s

    @rule(device=st.integers(0, 3), size=st.sampled_from([3, 7, 10]))
    def set_device(self, device: int, size: int) -> None:
        if device < self.world.seats.devices:
            self.world.core.seating.set_device(device, size, self.world.now)

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "world"):
            self.world.core.drain_events()
            self.world.check()

    def teardown(self) -> None:
        """Let everything end: whoever waits is served, and then nothing is used."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for device in range(world.seats.devices):
            world.core.seating.set_device(device, 10, world.now)
        for _ in range(MOST_STEPS):
            if world.decide():
                continue
            at_s = world.core.next_wakeup_s()
            if world.unseated and (back := [i for i in sorted(world.unseated) if i not in world.lent]):
                world.finish(back[0], None)
            elif world.restoring:
                world.restored(world.restoring[0])
            elif busy := [i for i in world.running if i not in world.lent]:
                world.finish(busy[0])
            elif idle := world.idle_callers():
                world.reclaim(idle[0])
            elif at_s is not None:
                world.now = max(at_s, world.now)
            elif world.waiting or world.running:
                raise AssertionError(f"stuck: {world.waiting} wait, {world.running} run, {world.there}")
            else:
                break
        else:
            raise AssertionError("it never ends")
        world.now += 1000
        world.decide()
        assert all(world.core.used(index) == 0 for index in range(len(world.topology.dimensions)))


def _pick(ids, which: int):  # type: ignore[no-untyped-def]
    ids = list(ids)
    return ids[which % len(ids)]


def test_the_events_of_evictions_name_what_left() -> None:
    hosted = [HostedService(name, ((1, Footprint(8, 8)),), ((1, 1.0),)) for name in ("a", "b")]
    world = World(1, hosted, "loss")
    for name in ("a", "b"):
        world.submit(world.demand(name, 0, 0, None))
        world.core.decide(world.now)
        world.core.seating.restored(Instance(name, 1), 1.0, world.now)
        world.core.finish(world.next_id, world.now, 1.0)
    events = [event for event in world.core.drain_events() if isinstance(event, (ServiceEvicted, ServiceRestored))]
    assert events == [
        ServiceRestored(0.0, Instance("a", 1), Chunk(0, 1), 1.0),
        ServiceEvicted(0.0, Instance("a", 1), Chunk(0, 1)),
        ServiceRestored(0.0, Instance("b", 1), Chunk(0, 1), 1.0),
    ]


TestSeated = Seated.TestCase
