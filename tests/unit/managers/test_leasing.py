from __future__ import annotations

import errno

import pytest

from arl_tangram.errors import AllocationError, SandboxLostError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.lease import SandboxLease
from arl_tangram.managers.leasing import Leasing
from arl_tangram.managers.usage import UsageMeter


class Box:
    """A sandbox that takes cores, or fails to."""

    may_be_alive = False

    def __init__(self, name: str) -> None:
        self.id = name
        self.placement: Placement | None = None
        self.meter: UsageMeter | None = None
        self.told = 0
        self.suspended = False
        self.error: BaseException | None = None
        self.lost: SandboxLostError | None = None

    def check(self) -> None:
        if self.lost is not None:
            raise self.lost

    def place(self, placement: Placement) -> None:
        self.placement, self.suspended = placement, False
        if self.error is not None:
            raise self.error

    def suspend(self) -> None:
        self.suspended = True
        if self.error is not None:
            raise self.error

    def begin(self, milli_cores: int, meter: UsageMeter) -> None:
        self.told, self.meter = milli_cores, meter

    def end(self, meter: UsageMeter | None = None) -> None:
        if meter is None or meter is self.meter:
            self.placement = self.meter = None
            self.suspended = False

    async def kill(self) -> None:
        pass


@pytest.fixture
def cores() -> Cores:
    return Cores([range(4)])


@pytest.fixture
def leasing(cores: Cores) -> Leasing:
    return Leasing(cores)


@pytest.fixture
def box() -> Box:
    return Box("a")


@pytest.fixture
def lease(leasing: Leasing, box: Box) -> SandboxLease:
    """Return two cores for the box."""
    return leasing.lease(2000, box, again=False)


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (OSError(errno.EINVAL, "Invalid argument"), SandboxLostError),
        (AllocationError("something else is in effect"), AllocationError),
        (RuntimeError("a defect"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_grant_that_fails_leaves_nothing_and_those_that_it_moved_are_where_they_are_counted(
    error: BaseException, heard: type[BaseException]
) -> None:
    """The 700 that come shift one of the 600 over to the other core, and it stays there."""
    cores = Cores([range(3)])
    leasing = Leasing(cores)
    boxes = [Box("a"), Box("b"), Box("c")]
    leases = [leasing.lease(milli, box, again=False) for milli, box in zip((600, 600, 700), boxes, strict=True)]
    bad = Box("bad")
    bad.error = error
    leases[0].release()
    with pytest.raises(heard):
        leasing.lease(900, bad, again=False)
    for box, lease in zip(boxes[1:], leases[1:], strict=True):
        assert box.placement is not None
        assert box.placement.core_ids == lease.core_ids
    assert (bad.placement, bad.meter) == (None, None), "nothing stale to put in effect once more"
    for lease in leases[1:]:
        lease.release()
    assert cores.free == 3


def test_what_a_failed_grant_has_moved_for_good_is_placed(box: Box) -> None:
    cores = MovesForGood([range(3)])
    leasing = Leasing(cores)
    bad = Box("bad")
    leasing.lease(500, box, again=False)
    bad.error = AllocationError("it is not in effect")
    with pytest.raises(AllocationError):
        leasing.lease(500, bad, again=False)
    assert box.placement == Placement((2,), 500)


class MovesForGood(Cores):
    """Moves the first grant when the second comes, and not back when that goes."""

    def take(self, key: int, milli_cores: int, *, beyond: bool = False) -> dict[int, Placement]:
        taken = super().take(key, milli_cores, beyond=beyond)
        return taken | {1: Placement((2,), 500)} if key == 2 else taken

    def give_back(self, key: int) -> dict[int, Placement]:
        super().give_back(key)
        return {}


def test_a_sandbox_that_is_lost_says_why(leasing: Leasing, box: Box) -> None:
    box.error, box.lost = OSError(errno.ENOENT, "No such file"), SandboxLostError("it was killed")
    with pytest.raises(SandboxLostError, match="it was killed"):
        leasing.lease(1000, box, again=False)


def test_a_sandbox_that_is_dying_does_not_fail_the_grant_that_moves_it(box: Box) -> None:
    leasing = Leasing(Cores([range(3)]))
    other = Box("b")
    first = leasing.lease(1500, box, again=False)
    box.error = OSError(errno.ENOENT, "No such file")
    leasing.lease(700, other, again=False).release()
    first.release()


def test_a_release_that_comes_late_ends_nothing_of_the_next_action(leasing: Leasing, box: Box) -> None:
    first = leasing.lease(1000, box, again=False)
    second = leasing.lease(2000, box, again=False)
    first.release()
    assert box.placement == Placement((1, 2), 2000)
    second.release()
    assert box.placement is None


def test_a_lease_grows_shrinks_and_is_suspended(cores: Cores, leasing: Leasing, box: Box) -> None:
    lease = leasing.lease(1000, box, again=False, most=4000)
    assert box.told == 4000
    for count, free in [(3, 1), (2, 2), (0, 4), (4, 0)]:
        lease.resize(count * 1000)
        assert (len(lease.core_ids), cores.free) == (count, free)
        assert box.suspended == (count == 0)
        assert count == 0 or box.placement == Placement(lease.core_ids, count * 1000)
    lease.release()
    assert (cores.free, lease.core_ids, box.placement) == (4, (0, 1, 2, 3), None)


@pytest.mark.parametrize("most", [0, 1000, 2000])
def test_commands_are_told_the_most_that_they_ever_have(most: int, leasing: Leasing, box: Box) -> None:
    leasing.lease(2000, box, again=False, most=most)
    assert box.told == 2000


def test_a_lease_that_is_released_while_it_is_suspended_is_not_resized_any_more(
    lease: SandboxLease, cores: Cores, leasing: Leasing, box: Box
) -> None:
    lease.resize(0)
    lease.release()
    assert not box.suspended
    second = leasing.lease(1000, box, again=False)
    lease.resize(1000)
    lease.release()
    assert (cores.free, box.placement) == (3, Placement(second.core_ids, 1000))


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (OSError(errno.EINVAL, "Invalid argument"), SandboxLostError),
        (AllocationError("something else is in effect"), AllocationError),
    ],
)
@pytest.mark.parametrize("milli_cores", [0, 1000, 3000])
def test_a_change_that_fails_is_counted_and_heard(
    error: BaseException, heard: type[BaseException], milli_cores: int, lease: SandboxLease, cores: Cores, box: Box
) -> None:
    """Whoever asked has counted it, too, and may have given the cores away already."""
    box.error = error
    with pytest.raises(heard):
        lease.resize(milli_cores)
    assert cores.free == 4 - milli_cores // 1000
    lease.release()
    assert cores.free == 4


