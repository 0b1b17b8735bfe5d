"""Seats become real: in the order of decisions, with few bytes moved, whatever fails; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from arl_tangram.errors import NoServiceError, RestoreError, ServiceLostError, ShutdownError, UsageError
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Chunk, Instance, Seat
from fake_services import MIB, FakeService, FakeSource, Told, started

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def hosting(source: FakeSource, *services: FakeService) -> AsyncIterator[tuple[GpuManager, Told]]:
    manager, told = await started(source, *services)
    try:
        yield manager, told
    finally:
        await manager.aclose()
        assert all(service.is_closed for service in services)


def seat(service: str, *, dop: int = 1, at: int = 0, evicts: str = "", joins: bool = False) -> Seat:
    """Return a seat: on an instance that is restored on devices from `at` on, unless it joins one."""
    victims = tuple(Instance(name, 1) for name in evicts.split())
    return Seat(Chunk(at, dop), Instance(service, dop), restores=not joins, evicts=victims)


async def use(lease: GpuLease, s: float = 0.0) -> None:
    await lease.ready()
    await lease.service.call(s=s)
    lease.release()


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_seat_is_ready_when_the_service_is_restored() -> None:
    async with hosting(FakeSource(100), FakeService("a", mib=20)) as (manager, told):
        lease = manager.take(seat("a"))
        with pytest.raises(UsageError, match="not ready"):
            lease.service  # noqa: B018 - reading it is what is tested
        began = now()
        await lease.ready()
        assert now() - began == pytest.approx(2.0)  # 20 MiB at 10 MiB/s
        assert told.what == ["restored a/1"]
        assert told.took_s == [pytest.approx(2.0)]
        assert lease.devices == ("fake:0",)
        await lease.service.call()
        handle = lease.service
        lease.release()
        lease.release()
        with pytest.raises(UsageError):
            await handle.call()
        with pytest.raises(UsageError, match="given back"):
            lease.service  # noqa: B018 - reading it is what is tested
        assert manager.statistics()["a"].restores == 1


async def test_case_106_thirty_two_at_once_share_one_restore() -> None:
    a = FakeService("a", max_concurrency=32)
    async with hosting(FakeSource(100), a) as (manager, told):
        leases = [manager.take(seat("a"))] + [manager.take(seat("a", joins=True)) for _ in range(31)]
        await asyncio.gather(*(use(lease) for lease in leases))
        assert a.did() == ["restore/1"]
        assert told.what == ["restored a/1"]
        counts = manager.statistics()["a"]
        assert (counts.uses, counts.restores, counts.hit_rate) == (32, 1, pytest.approx(31 / 32))


async def test_who_gives_up_does_not_end_the_restore() -> None:
    a = FakeService("a", mib=20)
    async with hosting(FakeSource(100), a) as (manager, told):
        lease = manager.take(seat("a"))
        waiting = asyncio.create_task(lease.ready())
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        lease.release()
        other = manager.take(seat("a", joins=True))
        await use(other)
        assert now() >= 2.0
        assert a.did() == ["restore/1"]
        assert told.what == ["restored a/1"]


async def test_a_seat_whose_action_never_began_is_real_all_the_same() -> None:
    a, b = FakeService("a", mib=60), FakeService("b", mib=60)
    async with hosting(FakeSource(100), a, b) as (manager, _):
        manager.take(seat("a")).release()
        manager.take(seat("b", evicts="a")).release()
        await use(manager.take(seat("b", joins=True)))
        assert (a.resident, list(b.resident)) == ({}, [1])


async def test_a_restore_waits_for_what_it_evicts() -> None:
    a, b = FakeService("a", mib=60, evict_s=3), FakeService("b", mib=60)
    async with hosting(FakeSource(100), a, b) as (manager, _):
        await use(manager.take(seat("a")))
        await use(manager.take(seat("b", evicts="a")))
        assert b.at("restore") - a.at("evict") == pytest.approx(3)


async def test_case_120_a_call_that_still_computes_is_waited_for() -> None:
    a, b = FakeService("a", mib=60), FakeService("b", mib=60)
    async with hosting(FakeSource(100), a, b) as (manager, _):
        lease = manager.take(seat("a"))
        await lease.ready()
        call = asyncio.create_task(lease.service.call(s=5))
        await asyncio.sleep(1)
        lease.release()
        await use(manager.take(seat("b", evicts="a")))
        assert b.at("restore") - a.at("evict") == pytest.approx(4)
        await call


async def test_bytes_that_another_seat_has_freed_are_waited_for_too() -> None:
    """`b` evicts `a` and leaves room; `c` takes that, without evicting anything itself."""
    a, b, c = FakeService("a", mib=90, evict_s=3), FakeService("b", mib=30), FakeService("c", mib=50)
    async with hosting(FakeSource(100), a, b, c) as (manager, _):
        await use(manager.take(seat("a")))
        first, second = manager.take(seat("b", evicts="a")), manager.take(seat("c"))
        await asyncio.gather(use(second), use(first))
        assert c.at("restore") >= b.at("restore") >= a.at("evict") + 3


async def test_copies_to_one_device_are_made_one_after_the_other() -> None:
    """Half as fast each, both would be there late; one after the other, the first is there soon."""
    async with hosting(FakeSource(100), FakeService("a", mib=30), FakeService("b", mib=30)) as (manager, told):
        began, first, second = now(), manager.take(seat("a")), manager.take(seat("b"))
        await first.ready()
        assert now() - began == pytest.approx(3)
        await second.ready()
        assert now() - began == pytest.approx(6)
        assert told.took_s == [pytest.approx(3), pytest.approx(3)]  # the wait is nobody's restore
        first.release()
        second.release()


async def test_copies_to_two_devices_are_made_at_the_same_time() -> None:
    async with hosting(FakeSource(100, 100), FakeService("a", mib=30), FakeService("b", mib=30)) as (manager, _):
        began, leases = now(), (manager.take(seat("a")), manager.take(seat("b", at=1)))
        await asyncio.gather(*(use(lease) for lease in leases))
        assert now() - began == pytest.approx(3)


async def test_an_instance_on_two_devices() -> None:
    a = FakeService("a", mib=30, dops=(1, 2))
    async with hosting(FakeSource(100, 100), a) as (manager, _):
        lease = manager.take(seat("a", dop=2))
        await lease.ready()
        assert lease.devices == ("fake:0", "fake:1")
        assert [place.device.name for place in await lease.service.call()] == ["fake:0", "fake:1"]
        one = manager.take(seat("a", at=1))  # another dop is another instance
        await use(one)
        lease.release()
        assert sorted(a.resident) == [1, 2]


async def test_evicted_and_restored_again_elsewhere_before_any_of_it_was_done() -> None:
    a, b = FakeService("a", mib=60, evict_s=2), FakeService("b", mib=60)
    async with hosting(FakeSource(100, 100), a, b) as (manager, told):
        await use(manager.take(seat("a")))
        leases = [manager.take(seat("b", evicts="a")), manager.take(seat("a", at=1))]
        await asyncio.gather(*(use(lease) for lease in leases))
        assert a.did() == ["restore/1", "evict/1", "restore/1"]
        assert [p.device.name for p in a.resident[1]] == ["fake:1"]
        assert told.what == ["restored a/1", "restored b/1", "restored a/1"]


async def test_evicted_while_it_is_restored() -> None:
    """A decision for nobody's sake: it is carried out afterwards, and who waits still gets the restore."""
    a, b = FakeService("a", mib=60), FakeService("b", mib=60)
    async with hosting(FakeSource(100), a, b) as (manager, told):
        manager.take(seat("a")).release()
        await asyncio.sleep(1)
        await use(manager.take(seat("b", evicts="a")))
        assert a.did() == ["restore/1", "evict/1"]
        assert told.what == ["restored b/1"]  # of what was evicted by then, nothing is said any more


