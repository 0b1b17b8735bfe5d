"""Share out the cores that there are for the sharers of one priority; `dividing` says how many there are.

What keeps changes few, because each one costs time:

- One that runs counts with a somewhat better rank than it has.
- Who was changed lately keeps what it has for a while, unless others are to find it; it may have more where cores would
  be idle.
- A change that gives nobody anything is dropped.

Who has been here far longer than explained by the work that was expected of it, or that it has done, comes before the
others of its priority, in the order in which they came, with up to half of the cores: so the tail is bounded, whatever
the policy.
"""

from __future__ import annotations

from itertools import chain, islice
from math import inf
from typing import NamedTuple

from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.division import Cores, Division
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import GOING_ON, NEW, STAYING, CoreSharer


class Group(NamedTuple):
    """Those of one priority.

    Attributes:
        running: those of them that have cores.
        barring: one that bars others, or is overdue, and has none; None if there is none.
        there_are: cores for all of them.
    """

    running: list[CoreSharer]
    barring: CoreSharer | None
    there_are: int


class Portions:
    """Shares out the cores of one priority.

    Args:
        asking: the policy.
        residence_s: for how long one that was changed keeps its cores.
    """

    def __init__(self, asking: Asking, residence_s: float) -> None:
        self._asking = asking
        self._residence_s = residence_s

    def hand_out(self, room: Room, priority: int, cores: Cores, group: Group, division: Division) -> int:
        """Share out cores among those of one priority; return how many are given."""
        running, there_are = group.running, group.there_are
        first = self._favour(room, priority, cores, group, division)
        kind = GOING_ON if cores.halted else STAYING if division.lacks is None else NEW
        idle = self._idle(room, priority, cores, group, first=first, kind=kind)
        members = [*running, *idle]
        if not members or not there_are:
            division.changes += [(sharer, 0) for sharer in running]
            return 0
        members.sort(key=lambda sharer: (sharer.held_rank, sharer.order, sharer.id))
        if first:
            favoured = {sharer.id: at for at, sharer in enumerate(first)}
            members.sort(key=lambda sharer: favoured.get(sharer.id, len(first)))
        settled = self._settle(members, there_are, division, cores)
        present = room.present(priority)
        shares = self._asking.share(members, there_are, present)
        left = there_are - sum(shares)
        if left and settled and not cores.growing:
            for sharer in settled:
                sharer.show_more()
            shares = self._asking.share(members, there_are, present)
        unused = there_are - sum(shares)
        left = _drop(members, shares, unused)
        division.changes += [(s, share) for s, share in zip(members, shares, strict=True) if share != s.cores]
        could = [s for s, share in zip(members, shares, strict=True) if not share and s.sizes[0] <= left]
        if left and room.idle and (left > unused or not could):  # else the policy wants it so
            given = {s.id for s, share in zip(members, shares, strict=True) if share != s.cores or share}
            left = self._fill(room, priority, left, kind, cores=cores, given=given, division=division)
        return there_are - left

    @staticmethod
    def _favour(room: Room, priority: int, cores: Cores, group: Group, division: Division) -> list[CoreSharer]:
        """Let the overdue have their least cores, up to half of all, but the first in any case; return those who do.

        Who bars others comes after them.
        """
        barring, there_are = group.barring, group.there_are
        must = sum([sharer.cores if cores.growing else sharer.least for sharer in group.running])
        favoured: list[CoreSharer] = []
        given = 0
        urgent = () if cores.halted else room.overdue_of(priority)
        for sharer in chain(urgent, () if barring is None or barring.is_overdue else (barring,)):
            if not sharer.cores:
                sharer.show(cores.capacity // cores.scale)
            size = sharer.sizes[0]
            more = size - (sharer.cores if cores.growing else sharer.least)
            if (favoured and given + size > there_are // 2) or must + max(more, 0) > there_are:
                break
            begins = not sharer.cores and sharer.kind == STAYING
            if begins and division.lacks is not None and division.lacks < (priority, sharer.order):
                break
            must += max(more, 0)
            given += size
            sharer.least = max(sharer.least, size)
            favoured.append(sharer)
        return favoured

    @staticmethod
    def _idle(
        room: Room, priority: int, cores: Cores, group: Group, *, first: list[CoreSharer], kind: int
    ) -> list[CoreSharer]:
        """Return the first of those that have none, at most as many as there are cores, and those who are favoured.

        Where nobody that runs has a choice, only those for whom there are cores, or who come before one that runs.
        """
        favoured = {sharer.id for sharer in first}
        eligible = (sharer for sharer in room.idle_of(priority, kind=kind) if sharer.id not in favoured)
        free = most = group.there_are
        last = (-inf, 0)
        if group.running and all(len(sharer.admitted) == 1 for sharer in group.running):
            free -= sum([sharer.cores for sharer in group.running])
            last = max([(sharer.held_rank, sharer.order) for sharer in group.running])
        idle: list[CoreSharer] = []
        for sharer in islice(eligible, most):
            if (sharer.rank, sharer.order) >= last:
                if free <= 0:
                    break
                free -= 1
            idle.append(sharer)
        for sharer in idle:
            sharer.show(cores.capacity // cores.scale)
        return [sharer for sharer in first if not sharer.cores] + idle

    def _settle(self, members: list[CoreSharer], there_are: int, division: Division, cores: Cores) -> list[CoreSharer]:
        """Let those keep what they have who were changed lately, the first first, as far as there is enough."""
        if cores.growing:
            for sharer in members:
                if sharer.cores and sharer.id not in cores.started:
                    sharer.show_more()
            return []
        settled: list[CoreSharer] = []
        must = sum([sharer.least for sharer in members])
        for sharer in members:
            until_s = sharer.changed_at_s + self._residence_s
            if sharer.cores and until_s > cores.now_s and sharer.id not in cores.started:
                must += sharer.cores - sharer.least
                if must > there_are:
                    break
                sharer.show_nothing_else()
                settled.append(sharer)
        if settled and any(not sharer.cores or len(sharer.admitted) > 1 for sharer in members):
            division.look_again_s.append(min([sharer.changed_at_s for sharer in settled]) + self._residence_s)
        return settled

    @staticmethod
    def _fill(
        room: Room, priority: int, left: int, kind: int, *, cores: Cores, given: set[int], division: Division
    ) -> int:
        """Give what nobody else could use to those further behind that can; return what is left."""
        capacity = cores.capacity // cores.scale
        while left:
            fitting = room.idle_of(priority, kind=kind, left=left, capacity=capacity)
            sharer = next((sharer for sharer in fitting if sharer.id not in given), None)
            if sharer is None:
                break
            sharer.show(capacity)
            given.add(sharer.id)
            if sharer.sizes[0] <= left:
                division.changes.append((sharer, sharer.sizes[0]))
                left -= sharer.sizes[0]
        return left


def _drop(members: list[CoreSharer], shares: list[int], left: int) -> int:
    """Drop what gives nobody anything: more that is not faster, and less that nobody needs; return what is left."""
    for at, sharer in enumerate(members):
        if shares[at] > sharer.cores > 0 and sharer.rate_at(shares[at]) <= sharer.rate_at(sharer.cores):
            left += shares[at] - sharer.cores
            shares[at] = sharer.cores
    for at, sharer in enumerate(members):
        if shares[at] < sharer.cores <= shares[at] + left:
            left -= sharer.cores - shares[at]
            shares[at] = sharer.cores
    return left