def test_a_sandbox_that_is_lost_says_so_when_it_is_resized(lease: SandboxLease, cores: Cores, box: Box) -> None:
    box.lost = SandboxLostError("it was killed")
    with pytest.raises(SandboxLostError, match="it was killed"):
        lease.resize(0)
    assert (cores.free, box.suspended) == (4, False)


def test_cores_that_went_offline_cannot_be_given_to_who_runs_which_keeps_what_it_has(
    caplog: pytest.LogCaptureFixture,
    cores: Cores,
    leasing: Leasing,
    box: Box,
) -> None:
    lease = leasing.lease(1000, box, again=False)
    with pytest.raises(ValueError, match="4 cores were asked, 3 are free"):
        lease.resize(5000)
    cores.set_available([0, 1])
    for _ in range(2):
        lease.resize(4000)
        assert (lease.core_ids, box.placement) == ((0, 1), Placement((0, 1), 2000))
    assert [record.getMessage() for record in caplog.records] == [
        "cores went offline before a running action could have them: 3 cores were asked, 1 are free"
    ]
    lease.release()
    assert cores.free == 2


def test_a_suspended_action_for_which_no_core_is_online_fails(
    lease: SandboxLease, cores: Cores, leasing: Leasing, box: Box
) -> None:
    lease.resize(0)
    leasing.lease(1000, None, again=False)
    cores.set_available([0])
    with pytest.raises(AllocationError, match="went offline"):
        lease.resize(1000)
    assert (lease.core_ids, box.suspended) == ((), True)


def test_who_is_woken_goes_on_where_it_was_though_those_cores_count_as_others_and_is_not_suspended_again(
    lease: SandboxLease, cores: Cores, leasing: Leasing, box: Box
) -> None:
    lease.resize(0)
    lease.wake()
    assert (box.suspended, box.placement) == (False, Placement((0, 1), 2000))
    assert (lease.core_ids, cores.free) == ((), 4)
    lease.resize(1000)
    lease.resize(0)
    lease.wake()
    assert (box.suspended, cores.free) == (False, 4)
    lease.release()
    second = leasing.lease(1000, box, again=False)
    lease.wake()  # too late: nothing happens
    second.resize(0)
    assert box.suspended


@pytest.mark.parametrize(("online", "where"), [((1, 2), (1,)), ((2, 3), (2,))])
def test_who_is_woken_goes_on_where_cores_are_online(online: tuple[int, ...], where: tuple[int, ...]) -> None:
    cores = Cores([range(4)])
    leasing = Leasing(cores, look=lambda: cores.set_available(seen))
    box = Box("a")
    seen: tuple[int, ...] = (0, 1, 2, 3)
    lease = leasing.lease(2000, box, again=False)
    lease.resize(0)
    seen = online
    lease.wake()
    assert box.placement == Placement(where, 1000)


def test_who_runs_when_it_is_woken_is_not_suspended_any_more(lease: SandboxLease, box: Box) -> None:
    lease.wake()
    assert box.placement == Placement((0, 1), 2000)
    lease.resize(0)
    assert (box.suspended, lease.core_ids) == (False, ())


def test_waking_a_sandbox_that_is_dying_fails_nothing(leasing: Leasing, box: Box) -> None:
    lease = leasing.lease(1000, box, again=False)
    lease.resize(0)
    box.error = OSError(errno.ENOENT, "No such file")
    lease.wake()
    leasing.lease(1000, None, again=False).wake()


def test_fractions_move_with_what_a_change_gives_up(box: Box) -> None:
    cores = Cores([range(2)])
    leasing = Leasing(cores)
    other = Box("b")
    leasing.lease(500, box, again=False)
    lease = leasing.lease(1000, other, again=False)
    cores.set_available([1])
    assert box.placement == Placement((0,), 500), "there is no other core"
    lease.resize(0)
    assert box.placement == Placement((1,), 500)