# Compaction.


async def three(manager: GpuManager, *, gone: str) -> None:
    """Let `a`, `b`, `c` with 30 MiB each be on a device of 100 MiB, and evict some."""
    for name in "abc":
        await use(manager.take(seat(name)))
    for name in gone.split():
        manager.evict(Instance(name, 1))


def four() -> list[FakeService]:
    return [FakeService(name, mib=30) for name in "abc"] + [FakeService("d", mib=60)]


async def test_a_resident_is_moved_and_not_evicted() -> None:
    services = four()
    async with hosting(FakeSource(100), *services) as (manager, told):
        await three(manager, gone="a c")  # 30 free, b, 40 free
        began, lease = now(), manager.take(seat("d"))
        await use(lease)
        assert now() - began == pytest.approx(6, abs=0.1)
        assert services[1].did() == ["restore/1", "move/1"]
        services[1].check(1)
        assert told.what == ["restored a/1", "restored b/1", "restored c/1", "restored d/1"]
        assert manager.statistics()["b"].moves == 1
        await use(manager.take(seat("b", joins=True)))


async def test_what_computes_is_moved_afterwards_and_calls_wait_meanwhile() -> None:
    services = four()
    async with hosting(FakeSource(100), *services) as (manager, _):
        await three(manager, gone="a c")
        held = manager.take(seat("b", joins=True))
        await held.ready()
        call = asyncio.create_task(held.service.call(s=5))
        await asyncio.sleep(1)
        began, lease = now(), manager.take(seat("d"))
        await lease.ready()
        assert now() - began == pytest.approx(4 + 6, abs=0.1)
        await call
        await held.service.call()  # the lease was never lost
        held.release()
        lease.release()


