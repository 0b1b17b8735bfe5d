from __future__ import annotations

import errno

import pytest

from arl_tangram.errors import AllocationError, SandboxLostError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.leasing import Leasing
from arl_tangram.managers.usage import UsageMeter


class Box:
    """A sandbox that takes cores, or fails to."""

    may_be_alive = False

    def __init__(self, name: str) -> None:
        self.id = name
        self.placement: Placement | None = None
        self.meter: UsageMeter | None = None
        self.error: BaseException | None = None
        self.lost: SandboxLostError | None = None

    def check(self) -> None:
        if self.lost is not None:
            raise self.lost

    def place(self, placement: Placement) -> None:
        self.placement = placement
        if self.error is not None:
            raise self.error

    def begin(self, milli_cores: int, meter: UsageMeter) -> None:
        self.meter = meter

    def end(self, meter: UsageMeter | None = None) -> None:
        if meter is None or meter is self.meter:
            self.placement = self.meter = None

    async def kill(self) -> None:
        pass


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


def test_what_a_failed_grant_has_moved_for_good_is_placed() -> None:
    cores = MovesForGood([range(3)])
    leasing = Leasing(cores)
    box, bad = Box("a"), Box("bad")
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


def test_a_sandbox_that_is_lost_says_why() -> None:
    box = Box("a")
    box.error, box.lost = OSError(errno.ENOENT, "No such file"), SandboxLostError("it was killed")
    with pytest.raises(SandboxLostError, match="it was killed"):
        Leasing(Cores([range(2)])).lease(1000, box, again=False)


def test_a_sandbox_that_is_dying_does_not_fail_the_grant_that_moves_it() -> None:
    leasing = Leasing(Cores([range(3)]))
    box, other = Box("a"), Box("b")
    first = leasing.lease(1500, box, again=False)
    box.error = OSError(errno.ENOENT, "No such file")
    leasing.lease(700, other, again=False).release()
    first.release()


def test_a_release_that_comes_late_ends_nothing_of_the_next_action() -> None:
    leasing = Leasing(Cores([range(3)]))
    box = Box("a")
    first = leasing.lease(1000, box, again=False)
    second = leasing.lease(2000, box, again=False)
    first.release()
    assert box.placement == Placement((1, 2), 2000)
    second.release()
    assert box.placement is None
