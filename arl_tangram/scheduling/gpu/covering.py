"""The victims on one chunk: the set of least value after which there is room on all its devices.

One victim can lie on several devices of the chunk, so they are considered together:

1. Victims that make room on only one device that lacks some are independent of those on others. For each device, the
   sets of them of which no other frees more for less are found by dynamic programming: the knapsack covering problem.
2. Those that make room on several devices are tried in or out, depth first, against a bound that lets all that have not
   been decided on go for nothing.

That is exact. Both are cut off after so many steps that only hundreds of residents on one chunk can reach; then the set
that is returned makes room, but another one might do so for less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.eviction import Resident

_MOST_SETS = 64
_MOST_TRIED = 512


class Room(Protocol):
    """The devices as they are now; sequences are by device."""

    @property
    def capacity(self) -> Sequence[int]:
        """Bytes that services can have."""
        ...

    @property
    def used(self) -> Sequence[int]:
        """Bytes that are held or promised."""
        ...

    @property
    def held(self) -> Sequence[int]:
        """How many instances and bodies are on it that cannot go now."""
        ...

    @property
    def idle(self) -> Sequence[Sequence[Resident]]:
        """What is on it and could go now, in an order that does not depend on chance."""
        ...


class VictimSet(NamedTuple):
    """What goes, the least valuable first, and what it is worth together."""

    instances: tuple[Instance, ...]
    value: float


_NOBODY = VictimSet((), 0.0)


def least(
    chunk: Chunk, more_bytes: int, room: Room, worth: Mapping[Instance, float], limit: float = inf
) -> VictimSet | None:
    """Return the victim set of least value after which so many bytes are free on every device of a chunk.

    Args:
        chunk: the devices.
        more_bytes: to be free on each.
        room: the devices as they are.
        worth: the value of each resident that could go, at least 0.
        limit: sets that are worth more are of no use.

    Returns:
        None if there is no such set.
    """
    lacking: dict[int, int] = {}
    for device in chunk.devices:
        lacks = room.used[device] + more_bytes - room.capacity[device]
        if lacks > 0:
            idle = room.idle[device]
            if sum([resident.freed_bytes for resident in idle]) < lacks:
                return None
            if min([worth[resident.instance] for resident in idle]) > limit:
                return None
            lacking[device] = lacks
    if not lacking:
        return _NOBODY
    return _Cover(lacking, room, worth).least(limit)


def everything(chunk: Chunk, room: Room, worth: Mapping[Instance, float]) -> VictimSet | None:
    """Return all that is on a chunk; None if something there cannot go."""
    if any(room.held[device] for device in chunk.devices):
        return None
    residents = dict.fromkeys(resident.instance for device in chunk.devices for resident in room.idle[device])
    return _ordered(residents, worth)


class _Cover:
    """The search for the least set on one chunk."""

    def __init__(self, lacking: Mapping[int, int], room: Room, worth: Mapping[Instance, float]) -> None:
        self._lacking = lacking
        self._worth = worth
        residents = {resident.instance: resident for device in lacking for resident in room.idle[device]}.values()
        self._covers = {r.instance: [d for d in r.chunk.devices if d in lacking] for r in residents}
        single: dict[int, list[Resident]] = {device: [] for device in lacking}
        spanning: list[Resident] = []
        for resident in residents:
            covers = self._covers[resident.instance]
            if len(covers) == 1:
                single[covers[0]].append(resident)
            else:
                spanning.append(resident)
        self._steps = {device: _steps(own, lacking[device], worth) for device, own in single.items()}
        self._spanning = sorted(spanning, key=lambda resident: worth[resident.instance])
        self._limit = inf
        self._found: list[Resident] | None = None

    def least(self, limit: float) -> VictimSet | None:
        self._limit = limit
        to_come = dict.fromkeys(self._lacking, 0)
        for resident in self._spanning:
            for device in self._covers[resident.instance]:
                to_come[device] += resident.freed_bytes
        tried = 0
        stack = [_Branch(0, False, (), 0.0, self._lacking, to_come)]
        while stack:
            branch = stack.pop()
            tried += 1
            if branch.spares and tried > _MOST_TRIED:
                continue
            bound = branch.value + sum(
                [self._steps[d].value(lacks - branch.to_come[d]) for d, lacks in branch.lacking.items()]
            )
            if bound == inf or bound > self._limit or (self._found is not None and bound >= self._limit):
                continue
            if branch.decided < len(self._spanning):
                stack += self._split(branch)
            else:
                self._limit = bound
                singles = [r for d, lacks in branch.lacking.items() for r in self._steps[d].members(lacks)]
                self._found = [*branch.chosen, *singles]
        return None if self._found is None else self._without_surplus(self._found)

    def _split(self, branch: _Branch) -> tuple[_Branch, _Branch]:
        """Return what can follow: the next one stays, or, to be tried first, it goes."""
        index, _, chosen, value, lacking, to_come = branch
        resident = self._spanning[index]
        freed = dict.fromkeys(self._covers[resident.instance], resident.freed_bytes)
        left = {d: coming - freed.get(d, 0) for d, coming in to_come.items()}
        with_it = {d: lacks - freed.get(d, 0) for d, lacks in lacking.items()}
        goes = _Branch(index + 1, False, (*chosen, resident), value + self._worth[resident.instance], with_it, left)
        return _Branch(index + 1, True, chosen, value, lacking, left), goes

    def _without_surplus(self, found: Sequence[Resident]) -> VictimSet:
        """Return a set without those whose room is not needed: ones of no value, or for which others came in later."""
        spare = {d: -lacks for d, lacks in self._lacking.items()}
        for resident in found:
            for device in self._covers[resident.instance]:
                spare[device] += resident.freed_bytes
        kept: list[Instance] = []
        for resident in sorted(found, key=lambda resident: -self._worth[resident.instance]):
            covers = self._covers[resident.instance]
            if all(spare[device] >= resident.freed_bytes for device in covers):
                for device in covers:
                    spare[device] -= resident.freed_bytes
            else:
                kept.append(resident.instance)
        return _ordered(kept, self._worth)


class _Branch(NamedTuple):
    """What was decided about the first of those that span devices.

    Attributes:
        decided: on how many that was.
        spares: whether the last of them stays.
        chosen: those that go.
        value: what these are worth.
        lacking: what each device still lacks.
        to_come: what those that have not been decided on would free on each.
    """

    decided: int
    spares: bool
    chosen: tuple[Resident, ...]
    value: float
    lacking: Mapping[int, int]
    to_come: Mapping[int, int]


class _Steps(NamedTuple):
    """Sets of victims on one device of which none frees more for less: ascending in what they free, and in value."""

    frees: list[int]
    values: list[float]
    sets: list[tuple[Resident, ...]]

    def value(self, lacks: int) -> float:
        """Return the least value of a set that frees so much; infinite if there is none."""
        index = bisect_left(self.frees, lacks)
        return self.values[index] if index < len(self.values) else inf

    def members(self, lacks: int) -> tuple[Resident, ...]:
        """Return that set."""
        return self.sets[bisect_left(self.frees, lacks)]


def _steps(residents: Sequence[Resident], lacks: int, worth: Mapping[Instance, float]) -> _Steps:
    """Return the sets of these residents that are worth considering; none frees more than it has to."""
    states: list[tuple[float, int, tuple[Resident, ...]]] = [(0.0, 0, ())]
    for resident in residents:
        value, freed = worth[resident.instance], resident.freed_bytes
        more = [(v + value, min(lacks, f + freed), (*members, resident)) for v, f, members in states if f < lacks]
        states = _undominated(sorted([*states, *more], key=lambda state: (state[0], -state[1], len(state[2]))))
    values, frees, sets = zip(*states, strict=True)
    return _Steps(list(frees), list(values), list(sets))


def _undominated(
    states: Sequence[tuple[float, int, tuple[Resident, ...]]],
) -> list[tuple[float, int, tuple[Resident, ...]]]:
    kept: list[tuple[float, int, tuple[Resident, ...]]] = []
    for state in states:
        if not kept or state[1] > kept[-1][1]:
            kept.append(state)
    if len(kept) > _MOST_SETS:
        step = (len(kept) - 1) / (_MOST_SETS - 1)
        kept = [kept[round(i * step)] for i in range(_MOST_SETS)]
    return kept


def _ordered(instances: Iterable[Instance], worth: Mapping[Instance, float]) -> VictimSet:
    ordered = sorted(instances, key=lambda instance: (worth[instance], instance))
    return VictimSet(tuple(ordered), sum([worth[instance] for instance in ordered]))