async def test_a_lease_that_is_held_for_long_does_not_hold_up_a_move() -> None:
    services = four()
    async with hosting(FakeSource(100), *services) as (manager, _):
        await three(manager, gone="a c")
        held = manager.take(seat("b", joins=True))
        await held.ready()
        lease = manager.take(seat("d"))  # as an action does that `b`'s holder has called, and waits for
        await asyncio.wait_for(use(lease), 10)
        await held.service.call()
        held.release()


async def test_a_move_that_fails_is_a_restore_in_place_and_is_not_tried_again_for_the_same_one() -> None:
    services = four()
    services[1].move_errors = [RestoreError("a view is held")]
    async with hosting(FakeSource(100), *services) as (manager, told):
        await three(manager, gone="a c")
        with pytest.raises(RestoreError, match=r"no 60\.0 MiB in one piece on fake:0, and nothing there can be moved"):
            await asyncio.wait_for(manager.take(seat("d")).ready(), 10)
        assert services[1].did() == ["restore/1", "move/1", "restore/1"]
        await use(manager.take(seat("b", joins=True)))
        assert "lost b/1" not in told.what
        await use(manager.take(seat("d")))
        assert services[1].did()[3:] == ["move/1"]


async def test_what_cannot_be_moved_is_passed_over_for_what_can() -> None:
    names = [("a", 20), ("b", 20), ("c", 20), ("e", 30)]  # and 10 free
    services = [FakeService(name, mib=mib) for name, mib in names] + [FakeService("d", mib=30)]
    services[1].move_errors = [RestoreError("a view is held")] * 9
    async with hosting(FakeSource(100), *services) as (manager, _):
        for name, _mib in names:
            await use(manager.take(seat(name)))
        manager.evict(Instance("a", 1))
        manager.evict(Instance("c", 1))  # 20 free, b, 20 free, e, 10 free: b is the cheaper one to move
        await use(manager.take(seat("d")))
        assert services[1].did() == ["restore/1", "move/1", "restore/1"]
        assert services[3].did() == ["restore/1", "move/1"]


async def test_what_can_neither_be_moved_nor_restored_is_lost() -> None:
    services = four()
    services[1].move_errors, services[1].errors = [RestoreError("the copy failed")], []
    async with hosting(FakeSource(100), *services) as (manager, told):
        await three(manager, gone="a c")
        services[1].errors = [RestoreError("and again")]
        await use(manager.take(seat("d")))
        assert told.what[-2:] == ["lost b/1", "restored d/1"]
        await use(manager.take(seat("b")))  # its memory is free, so that it can come back


