"""Which cores a grant gets: whole ones for itself, fractions on cores that are kept for fractions. Pure.

With C cores, W of them whole and F milli-cores in fractions, the fractions share ceil(F / 1000) cores. So k more whole
cores fit exactly if C - W - ceil(F / 1000) >= k, which is what counting milli-cores says: nothing is
lost to fragmentation. A fraction is kept on as few shared cores as it needs, so that `nproc` shows its ceiling; if
no such place has room, it floats over all shared cores and still gets its time.

The pool can be resized while grants are out. Nothing is taken from a grant: a pool that shrinks below what is in use
retires its cores as they come back, and grants nothing before that is done. Grants of whole cores can be changed, too,
down to none and back.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from arl_tangram.managers.numa import near_first, node_of, pick, pick_near
from arl_tangram.model.quantities import MILLI


@dataclass(frozen=True, slots=True)
class Placement:
    """The cores of one grant.

    Attributes:
        core_ids: numbers of the cores, ascending; none of a grant that was changed to nothing.
        milli_cores: what was granted; below 1000 per core it needs a quota.
    """

    core_ids: tuple[int, ...]
    milli_cores: int

    @property
    def is_whole(self) -> bool:
        """Whether the cores are the grant's alone."""
        return self.milli_cores % MILLI == 0


