"""`Seats` under any order of what can happen to them, beside the account of `seat_worlds.SeatWorld`."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from arl_tangram.model.gpu import Chunk, HostedService, Instance
from arl_tangram.scheduling.gpu.eviction import make_eviction
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld, service_of

PICK = st.integers(0, 1 << 30)
STEPS_S = st.sampled_from([0.0, 0.1, 0.5, 1.0, 5.0, 60.0])
DOPS = st.sampled_from([(1,), (1,), (2,), (1, 2), (1, 2, 4), (4,), (8,)])


@st.composite
def services(draw: st.DrawFn, devices: int) -> list[HostedService]:
    """Draw what can be used on devices of 100 bytes: services that can be anywhere, and engines that cannot."""
    drawn: list[HostedService] = []
    for number in range(draw(st.integers(1, 6))):
        resident = draw(st.sampled_from([60, 30, 45, 100, 10, 1]))
        peak = min(resident + draw(st.sampled_from([0, 0, 5, 30])), 110)
        fixed: list[tuple[int, Chunk]] = []
        dops, evicted = draw(DOPS), 0
        if draw(st.integers(0, 4)) == 0:
            size = draw(st.sampled_from([1, 2]))
            if devices >= size:
                dops, evicted = (size,), draw(st.sampled_from([0, 1, 5]))
                fixed = [(size, Chunk(draw(st.integers(0, devices // size - 1)) * size, size))]
        drawn.append(
            service_of(
                f"s{number}",
                resident,
                peak,
                dops=dops,
                restore_s=draw(st.sampled_from([0.1, 1.0, 10.0])),
                places=draw(st.sampled_from([1, 2, 4])),
                exclusive=draw(st.booleans()),
                evicted=min(evicted, resident),
                chunks=fixed,
            )
        )
    return drawn


class SeatMachine(RuleBasedStateMachine):
    """Every command in any order; `SeatWorld` checks what follows from each."""

    @initialize(
        sizes=st.sampled_from([(1,), (2,), (4,), (2, 1), (3,), (8,), (4, 4)]),
        policy=st.sampled_from(["loss", "loss", "lru", "gdsf"]),
        data=st.data(),
    )
    def begin(self, sizes, policy, data) -> None:  # type: ignore[no-untyped-def]
        nodes = nodes_of(*sizes)
        self.world = SeatWorld(nodes, data.draw(services(sizes[0])), make_eviction(policy))
        self.first = len(self.world.capacity)
        self.lent: int | None = None

    @rule(
        picks=st.lists(PICK, min_size=1, max_size=6),
        priority=st.sampled_from([0, 0, 0, -1, 1]),
        seconds=st.sampled_from([0.1, 1.0, 100.0]),
    )
    def ask(self, picks: list[int], priority: int, seconds: float) -> None:
        names = list(self.world.services)
        for pick in picks:
            name = names[pick % len(names)]
            dops = self.world.services[name].dops
            self.world.ask(name, dops, [seconds / dop for dop in dops], priority=priority)

    @rule(dops=st.sampled_from([(1,), (2,), (1, 2), (4,), (16,)]))
    def ask_for_devices(self, dops) -> None:  # type: ignore[no-untyped-def]
        self.world.ask(None, dops)

    @rule(picks=st.lists(PICK, min_size=1, max_size=8), together=st.booleans(), fails=st.integers(0, 3))
    def go_on(self, picks: list[int], together: bool, fails: int) -> None:
        """What usually happens: restores arrive, actions end, others follow."""
        for pick in picks:
            self.world.decide(together=together)
            restoring = [instance for instance, there in self.world.there.items() if there.restoring]
            if restoring and (pick & 1 or not self.world.seated):
                self.arrive_at(restoring[(pick >> 3) % len(restoring)], fails=fails == 0 and bool(pick & 2))
            elif self.world.seated:
                self.world.rise(list(self.world.seated)[(pick >> 3) % len(self.world.seated)])

    @rule(together=st.booleans())
    def decide(self, together: bool) -> None:
        self.world.decide(together=together)
        assert self.world.decide() == [], "nothing has changed, and yet somebody sits"

    @precondition(lambda self: self.world.seated)
    @rule(which=PICK)
    def rise(self, which: int) -> None:
        self.world.rise(list(self.world.seated)[which % len(self.world.seated)])

    @precondition(lambda self: self.world.waiting)
    @rule(which=PICK)
    def forget(self, which: int) -> None:
        self.world.forget(self.world.waiting[which % len(self.world.waiting)].action_id)

    @precondition(lambda self: any(there.restoring for there in self.world.there.values()))
    @rule(
        which=PICK, took_s=st.sampled_from([0.0, 0.5, 20.0, float("nan")]), fails=st.sampled_from([False, False, True])
    )
    def arrive(self, which: int, took_s: float, fails: bool) -> None:
        restoring = [instance for instance, there in self.world.there.items() if there.restoring]
        self.arrive_at(restoring[which % len(restoring)], took_s, fails=fails)

    def arrive_at(self, instance: Instance, took_s: float = 1.0, *, fails: bool) -> None:
        if fails:
            self.world.failed(instance)
        else:
            self.world.restored(instance, took_s)

    @precondition(lambda self: self.world.there)
    @rule(which=PICK)
    def lose(self, which: int) -> None:
        self.world.lost(list(self.world.there)[which % len(self.world.there)])

    @rule(seconds=STEPS_S)
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(which=PICK, capacity=st.sampled_from([0, 1, 50, 100, 100, 200]))
    def resize(self, which: int, capacity: int) -> None:
        self.world.set_capacity(which % len(self.world.capacity), capacity)

    @precondition(lambda self: self.lent is None)
    @rule()
    def lend(self) -> None:
        """Two devices more, always the same ones."""
        self.lent = self.first
        self.world.lend(self.first, nodes_of(2)[0])

    @precondition(lambda self: self.lent is not None)
    @rule()
    def reclaim(self) -> None:
        assert self.lent is not None
        self.world.reclaim(self.lent, 2)
        self.lent = None

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle()
        for device in range(len(world.capacity)):
            world.set_capacity(device, 0)
        assert not world.there
        for device in range(len(world.capacity)):
            assert world.seats.used_bytes(device) == sum(world.kept_on(device).values()), "a leak"


TestSeats = SeatMachine.TestCase