async def test_room_waits_for_what_leaves_and_never_for_what_comes_later() -> None:
    """`a` leaves for somebody who comes later, and comes back behind `d`, who waits for room: no circle of waiting."""
    services = four()
    services[0].evict_s = 2
    async with hosting(FakeSource(100), *services) as (manager, _):
        await three(manager, gone="b")  # a, 30 free, c, 10 free: nothing can be moved that suffices for 60
        manager.evict(Instance("c", 1))
        moved = manager.take(seat("d"))  # 30 + 30 + 10 free, a moves or not
        manager.evict(Instance("a", 1))
        again = manager.take(seat("a"))
        await asyncio.wait_for(asyncio.gather(use(moved), use(again)), 30)


async def test_room_waits_for_what_is_being_restored_and_moves_it_then() -> None:
    services = [FakeService(name, mib=30) for name in "abc"] + [FakeService("d", mib=40)]
    async with hosting(FakeSource(100), *services) as (manager, _):
        await use(manager.take(seat("a")))
        await use(manager.take(seat("b")))
        third = manager.take(seat("c"))
        await asyncio.sleep(1)
        manager.evict(Instance("b", 1))  # a, 30 free, c that is being restored, 10 free
        fourth = manager.take(seat("d"))
        await asyncio.gather(use(third), use(fourth))
        assert services[2].did() == ["restore/1", "move/1"]


async def test_two_devices_wait_for_the_move_of_one_instance() -> None:
    """`w` is on both devices, in the middle; each has to be compacted, and only one of them can move it at a time."""
    source = FakeSource(100, 100, move_bytes_per_s=10 * MIB)
    services = [FakeService("w", mib=20, dops=(2,)), *(FakeService(name, mib=40) for name in "ab")]
    services += [FakeService("c", mib=60), FakeService("d", mib=60)]
    async with hosting(source, *services) as (manager, _):
        for name, at in (("a", 0), ("b", 1)):
            await use(manager.take(seat(name, at=at)))
        await use(manager.take(seat("w", dop=2)))
        manager.evict(Instance("a", 1))
        manager.evict(Instance("b", 1))  # on both: 40 free, w, 40 free
        await asyncio.gather(use(manager.take(seat("c"))), use(manager.take(seat("d", at=1))))
        assert services[0].did() == ["restore/2", "move/2", "move/2"]


async def test_no_room_at_all_is_an_error_and_not_a_wait() -> None:
    source = FakeSource(100)
    async with hosting(source, FakeService("a", mib=50), FakeService("d", mib=40)) as (manager, told):
        await use(manager.take(seat("a")))
        strange = source.devices[0].allocate(20 * MIB)  # what nobody has counted
        assert strange is not None
        with pytest.raises(RestoreError, match=r"no 40\.0 MiB in one piece on fake:0"):
            await manager.take(seat("d")).ready()
        assert told.what[-1] == "failed d/1"
        source.devices[0].free(strange)


async def test_one_that_moves_to_other_devices_in_one_seat() -> None:
    a = FakeService("a", mib=60)
    async with hosting(FakeSource(100, 100), a) as (manager, told):
        await use(manager.take(seat("a")))
        await use(manager.take(seat("a", at=1, evicts="a")))
        await use(manager.take(seat("a", at=1, evicts="a")))
        assert a.did() == ["restore/1", "evict/1", "restore/1", "evict/1", "restore/1"]
        assert told.what == ["restored a/1"] * 3


# Failures.


async def test_a_restore_that_fails_gives_everything_back_and_is_told_first() -> None:
    a, b = FakeService("a", mib=60, errors=[RestoreError("no")], max_concurrency=2), FakeService("b", mib=60)
    async with hosting(FakeSource(100), a, b) as (manager, told):
        leases = [manager.take(seat("a")), manager.take(seat("a", joins=True))]
        for lease in leases:
            with pytest.raises(RestoreError, match="a/1 could not be restored on fake:0: no"):
                await lease.ready()
            assert told.what == ["failed a/1"]
            lease.release()
        await use(manager.take(seat("b")))
        manager.evict(Instance("b", 1))
        await use(manager.take(seat("a")))
        assert manager.statistics()["a"].failures == 1