class Cores:
    """Places grants on the cores of a pool; a grant is named by a key of the caller.

    Args:
        nodes: all cores that the pool could have, by NUMA node.
        capacity: how many it has, whole nodes first; by default all.
    """

    def __init__(self, nodes: Sequence[Sequence[int]], capacity: int | None = None) -> None:
        self._nodes = [tuple(sorted(node)) for node in nodes]
        self._free: list[list[int]] = [[] for _ in nodes]
        self._spare = [list(node) for node in self._nodes]  # not of the pool
        self._away: frozenset[int] = frozenset()  # of the spare ones and those in use: offline now
        self._declared = 0
        self._capacity = 0
        self._excess = 0  # cores in use that leave the pool when they come back; then none is free
        self._shared: list[int] = []
        self._fractions: dict[int, int] = {}  # key -> milli-cores, in order of arrival
        self._placed: dict[int, Placement] = {}
        self.resize(sum(map(len, nodes)) if capacity is None else capacity)

    @property
    def capacity(self) -> int:
        """Cores that the pool has, or will have when those beyond that have come back; none of them is offline."""
        return self._capacity

    @property
    def is_short(self) -> bool:
        """Whether the pool has fewer cores than it shall have, because too few are online."""
        return self._capacity < self._declared

    @property
    def offline(self) -> frozenset[int]:
        """Numbers of the cores that are given to nobody, because they are offline."""
        return self._away

    @property
    def core_ids(self) -> tuple[int, ...]:
        """Numbers of the cores of the pool that are online, those that leave it later included.

        If all of its cores went offline while they were in use, those that are online beside it: there are always some.
        """
        spare = {core for node in self._spare for core in node}
        online = [core for node in self._nodes for core in self._online(node)]
        return tuple(core for core in online if core not in spare) or tuple(online)

    @property
    def free(self) -> int:
        """Cores that no grant uses."""
        return sum(map(len, self._free))

    def take(self, key: int, milli_cores: int, *, beyond: bool = False) -> dict[int, Placement]:
        """Place a grant; return its placement and those of fractions that it moved.

        Args:
            key: its name.
            milli_cores: how much.
            beyond: whether it may use cores that have left the pool; they leave it again when they come back.

        Raises:
            ValueError: there is no room, or nothing was asked.
        """
        if milli_cores <= 0:
            raise ValueError(f"a grant needs milli-cores, {milli_cores} were asked")
        if beyond:
            self._borrow(milli_cores)
        elif self._excess:
            raise ValueError(f"{milli_cores} milli-cores were asked, and {self._excess} cores too many are in use")
        if milli_cores % MILLI == 0:
            placed = Placement(tuple(sorted(pick(self._free, milli_cores // MILLI))), milli_cores)
            self._placed[key] = placed
            return {key: placed}
        grown = _ceil(sum(self._fractions.values()) + milli_cores) - len(self._shared)
        self._shared.extend(sorted(pick(self._free, grown)))
        self._fractions[key] = milli_cores
        return self._arrange()

    def change(self, key: int, milli_cores: int) -> dict[int, Placement]:
        """Give a grant of whole cores more or fewer of them; return its placement and those of fractions that it moved.

        It keeps as many of those that it has as it can, gains near ones and loses the far ones first. With none it
        stays known, until it is given back.

        Args:
            key: its name.
            milli_cores: how much it has from now on.

        Raises:
            ValueError: there is no room, or one of both is no whole number of cores; then nothing has changed.
        """
        has = self._placed[key].core_ids
        if key in self._fractions or milli_cores % MILLI or milli_cores < 0:
            raise ValueError(f"{milli_cores} milli-cores were asked for a grant of {self._placed[key].milli_cores}")
        count = milli_cores // MILLI
        if len(has) < count and self._excess:
            raise ValueError(f"{milli_cores} milli-cores were asked, and {self._excess} cores too many are in use")
        near = near_first(has, self._nodes, self._away)
        kept = [*near[:count], *pick_near(self._free, count - len(has), has, self._nodes)]
        for place, core in enumerate(kept):
            if core in self._away and (other := self._replace(core)) is not None:
                kept[place] = other
        placed = self._placed[key] = Placement(tuple(sorted(kept)), milli_cores)
        self._put_back(near[count:])
        return {**(self._replace_away() if self._away else {}), key: placed}

    def give_back(self, key: int) -> dict[int, Placement]:
        """Free a grant's cores; return the placements of fractions that this moved. Unknown keys are ignored."""
        placed = self._placed.pop(key, None)
        if placed is None:
            return {}
        if key not in self._fractions:
            self._put_back(placed.core_ids)
            return self._replace_away() if self._away else {}
        del self._fractions[key]
        needed = _ceil(sum(self._fractions.values()))
        given_up = self._shared[needed:]
        del self._shared[needed:]
        self._put_back(given_up)
        if self._away:
            self._replace_away()
        return self._arrange()

    def resize(self, capacity: int) -> None:
        """Change how many cores the pool has: free ones come and go at once, those in use leave when they come back.

        Raises:
            ValueError: there are not so many, or it would have none.
        """
        if not 1 <= capacity <= sum(map(len, self._nodes)):
            raise ValueError(f"a pool of {capacity} cores, of {sum(map(len, self._nodes))} that there are")
        self._declared = capacity
        self._fit()

    def set_available(self, core_ids: Collection[int]) -> dict[int, Placement]:
        """Tell which cores are online; the others are given to nobody until they are again.

        Those that the pool lacks are replaced by spare ones as far as there are any; else its capacity is smaller.
        A whole one that is in use stays with its grant; fractions move to another as soon as there is one.

        Args:
            core_ids: numbers of cores, also of such as could never be of the pool; if none could, nothing changes.

        Returns:
            The placements of fractions that were moved.
        """
        every = {core for node in self._nodes for core in node}
        if every.isdisjoint(core_ids):
            return {}
        self._away = frozenset(every.difference(core_ids))
        for spare, free in zip(self._spare, self._free, strict=True):
            for core in self._away.intersection(free):
                free.remove(core)
                insort(spare, core)
        return self._replace_away()

    def _replace_away(self) -> dict[int, Placement]:
        """Put others in the place of cores that are offline; return the placements of fractions that this moved."""
        self._fit()
        moved = False
        for core in self._away.intersection(self._shared):
            if (other := self._replace(core)) is not None:
                self._shared[self._shared.index(core)] = other
                moved = True
        self._fit()
        return self._arrange() if moved else {}

    def _replace(self, core: int) -> int | None:
        """Return one that is online in the place of one in use that is not, if there is any."""
        for cores in (*self._free, *self._spare):
            if online := self._online(cores):
                cores.remove(online[0])
                insort(self._spare[node_of(core, self._nodes)], core)
                return online[0]
        return None

    def _fit(self) -> None:
        """Give the pool as many cores as it shall have, free ones first."""
        self._capacity = min(self._declared, sum(map(len, self._nodes)) - len(self._away))
        in_use = len(self._shared) + sum(
            len(placed.core_ids) for key, placed in self._placed.items() if key not in self._fractions
        )
        self._excess = max(0, in_use - self._capacity)
        missing = max(0, self._capacity - in_use) - self.free
        for _ in range(missing):
            spare, free = next(pair for pair in self._pairs() if self._online(pair[0]))
            core = self._online(spare)[0]
            spare.remove(core)
            insort(free, core)
        for _ in range(-missing):
            spare, free = next(pair for pair in reversed(self._pairs()) if pair[1])
            insort(spare, free.pop())

    def _pairs(self) -> list[tuple[list[int], list[int]]]:
        """Return the spare and the free cores of each node."""
        return list(zip(self._spare, self._free, strict=True))

    def _online(self, core_ids: Sequence[int]) -> list[int]:
        return [core for core in core_ids if core not in self._away]

    def _borrow(self, milli_cores: int) -> None:
        """Make room for a grant with cores that are not of the pool."""
        needed = milli_cores // MILLI
        if milli_cores % MILLI:
            needed = _ceil(sum(self._fractions.values()) + milli_cores) - len(self._shared)
        needed -= self.free
        if needed > sum(len(self._online(spare)) for spare in self._spare):
            return  # which `pick` tells
        for _ in range(needed):
            pair = next(pair for pair in self._pairs() if self._online(pair[0]))
            core = self._online(pair[0])[0]
            pair[0].remove(core)
            insort(pair[1], core)
            self._excess += 1

    def placement(self, key: int) -> Placement:
        """Return where a grant is."""
        return self._placed[key]

    def _put_back(self, core_ids: Sequence[int]) -> None:
        for core in core_ids:
            node = node_of(core, self._nodes)
            leaves = self._excess > 0 or core in self._away
            self._excess -= self._excess > 0
            insort(self._spare[node] if leaves else self._free[node], core)

    def _arrange(self) -> dict[int, Placement]:
        """Place all fractions anew, in order of arrival; return what changed."""
        load = dict.fromkeys(self._shared, 0)
        changed: dict[int, Placement] = {}
        for key, milli_cores in self._fractions.items():
            width = _ceil(milli_cores)
            share = -(-milli_cores // width)
            fullest = sorted(load, key=lambda core: (-load[core], core))
            roomy = [core for core in fullest if load[core] + share <= MILLI][:width]
            if len(roomy) < width:  # float: count it evenly
                roomy, share = list(self._shared), -(-milli_cores // len(self._shared))
            for core in roomy:
                load[core] += share
            placed = Placement(tuple(sorted(roomy)), milli_cores)
            if self._placed.get(key) != placed:
                self._placed[key] = changed[key] = placed
        return changed


def _ceil(milli_cores: int) -> int:
    return -(-milli_cores // MILLI)
