"""Nobody waits for ever for a seat: adversaries that never stop asking do not keep one that came before them from its.

A play goes on in virtual time: restores arrive after what they take, actions end after their durations, and after each
end others ask, for services that are resident, too. Whoever is first in line is served within the bound that `claims`
promises: three times the restores that its place costs, then the longest that somebody can still sit there.
"""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.gpu import HostedService, Instance
from arl_tangram.scheduling.gpu.eviction import EvictionName, make_eviction
from property.gpu_rooms import nodes_of
from property.seat_worlds import SeatWorld, service_of

LONGEST_S = 7.0
WAITING = 12


class Play:
    """A world in which time goes on by itself.

    Args:
        world: the seats.
        seed: of durations, and of what is asked for.
    """

    def __init__(self, world: SeatWorld, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.events: list[tuple[float, int, int | Instance]] = []
        self.ends: dict[int, float] = {}

    def feed(self, most: int) -> None:
        """Others ask, until so many wait."""
        names = [*self.world.services, None]
        while len(self.world.waiting) < most:
            name = self.chance.choice(names)
            dops = (1,) if name is None else self.world.services[name].dops
            self.world.ask(name, dops, [LONGEST_S / dop for dop in dops])

    def step(self) -> None:
        """Decide, and go on to the next thing that happens."""
        world = self.world
        before = set(world.seated)
        restored = len(world.restores)
        world.decide(together=self.chance.random() < 0.5)
        for instance in world.restores[restored:]:
            self._push(world.now + world.seats.restore_s(instance), instance)
        for action_id in [i for i in world.seated if i not in before]:
            seat = world.seats.seat_of(action_id)
            assert seat is not None
            if seat.instance is None or not world.there[seat.instance].restoring:
                self._end_later(action_id)
        if not self.events:
            assert world.next_look_s is not None, "nothing will ever happen again"
            world.now = world.next_look_s
            return
        world.now, _, what = heapq.heappop(self.events)
        if isinstance(what, Instance):
            world.restored(what, world.seats.restore_s(what))
            for action_id in world.there[what].seated:
                self._end_later(action_id)
        else:
            world.rise(what)

    def _end_later(self, action_id: int) -> None:
        self._push(self.world.now + self.chance.choice([0.01, 0.5, 1.0, LONGEST_S]), action_id)

    def _push(self, at_s: float, what: int | Instance) -> None:
        heapq.heappush(self.events, (at_s, len(self.events) + self.chance.randrange(1 << 30), what))


SERVICES = st.builds(
    service_of,
    name=st.just(""),
    resident=st.sampled_from([10, 30, 60, 100]),
    dops=st.sampled_from([(1,), (1,), (2,), (1, 2)]),
    restore_s=st.sampled_from([0.1, 1.0, 10.0]),
    places=st.sampled_from([1, 4, 99]),
    exclusive=st.booleans(),
)


@given(
    st.lists(SERVICES, min_size=2, max_size=6),
    st.sampled_from([(2,), (4,), (2, 2), (1,)]),
    st.sampled_from(["loss", "lru", "gdsf"]),
    st.integers(0, 1 << 30),
)
def test_the_first_in_line_is_served_within_the_bound_of_its_claim(
    drawn: list[HostedService], sizes: tuple[int, ...], policy: EvictionName, seed: int
) -> None:
    services = [
        service_of(
            f"s{number}",
            dict(service.footprints)[service.dops[0]].resident_bytes,
            dops=service.dops,
            restore_s=service.restore_s[0][1],
            places=service.max_concurrency,
            exclusive=service.exclusive,
        )
        for number, service in enumerate(drawn)
    ]
    world = SeatWorld(nodes_of(*sizes), services, make_eviction(policy))
    play = Play(world, seed)
    restores_s = sum(seconds for service in services for _, seconds in service.restore_s)
    bound_s = 3 * restores_s + max(seconds for service in services for _, seconds in service.restore_s) + LONGEST_S
    first, since_s = 0, 0.0
    for _ in range(80):
        play.feed(WAITING)
        if not world.waiting:
            break
        if world.waiting[0].action_id != first:
            first, since_s = world.waiting[0].action_id, world.now
        assert world.now - since_s <= bound_s + 1e-6, f"starved: {world.waiting[0]}"
        play.step()


@pytest.mark.parametrize("policy", ["loss", "lru", "gdsf"])
def test_a_big_service_gets_its_turn_among_small_ones_that_are_always_wanted(policy: EvictionName) -> None:
    services = [service_of(f"small{i}", 25, places=99, restore_s=0.5) for i in range(8)]
    services.append(service_of("big", 100, dops=(2,), restore_s=5.0))
    world = SeatWorld(nodes_of(2), services, make_eviction(policy))
    play = Play(world, 3)
    served = 0
    for _ in range(1500):
        while len(world.waiting) < 20:
            world.ask(f"small{play.chance.randrange(8)}")
            if not any(r.service == "big" for r in world.waiting):
                world.ask("big")
        before = {i for i, r in world.seated.items() if r.service == "big"}
        play.step()
        served += len({i for i, r in world.seated.items() if r.service == "big"} - before)
    assert served >= 10
    assert world.now / served < 5.0 + 3 * LONGEST_S + 16 * 0.5 + 20


def test_a_place_is_not_thrashed_by_two_that_want_it_in_turns() -> None:
    """Affinity: those who wait for what is resident go first within the bound, so that it is not restored for each."""
    world = SeatWorld(nodes_of(1), [service_of(name, 60, places=4, restore_s=4.0) for name in "ab"])
    play = Play(world, 5)
    for _ in range(400):
        while len(world.waiting) < 16:
            world.ask("ab"[play.chance.randrange(2)])
        play.step()
    assert len(world.restores) < world.seats_served / 4