async def test_a_copy_that_fails_is_a_restore_that_fails() -> None:
    a = FakeService("a", mib=60)
    source = FakeSource(100, 100)

    def broken(_: object) -> None:
        raise OSError("the link is down")

    source.devices[0]._fault = broken  # it breaks while it is in use
    async with hosting(source, a) as (manager, _):
        with pytest.raises(RestoreError, match="the link is down"):
            await manager.take(seat("a")).ready()
        await use(manager.take(seat("a", at=1)))


async def test_what_cannot_be_evicted_is_taken_from_the_capacity_until_it_can() -> None:
    a, b = FakeService("a", mib=60), FakeService("b", mib=60)
    a.evict_errors = [RestoreError("two views are held")] * 2
    async with hosting(FakeSource(100), a, b) as (manager, told):
        await use(manager.take(seat("a")))
        lease = manager.take(seat("b", evicts="a"))
        with pytest.raises(RestoreError, match=r"something that was evicted still has memory there. There are a/1"):
            await lease.ready()
        assert told.what == ["restored a/1", "capacity 0 40", "failed b/1"]
        lease.release()
        await asyncio.sleep(10)
        assert told.what[3:] == ["capacity 0 100"]
        await use(manager.take(seat("b")))
        assert a.did() == ["restore/1", "evict/1", "evict/1", "evict/1"]


async def test_what_is_stuck_can_be_asked_for_again() -> None:
    a = FakeService("a", mib=60, evict_errors=[RestoreError("held")])
    async with hosting(FakeSource(100), a) as (manager, told):
        await use(manager.take(seat("a")))
        manager.evict(Instance("a", 1))
        await asyncio.sleep(0.5)
        assert told.what[-1] == "capacity 0 40"
        await use(manager.take(seat("a")))  # before it was tried again
        assert a.did() == ["restore/1", "evict/1", "evict/1", "restore/1"]
        assert told.what[-2:] == ["capacity 0 100", "restored a/1"]
        await asyncio.sleep(100)
        assert list(a.resident) == [1]  # what was tried again has not evicted the one that came back


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_one_that_does_not_leave_other_devices_holds_up_nobody_where_it_is_to_go(is_stuck: bool) -> None:
    a, b = FakeService("a", mib=20, evict_s=600), FakeService("b", mib=20)
    a.evict_errors = [RestoreError("its call does not end")] * is_stuck
    async with hosting(FakeSource(100, 100), a, b) as (manager, told):
        await use(manager.take(seat("a")))
        manager.evict(Instance("a", 1))
        await asyncio.sleep(601 if is_stuck else 1)
        assert told.what[1:] == ["capacity 0 80"] * is_stuck
        coming, began = manager.take(seat("a", at=1)), now()
        await use(manager.take(seat("b", at=1)))
        assert now() - began == pytest.approx(2.0)  # 20 MiB at 10 MiB/s
        await use(coming)
        assert list(a.resident) == [1]


async def test_one_that_is_evicted_again_before_it_has_left_is_not_restored() -> None:
    a, b = FakeService("a", mib=60, evict_s=5), FakeService("b", mib=60)
    async with hosting(FakeSource(100, 100), a, b) as (manager, told):
        await use(manager.take(seat("a")))
        manager.evict(Instance("a", 1))
        manager.take(seat("a", at=1)).release()
        await use(manager.take(seat("b", at=1, evicts="a")))
        assert a.did() == ["restore/1", "evict/1"]
        assert told.what == ["restored a/1", "restored b/1"]
        assert manager.statistics()["a"].failures == 0
        await use(manager.take(seat("a")))


