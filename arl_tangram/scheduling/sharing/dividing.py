"""Divide the cores of a node: for each priority, first what others are to find free, then the portions of its sharers.

A sharer that has waited for a while, or is overdue, and does not fit beside others bars those that came after it.
"""

from __future__ import annotations

from math import inf

from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.division import Cores, Division
from arl_tangram.scheduling.sharing.others import Others, Part, Want
from arl_tangram.scheduling.sharing.portions import Group, Portions
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import STAYING, CoreSharer

LEAST_RESIDENCE_S = 0.01
RESIDENCE = 50.0
"""How many times as long as a change takes one keeps its cores."""
PATIENCE_S = 10.0
"""How long a sharer waits before it bars others, and for how long it still does when it has its cores."""


class Dividing:
    """Divides the cores of the nodes of one core object.

    Args:
        asking: the policy.
        others: those that do not share.
        switch_s: seconds that a change takes.

    Attributes:
        residence_s: for how long one that was changed keeps its cores.
    """

    def __init__(self, asking: Asking, others: Others, switch_s: float) -> None:
        self._others = others
        self.residence_s = max(LEAST_RESIDENCE_S, RESIDENCE * switch_s)
        self._portions = Portions(asking, self.residence_s)

    def divide(self, room: Room, cores: Cores, wants: list[Want]) -> Division:
        """Return who is to have what."""
        division = Division()
        if cores.lacks:
            division.lack(-inf, 0)
        waiting: dict[int, list[Want]] = {}
        for want in wants:
            waiting.setdefault(want.priority, []).append(want)
        running: dict[int, list[CoreSharer]] = {}
        kept: dict[int, int] = {}
        for sharer in room.running.values():
            sharer.show(cores.capacity // cores.scale)
            if sharer.id in cores.started:
                sharer.show_nothing_else()
            least = sharer.cores if cores.growing else sharer.least
            kept[sharer.priority] = kept.get(sharer.priority, 0) + least * cores.scale
            running.setdefault(sharer.priority, []).append(sharer)
            if sharer.bars_until_s > cores.now_s:
                division.bars.append(
                    self._others.bar(room.cpu, sharer.priority, sharer.order, sharer.cores * cores.scale)
                )
                division.look_again_s.append(sharer.bars_until_s)
        later = all_kept = sum(kept.values())
        spare, blocked = cores.spare, cores.blocked
        for priority in sorted({*room.priorities, *waiting}):
            if spare - later < cores.scale and priority not in running and priority not in waiting:
                continue
            first = self._first(room, priority, cores, division)
            mine = waiting.get(priority, [])
            part = self._part(room, cores, division, mine, priority, most=spare - later, kept=later, blocked=blocked)
            if first is not None:
                left = cores.spare - all_kept - division.found - part.units
                units = first.sizes[0] * cores.scale
                if units > left or (first.kind == STAYING and (division.lacks or part.lacks)):
                    division.bars.append(self._others.bar(room.cpu, priority, first.order, units))
                    division.lack(priority, first.order)
                    first.bars_until_s = cores.now_s + PATIENCE_S
                    part = self._part(
                        room, cores, division, mine, priority, most=spare - later, kept=later, blocked=blocked
                    )
                elif not first.is_overdue:
                    first = None
            blocked = part.blocked
            if part.lacks is not None:
                division.lack(*part.lacks)
            division.made.update({want.action.id: want.units for want in part.made})
            division.found += part.units
            must = kept.get(priority, 0)
            later -= must
            there_are = max(spare - later - part.units, must) // cores.scale
            group = Group(running.get(priority, []), first, there_are)
            given = self._portions.hand_out(room, priority, cores, group, division)
            spare -= part.units + given * cores.scale
        if len(division.made) < len(wants):
            wants = [want for want in wants if want.action.id not in division.made]
            rest = self._others.part_of(wants, room.cpu, most=spare, bars=division.bars, blocked=cores.blocked)
            division.made.update({want.action.id: want.units for want in rest.made})
        return division

    @staticmethod
    def _first(room: Room, priority: int, cores: Cores, division: Division) -> CoreSharer | None:
        """Return who is to have cores first of those that have none: who is overdue, else the one of the best rank.

        The latter only if it has waited for a while.
        """
        if cores.halted or cores.growing:
            return None
        first = next((sharer for sharer in room.overdue_of(priority) if not sharer.cores), None)
        if first is None:
            first = next(room.idle_of(priority), None)
            if first is None:
                return None
            patient_s = first.changed_at_s + PATIENCE_S
            if patient_s > cores.now_s:
                division.look_again_s.append(patient_s)
                return None
        first.show(cores.capacity // cores.scale)
        return first

    def _part(
        self, room: Room, cores: Cores, division: Division, wants: list[Want], priority: int, *, most: int, kept: int,
        blocked: int,
    ) -> Part:  # fmt: skip
        """Return what others of one priority find free."""
        if not wants:
            return Part(0, (), None, blocked)
        sharers = room.present(priority)
        others = len(wants) + -(-cores.held // cores.scale)
        part = cores.capacity * others // (others + sharers) if sharers else cores.capacity
        return self._others.part_of(
            wants, room.cpu, most=most, kept=kept, beside=part - cores.held - division.found,
            returning=self._others.returning(room.cpu, cores.held) + division.found, blocked=blocked,
            bars=division.bars,
        )  # fmt: skip
