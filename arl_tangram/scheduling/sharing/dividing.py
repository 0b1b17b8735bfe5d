"""Divide the cores of a node: for each priority, first what others are to find free, then the shares of its sharers.

What keeps changes few, because each one costs time:

- One that runs counts with a somewhat better rank than it has.
- Who was changed lately keeps what it has for a while, unless others are to find it; it may have more where cores would
  be idle.
- A change that gives nobody anything is dropped.

Who has been here far longer than its work explains comes before the others of its priority, in the order in which they
came, with up to half of the cores: so the tail is bounded, whatever the policy and however wrong what it expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.others import Want, part_of
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import CoreSharer

_BETTER = 1.1
LEAST_RESIDENCE_S = 0.01
RESIDENCE = 50.0
"""How many times as long as a change takes one keeps its cores."""


class Cores(NamedTuple):
    """What there is to divide.

    Attributes:
        scale: integer units in a core.
        capacity: units in all.
        held: those that others have.
        spare: those that sharers have, and those that are free, but for what callers are to find.
        now_s: the time.
        halted: whether nothing new is to start, but calls.
        started: those that have just started and keep what they have started with, by id.
        growing: whether nobody is to have less than it has.
    """

    scale: int
    capacity: int
    held: int
    spare: int
    now_s: float
    halted: bool
    started: frozenset[int] = frozenset()
    growing: bool = False


class Division:
    """Who is to have other cores than it has.

    Attributes:
        changes: pairs of a sharer and the cores that it is to have.
        made_for: others that are to find what they need, by id.
        barred: whether no others are to start, so that one that is overdue finds its cores.
        look_again_s: moments at which to divide anew though nothing happens.
    """

    __slots__ = ("barred", "changes", "look_again_s", "made_for")

    def __init__(self) -> None:
        self.changes: list[tuple[CoreSharer, int]] = []
        self.made_for: list[int] = []
        self.barred = False
        self.look_again_s: list[float] = []


class Dividing:
    """Divides the cores of the nodes of one core object.

    Args:
        asking: the policy.
        switch_s: seconds that a change takes.
    """

    def __init__(self, asking: Asking, switch_s: float) -> None:
        self._asking = asking
        self._residence_s = max(LEAST_RESIDENCE_S, RESIDENCE * switch_s)

    def divide(self, room: Room, cores: Cores, wants: Sequence[Want]) -> Division:
        """Return who is to have what."""
        division = Division()
        waiting: dict[int, list[Want]] = {}
        for want in wants:
            waiting.setdefault(want.priority, []).append(want)
        kept: dict[int, int] = {}
        for sharer in room.running.values():
            sharer.show(cores.capacity // cores.scale)
            if sharer.id in cores.started:
                sharer.show_nothing_else()
            least = sharer.cores if cores.growing else sharer.least
            kept[sharer.priority] = kept.get(sharer.priority, 0) + least * cores.scale
        later = sum(kept.values())
        spare, held = cores.spare, cores.held
        for priority in sorted({*room.priorities, *waiting}):
            must = kept.get(priority, 0)
            later -= must
            overdue = [s for s in room.overdue.values() if s.priority == priority and not _is_barred(s, cores)]
            overdue.sort(key=_by_order)
            lacks = False
            found = 0
            if mine := waiting.get(priority):
                first = (overdue[0].order, overdue[0].sizes[0] * cores.scale) if overdue else None
                part = part_of(
                    mine, room.present(priority), held=held, scale=cores.scale, capacity=cores.capacity,
                    spare=spare - later, kept=must, first=first, now_s=cores.now_s,
                )  # fmt: skip
                found, lacks = part.units, part.lacks
                division.made_for += part.ids
                if part.look_again_s is not None:
                    division.look_again_s.append(part.look_again_s)
            there_are = max(spare - later - found, must) // cores.scale
            given = self._share(room, priority, there_are, overdue=overdue, cores=cores, division=division, lacks=lacks)
            held += found
            spare -= found + given * cores.scale
        return division

    def _share(
        self,
        room: Room,
        priority: int,
        there_are: int,
        *,
        overdue: list[CoreSharer],
        cores: Cores,
        division: Division,
        lacks: bool,
    ) -> int:
        """Share out cores among those of one priority; return how many are given."""
        running = [sharer for sharer in room.running.values() if sharer.priority == priority]
        first = self._favour(running, overdue, there_are, cores)
        if overdue and not first:
            lacks = True
            division.barred |= not division.made_for
        idle = self._idle(room, priority, there_are, cores, first, lacks=lacks)
        members = [*running, *idle]
        if not members or not there_are:
            division.changes += [(sharer, 0) for sharer in running]
            return 0
        favoured = {sharer.id: at for at, sharer in enumerate(first)}
        members.sort(
            key=lambda sharer: (favoured.get(sharer.id, len(first)), _held_rank(sharer), sharer.order, sharer.id)
        )
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
        if left and room.may_want(left) and (left > unused or not could):  # else the policy wants it so
            given = {s.id for s, share in zip(members, shares, strict=True) if share != s.cores or share}
            left = self._fill(room, priority, left, cores=cores, given=given, division=division, lacks=lacks)
        return there_are - left

    def _favour(
        self, running: list[CoreSharer], overdue: list[CoreSharer], there_are: int, cores: Cores
    ) -> list[CoreSharer]:
        """Let the overdue have their least cores, up to half of all, but the first in any case; return those who do."""
        must = sum([sharer.cores if cores.growing else sharer.least for sharer in running])
        favoured: list[CoreSharer] = []
        given = 0
        for sharer in overdue:
            if not sharer.cores:
                sharer.show(cores.capacity // cores.scale)
            size = sharer.sizes[0]
            more = size - (sharer.cores if cores.growing else sharer.least)
            if (favoured and given + size > there_are // 2) or must + max(more, 0) > there_are:
                break
            must += max(more, 0)
            given += size
            sharer.least = max(sharer.least, size)
            favoured.append(sharer)
        return favoured

    def _idle(
        self, room: Room, priority: int, most: int, cores: Cores, first: list[CoreSharer], *, lacks: bool
    ) -> list[CoreSharer]:
        """Return the first of those that have none: as many as there are cores, and those who are favoured."""
        favoured = {sharer.id for sharer in first}
        eligible = (
            sharer
            for sharer in room.idle_of(priority)
            if sharer.id not in favoured and not _is_barred(sharer, cores) and not (lacks and _is_to_stay(sharer))
        )
        idle = list(islice(eligible, most))
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

    def _fill(
        self,
        room: Room,
        priority: int,
        left: int,
        *,
        cores: Cores,
        given: set[int],
        division: Division,
        lacks: bool,
    ) -> int:
        """Give what nobody else could use to those further behind that can; return what is left."""
        for sharer in room.idle_of(priority):
            if not left:
                break
            if sharer.id in given or _is_barred(sharer, cores) or (lacks and _is_to_stay(sharer)):
                continue
            sharer.show(cores.capacity // cores.scale)
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


def _held_rank(sharer: CoreSharer) -> float:
    """Return a rank that is better while it runs."""
    if not sharer.cores:
        return sharer.rank
    return sharer.rank / _BETTER if sharer.rank > 0 else sharer.rank * _BETTER


def _by_order(sharer: CoreSharer) -> tuple[int, int]:
    return sharer.order, sharer.id


def _is_barred(sharer: CoreSharer, cores: Cores) -> bool:
    """Whether it must not start, as nothing new is to."""
    return cores.halted and sharer.running is None and sharer.action.inherited is None


def _is_to_stay(sharer: CoreSharer) -> bool:
    """Whether it could not be suspended again, and nobody keeps anything until it has ended."""
    return not sharer.action.demand.preemptible and sharer.action.inherited is None