async def test_a_restore_that_still_holds_what_it_took() -> None:
    engine = FakeService("e", mib=60, keeps_memory=True, errors=[StillHeldError("it wakes, or not")])
    b = FakeService("b", mib=60)
    async with hosting(FakeSource(100), engine, b) as (manager, told):
        with pytest.raises(RestoreError, match="it wakes, or not"):
            await manager.take(seat("e")).ready()
        assert told.what == ["failed e/1", "capacity 0 40"]
        await asyncio.sleep(2)
        assert told.what[2:] == ["capacity 0 100"]
        assert engine.did() == ["restore/1", "evict/1"]


async def test_an_instance_that_dies_is_told_and_comes_back() -> None:
    engine = FakeService("e", mib=60, keeps_memory=True)
    async with hosting(FakeSource(100), engine) as (manager, told):
        lease = manager.take(seat("e"))
        await lease.ready()
        engine.die(1)
        assert told.what == ["restored e/1", "lost e/1"]
        with pytest.raises(ServiceLostError):
            await lease.service.call()
        lease.release()
        with pytest.raises(ServiceLostError):
            await manager.take(seat("e", joins=True)).ready()
        await use(manager.take(seat("e")))
        assert manager.statistics()["e"].losses == 1


async def test_one_that_has_died_between_the_decision_and_its_use_is_lost() -> None:
    a = FakeService("a")
    async with hosting(FakeSource(100), a) as (manager, _):
        await use(manager.take(seat("a")))
        lease = manager.take(seat("a", joins=True))
        a.die(1)
        with pytest.raises(ServiceLostError, match="a/1 was restored, and has died since"):
            await lease.ready()
        assert not a.open_handles
        lease.release()


async def test_one_that_dies_as_it_is_restored_has_failed() -> None:
    engine = FakeService("e", mib=60, keeps_memory=True, wake_s=4)
    async with hosting(FakeSource(100), engine) as (manager, told):
        lease = manager.take(seat("e"))
        await asyncio.sleep(1)
        engine.die(1)
        with pytest.raises(RestoreError, match="died"):
            await lease.ready()
        assert told.what == ["failed e/1"]


async def test_one_that_dies_when_it_was_to_go_anyway_is_not_told() -> None:
    engine = FakeService("e", mib=60, keeps_memory=True)
    async with hosting(FakeSource(100), engine) as (manager, told):
        await use(manager.take(seat("e")))
        manager.evict(Instance("e", 1))
        engine.die(1)
        await asyncio.sleep(1)
        assert told.what == ["restored e/1"]


async def test_who_listens_cannot_break_anything() -> None:
    class Broken(Told):
        def restored(self, instance: Instance, took_s: float) -> None:
            raise RuntimeError("a defect")

    async with hosting(FakeSource(100), FakeService("a")) as (manager, _):
        manager.listen(Broken())
        await use(manager.take(seat("a")))


# Engines that sleep.


async def test_what_a_sleeping_engine_keeps_is_counted() -> None:
    engine = FakeService("e", mib=60, asleep_mib=5, peak_mib=70, keeps_memory=True, chunks=((1, Chunk(0, 1)),))
    a = FakeService("a", mib=90)
    async with hosting(FakeSource(100), engine, a) as (manager, _):
        await use(manager.take(seat("e")))
        await use(manager.take(seat("a", evicts="e")))
        await use(manager.take(seat("e", evicts="a")))
        assert engine.did() == ["restore/1", "evict/1", "restore/1"]


async def test_case_110_what_only_a_restore_needs_is_free_afterwards_and_not_before() -> None:
    engine = FakeService("e", mib=30, peak_mib=45, keeps_memory=True, wake_s=5)
    a = FakeService("a", mib=60)
    async with hosting(FakeSource(100), engine, a) as (manager, _):
        first = manager.take(seat("e"))
        with pytest.raises(RestoreError, match=r"60\.0 MiB are needed on fake:0, which has 55\.0 MiB"):
            await manager.take(seat("a")).ready()  # which no scheduler would decide
        await use(first)
        await use(manager.take(seat("a")))


