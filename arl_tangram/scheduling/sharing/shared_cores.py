"""Let running actions share the cores of their nodes: the part of a core object that changes what they have.

Before the walk over the queue, the cores of each node for which something changed are divided anew (`dividing`): first
what callers that want theirs back and others that wait are to find free (`others`), then among the sharers. Who shares
is said in `kinds`; a sharer that has lent its cores takes no part until it has them again. As long as a sharer has
none, the walk sees no other free cores than those. What others were to find and did not take goes to sharers after it,
and is not kept free for them again before something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import inf

from arl_tangram.model.events import Event, PolicyRefused
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.carrying_out import CarryingOut
from arl_tangram.scheduling.sharing.dividing import LEAST_RESIDENCE_S, PATIENCE_S, Dividing
from arl_tangram.scheduling.sharing.division import Cores
from arl_tangram.scheduling.sharing.kinds import shares
from arl_tangram.scheduling.sharing.members import Members
from arl_tangram.scheduling.sharing.others import Others, Want
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.works import Works
from arl_tangram.scheduling.starting import Starting


class SharedCores:
    """The sharers of one core object.

    Args:
        sharing: who has how many.
        topology: the dimensions.
        ledger: what there is.
        queue: who waits.
        blocking: what those who wait block.
        rounds: what has changed.
        running: what runs, by id; what has other cores is replaced.
        nesting: who has called whom.
        lending: who wants back what it has lent.
        planning: is told what sharers have.
        durations: what is expected of actions.
        starting: starts those whose units are taken.
        note: is told what happens.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        sharing: Sharing,
        topology: Topology,
        ledger: Ledger,
        queue: QueueAside,
        blocking: Blocking,
        rounds: Rounds,
        running: dict[int, RunningAction],
        nesting: Nesting,
        lending: Lending,
        planning: Planning,
        durations: Durations,
        starting: Starting,
        note: Callable[[Event], object],
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._rounds = rounds
        self._lending = lending
        self._planning = planning
        self._note = note
        self._scale = topology.core_scale
        self._asking = Asking(sharing.policy)
        self._others = Others(ledger, queue, blocking)
        self._dividing = Dividing(self._asking, self._others, sharing.switch_s)
        cpus = [node.cpu for node in topology.nodes if node.cpu is not None]
        self._rooms = {cpu: Room(cpu, self._asking) for cpu in cpus}
        self._members = Members(self._rooms, self._scale, queue, durations, Works(durations), self._asking)
        self._carrying_out = CarryingOut(ledger, queue, running, nesting, starting, self._scale, sharing.switch_s, note)
        self._told: str | None = None
        planning.shared = topology.cores
        starting.sharing = self
        lending.sharing = self

    # What comes in.

    def start(self, running: RunningAction) -> None:
        """An action has started; if it shares its cores, it does from now on."""
        action = running.pending
        sharer = self._members.get(action.id)
        if sharer is None:
            if not shares(action.demand):
                return
            sharer = self._members.join(action, running.started_at_s)
        room = self._members.room_of(sharer)
        room.begin_change(sharer)
        sharer.start(running, running.units // self._scale)
        room.end_change(sharer)
        room.changed = True

    def lend(self, running: RunningAction, now_s: float, *, cores: bool) -> None:
        """A running action has lent its cores if `cores`, or waits for others and keeps them.

        One that is suspended and keeps that goes on sharing: what it calls may wait for what it has started.
        """
        sharer = self._members.get(running.pending.id)
        if sharer is not None and (cores or sharer.cores):
            sharer.count(now_s)
            sharer.away = True
            self._members.room_of(sharer).remove(sharer)

    def resume(self, running: RunningAction, now_s: float) -> None:
        """A running action has all that it had lent again."""
        sharer = self._members.get(running.pending.id)
        if sharer is not None and sharer.away:
            sharer.count(now_s)
            sharer.away = False
            sharer.ask_at_s = sharer.attained_s
            self._members.room_of(sharer).add(sharer)

    def finish(self, running: RunningAction, now_s: float, duration_s: float | None) -> tuple[int, float | None]:
        """A running action has ended.

        Args:
            running: the action.
            now_s: the time.
            duration_s: for how long it had cores, to learn from; None if it did not end well.

        Returns:
            The units that it ran on longest, and how long it would have taken on them.
        """
        sharer = self._members.get(running.pending.id)
        if sharer is None:
            return running.units, duration_s
        sharer.count(now_s)
        self._members.remove(sharer)
        if duration_s is None or not 0 <= duration_s < inf:
            return running.units, None
        cores, expected_s, work_s = sharer.learned(duration_s)
        self._members.learn(running.pending, work_s)
        return cores * self._scale, expected_s

    # What goes out.

    def share(self, this: Round, *, halted: bool) -> None:
        """Divide the cores of the nodes for which something changed, or is due."""
        self._members.take_in(this.now_s)
        self._members.rank_stale()
        changed = self._rounds.changed
        for room in self._rooms.values():
            bit = 1 << room.cpu
            wanted_back = self._lending.wanted_back(room.cpu)
            if room.passed_over and (
                any(changed & ~bit & dimensions for dimensions in room.passed_over.values())
                or (self._queue.touched | self._rounds.due) & bit
                or self._seen(room) != room.seen
                or room.try_again_s <= this.now_s
            ):
                room.passed_over.clear()
            due = room.look_again_s is not None and room.look_again_s <= this.now_s
            concerned = -1 if self._queue.count(room.cpu) else bit
            concerned = changed & concerned or self._queue.touched & bit
            lost = room.rank_again_s is not None and room.rank_again_s <= this.now_s and room.refresh(this.now_s)
            lost = lost or self._asking.refused != self._told
            if due or room.changed or concerned or wanted_back or lost:
                self._divide(room, this, self._others.wanting(room, halted=halted), halted=halted)
            elif room.rank_again_s is not None and room.rank_again_s <= this.now_s:
                room.rank_again_s = self._rank_again_s(room, this.now_s)
        self._queue.touched = 0
        if self._ledger.changed:
            self._rounds.begin_anew(this)

    @contextmanager
    def kept_from_others(self) -> Generator[None]:
        """Hide what is free for sharers, as long as any of them has no cores, from the walk over the queue."""
        free, hidden = self._ledger.free, dict[int, int]()
        for room in self._rooms.values():
            if room.idle or self._queue.log:
                found = sum([units for action_id, units in room.made.items() if action_id in self._queue])
                hidden[room.cpu] = max(0, free[room.cpu] - found)
            self._planning.sharers[room.cpu] = room.cores * self._scale + hidden.get(room.cpu, 0)
        seen = {cpu: free[cpu] for cpu in hidden}
        try:
            for cpu, units in hidden.items():
                free[cpu] = seen[cpu] - units
            yield
        finally:
            for cpu, units in hidden.items():
                free[cpu] += units

    def fill(self, this: Round, *, halted: bool) -> None:
        """Let sharers have what others were to find free, and did not take."""
        for room in self._rooms.values():
            if room.made and self._seen(room) != room.seen and any(other in self._queue for other in room.made):
                room.changed = True  # one of them may have taken what was for another one
        if self._queue.log or self._queue.touched or any(room.changed for room in self._rooms.values()):
            this.decisions.more = True  # who has joined, left or started since is looked at in the next call
        if this.decisions.more:
            return
        for room in self._rooms.values():
            left = [action_id for action_id in room.made if action_id in self._queue]
            room.made = {}
            if left:
                room.passed_over |= {action_id: self._queue.get(action_id).demand.dimensions for action_id in left}
                room.try_again_s = this.now_s + PATIENCE_S
                self._divide(room, this, [], halted=halted, growing=True)
        if self._ledger.changed:
            self._rounds.begin_anew(this)

    def next_s(self) -> float | None:
        """When to divide again though nothing comes in."""
        times = [at_s for room in self._rooms.values() for at_s in (room.look_again_s, room.rank_again_s)]
        return min([at_s for at_s in times if at_s is not None], default=None)

    # Steps.

    def _held(self, room: Room) -> int:
        """Return the units that others have."""
        return self._ledger.used(room.cpu) - room.cores * self._scale

    def _seen(self, room: Room) -> tuple[int, list[int]]:
        """Return what keeps others from cores that are free: what others have, and what callers want back."""
        return self._held(room), self._lending.wanted_back(room.cpu)

    def _divide(self, room: Room, this: Round, wants: list[Want], *, halted: bool, growing: bool = False) -> None:
        room.changed = True  # until it is done: it may be interrupted
        now_s = this.now_s
        room.refresh(now_s)
        cores = self._cores(room, this, halted=halted, growing=growing)
        division = self._dividing.divide(room, cores, wants)
        begun = [sharer for sharer, _ in division.changes if not sharer.cores]
        for sharer, share in division.changes:
            if not share:
                self._asking.rank(sharer)
        self._carrying_out.carry_out(room, division.changes, this)
        for sharer in begun:
            self._asking.rank(sharer)
        if self._queue.count(room.cpu):
            self._ledger.changed |= 1 << room.cpu  # what there is for others is another
        times = division.look_again_s
        if growing:
            times += [room.try_again_s, *([] if room.look_again_s is None else [room.look_again_s])]
        else:
            room.made = division.made
            room.seen = self._seen(room)
            if room.passed_over:
                times.append(room.try_again_s)
        if room.idle and (overdue_s := room.next_overdue_s()) is not None:
            times.append(overdue_s)
        room.look_again_s = max(min(times), now_s + LEAST_RESIDENCE_S) if times else None
        room.rank_again_s = self._rank_again_s(room, now_s)
        room.changed = False
        if self._asking.refused is not None and self._told is None:
            self._refused(this)

    def _cores(self, room: Room, this: Round, *, halted: bool, growing: bool) -> Cores:
        """Return what there is to divide."""
        ledger, cpu = self._ledger, room.cpu
        capacity, held = ledger.target[cpu], self._held(room)
        spare = ledger.free[cpu] + room.cores * self._scale if growing else max(capacity - held, 0)
        kept = sum([sharer.must_keep for sharer in room.running.values()]) * self._scale
        blocked, lacks = 0, False
        for units in self._lending.wanted_back(cpu):
            if units > spare - kept:
                lacks = units <= spare
                blocked |= self._others.blocked_by_callers(cpu, units)
                break
            spare -= units
        decisions = this.decisions
        started = frozenset([running.pending.id for running in (*decisions.started, *decisions.resumed)])
        return Cores(self._scale, capacity, held, spare, this.now_s, halted, started, growing, lacks, blocked)

    def _rank_again_s(self, room: Room, now_s: float) -> float | None:
        at_s = room.next_rank_s(now_s)
        return None if at_s is None else max(at_s, now_s + self._dividing.residence_s)

    def _refused(self, this: Round) -> None:
        """Rank all anew, as there is another policy."""
        reason = self._told = self._asking.refused
        assert reason is not None
        this.decisions.refused_share = reason
        self._note(PolicyRefused(this.now_s, self._asking.given, reason, shares=True))
        for room in self._rooms.values():
            room.rank_all()
            room.changed = True