async def test_where_an_arena_holds_all_memory_an_engine_needs_the_whole_device() -> None:
    class HoldsAll(FakeDevice):
        @property
        def holds_all(self) -> bool:
            return True

    engine = FakeService("e", mib=20, asleep_mib=5, keeps_memory=True, chunks=((1, Chunk(0, 1)),))
    source = FakeSource()
    source.devices = [HoldsAll("GPU-1", 100 * MIB)]
    async with hosting(source, engine, FakeService("a", mib=30)) as (manager, _):
        assert dict(manager.services[0].footprints)[1].peak_bytes == 100 * MIB
        await use(manager.take(seat("a")))
        await use(manager.take(seat("e", evicts="a")))
        assert source.devices[0].allocate(MIB) is None  # vacated
        await use(manager.take(seat("a", evicts="e")))


# Devices for a process.


async def test_devices_for_a_process_are_empty_and_given_up() -> None:
    a, source = FakeService("a", mib=60, evict_s=2), FakeSource(100, 100)
    async with hosting(source, a) as (manager, _):
        await use(manager.take(seat("a")))
        began, lease = now(), manager.take(Seat(Chunk(0, 2), evicts=(Instance("a", 1),)))
        await lease.ready()
        assert now() - began == pytest.approx(2)
        assert lease.devices == ("fake:0", "fake:1")
        assert [device.allocate(MIB) for device in source.devices] == [None, None]
        with pytest.raises(NoServiceError):
            lease.service  # noqa: B018 - reading it is what is tested
        lease.release()
        await use(manager.take(seat("a")))


async def test_who_comes_next_waits_until_the_devices_are_given_up() -> None:
    class Slow(FakeDevice):
        async def _vacate(self) -> None:
            await asyncio.sleep(2)
            await super()._vacate()

    source = FakeSource()
    source.devices = [Slow("fake:0", 100 * MIB, bytes_per_s=10 * MIB)]
    async with hosting(source, FakeService("a", mib=60)) as (manager, _):
        manager.take(Seat(Chunk(0, 1))).release()  # its action was cancelled at once
        await asyncio.sleep(1)
        began = now()
        await use(manager.take(seat("a")))
        assert now() - began == pytest.approx(1 + 6)


async def test_devices_that_cannot_be_emptied() -> None:
    a = FakeService("a", mib=60, evict_errors=[RestoreError("held")])
    async with hosting(FakeSource(100), a) as (manager, _):
        await use(manager.take(seat("a")))
        lease = manager.take(Seat(Chunk(0, 1), evicts=(Instance("a", 1),)))
        with pytest.raises(RestoreError, match="not free"):
            await lease.ready()
        lease.release()


# The end.


async def test_closing_waits_for_what_has_begun_and_refuses_the_rest() -> None:
    a, b = FakeService("a", mib=60), FakeService("b", mib=60)
    manager, told = await started(FakeSource(100), a, b)
    leases = [manager.take(seat("a")), manager.take(seat("b", evicts="a"))]
    await asyncio.sleep(1)
    await asyncio.gather(manager.aclose(), manager.aclose())
    assert a.did() == ["restore/1"]
    with pytest.raises(ShutdownError):
        await leases[1].ready()
    assert told.what == []
    assert b.did() == []
    with pytest.raises(UsageError, match="after aclose"):
        manager.take(seat("a"))


async def test_closing_is_bounded() -> None:
    a = FakeService("a", keeps_memory=True, wake_s=10_000)
    manager, _ = await started(FakeSource(100), a)
    lease = manager.take(seat("a"))
    began = now()
    await asyncio.sleep(1)
    await manager.aclose()
    assert now() - began < 60
    with pytest.raises(ShutdownError):
        await lease.ready()


async def test_what_is_done_for_all_has_nobodys_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")
    seen: list[str] = []

    class Looks(FakeService):
        async def restore(self, dop: int, places: object) -> None:
            seen.append(variable.get())
            await super().restore(dop, places)  # type: ignore[arg-type]

    async with hosting(FakeSource(100), Looks("a")) as (manager, _):
        variable.set("mine")
        await use(manager.take(seat("a")))
    assert seen == ["nobody's"]
