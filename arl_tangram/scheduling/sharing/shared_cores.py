"""Let running actions share the cores of their nodes: the part of a core object that changes what they have.

Before the walk over the queue, the cores of each node for which something changed are divided anew (`dividing`): first
what callers that want theirs back and others that wait are to find free (`others`), then among the sharers. Who shares
is said in `kinds`; a sharer that has lent its cores takes no part until it has them again. After the walk, cores that
others were to find and did not take go to sharers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from arl_tangram.model.events import ActionResized, Event, PolicyRefused
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.decisions import Round
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.nesting import Nesting
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.rounds import Rounds
from arl_tangram.scheduling.sharing.aside import QueueAside
from arl_tangram.scheduling.sharing.asking import Asking
from arl_tangram.scheduling.sharing.dividing import Cores, Dividing, Division
from arl_tangram.scheduling.sharing.kinds import shares
from arl_tangram.scheduling.sharing.others import Others, Want
from arl_tangram.scheduling.sharing.room import Room
from arl_tangram.scheduling.sharing.sharer import CoreSharer, rates_of
from arl_tangram.scheduling.sharing.works import Works
from arl_tangram.scheduling.starting import Starting

_SOON_S = 0.001


class SharedCores:
    """The sharers of one core object.

    Args:
        sharing: who has how many.
        topology: the dimensions.
        ledger: what there is.
        queue: who waits.
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
        self._running = running
        self._nesting = nesting
        self._lending = lending
        self._planning = planning
        self._durations = durations
        self._starting = starting
        self._note = note
        self._switch_s = sharing.switch_s
        self._scale = topology.core_scale
        self._works = Works(durations)
        self._asking = Asking(sharing.policy)
        self._dividing = Dividing(self._asking, sharing.switch_s)
        self._others = Others(ledger, queue)
        cpus = [node.cpu for node in topology.nodes if node.cpu is not None]
        self._rooms = {cpu: Room(cpu, self._asking) for cpu in cpus}
        self._sharers: dict[int, CoreSharer] = {}
        self._told: str | None = None
        planning.shared = topology.cores
        starting.sharing = self
        lending.sharing = self

    # What comes in.

    def start(self, running: RunningAction) -> None:
        """An action has started; if it shares its cores, it does from now on."""
        action = running.pending
        sharer = self._sharers.get(action.id)
        if sharer is None:
            if not shares(action.demand):
                return
            sharer = self._join(action, running.started_at_s)
        room = self._room_of(sharer)
        room.begin_change(sharer)
        sharer.start(running, running.units // self._scale)
        self._asking.rank(sharer)
        room.end_change(sharer)
        room.changed = True

    def lend(self, running: RunningAction, now_s: float, *, cores: bool) -> None:
        """A running action has lent its cores if `cores`, or waits for others and keeps them.

        One that is suspended and keeps that goes on sharing: what it calls may wait for what it has started.
        """
        sharer = self._sharers.get(running.pending.id)
        if sharer is not None and (cores or sharer.cores):
            sharer.count(now_s)
            sharer.away = True
            self._room_of(sharer).remove(sharer)

    def resume(self, running: RunningAction, now_s: float) -> None:
        """A running action has all that it had lent again."""
        sharer = self._sharers.get(running.pending.id)
        if sharer is not None and sharer.away:
            sharer.count(now_s)
            sharer.away = False
            self._room_of(sharer).add(sharer)

    def finish(self, running: RunningAction, now_s: float, duration_s: float | None) -> tuple[int, float | None]:
        """A running action has ended.

        Args:
            running: the action.
            now_s: the time.
            duration_s: for how long it had cores, to learn from; None if it did not end well.

        Returns:
            The units that it ran on longest, and how long it would have taken on them.
        """
        sharer = self._sharers.pop(running.pending.id, None)
        if sharer is None:
            return running.units, duration_s
        sharer.count(now_s)
        if not sharer.away:
            self._room_of(sharer).remove(sharer)
        if duration_s is None or not 0 <= duration_s < inf:
            return running.units, None
        cores, expected_s, work_s = sharer.learned(duration_s)
        self._works.observe(running.pending.demand, running.pending.key, work_s)
        return cores * self._scale, expected_s

    # What goes out.

    def share(self, this: Round, *, halted: bool) -> None:
        """Divide the cores of the nodes for which something changed, or is due."""
        self._take_in(this.now_s)
        changed = self._rounds.changed
        for room in self._rooms.values():
            bit = 1 << room.cpu
            if room.passed_over and (changed & ~bit or self._queue.touched & bit):
                room.passed_over.clear()
            due = room.look_again_s is not None and room.look_again_s <= this.now_s
            wanted_back = self._lending.wanted_back(room.cpu)
            concerned = -1 if self._queue.count(room.cpu) else bit
            concerned = changed & concerned or self._queue.touched & bit
            lost = room.rank_again_s is not None and room.rank_again_s <= this.now_s and room.refresh(this.now_s)
            lost = lost or self._asking.refused != self._told
            if due or room.changed or concerned or wanted_back or lost:
                self._divide(room, this, self._others.wanting(room, halted=halted), halted=halted)
            elif room.rank_again_s is not None and room.rank_again_s <= this.now_s:
                room.rank_again_s = _rank_again_s(room, this.now_s)
            if room.barred and not wanted_back:
                this.barred |= bit << len(self._ledger.target)  # but for calls: they are waited for
            self._planning.sharers[room.cpu] = room.cores * self._scale
        self._queue.touched = 0
        if self._ledger.changed:
            self._rounds.begin_anew(this)

    def fill(self, this: Round, *, halted: bool) -> None:
        """Let sharers have what others were to find free, and did not take."""
        if self._queue.log or self._queue.touched or any(room.changed for room in self._rooms.values()):
            this.decisions.more = True  # who has joined, left or started since is looked at in the next call
        if this.decisions.more:
            return
        for room in self._rooms.values():
            if not room.made_for:
                continue
            left = [action_id for action_id in room.made_for if action_id in self._queue]
            room.made_for = ()
            if left and self._ledger.free[room.cpu] >= self._scale:
                self._divide(room, this, [], halted=halted, growing=True)
                room.passed_over |= dict.fromkeys(left)
        if self._ledger.changed:
            self._rounds.begin_anew(this)

    def next_s(self) -> float | None:
        """When to divide again though nothing comes in."""
        times = [at_s for room in self._rooms.values() for at_s in (room.look_again_s, room.rank_again_s)]
        return min([at_s for at_s in times if at_s is not None], default=None)

    # Steps.

    def _take_in(self, now_s: float) -> None:
        """Take note of who has joined and left the queue."""
        log = self._queue.log
        while log:
            action, joined = log[0]
            if joined:
                self._join(action, now_s)
            elif (sharer := self._sharers.pop(action.id, None)) is not None:
                self._room_of(sharer).remove(sharer)
            log.popleft()

    def _join(self, action: PendingAction, now_s: float) -> CoreSharer:
        rates = rates_of(self._durations, action)
        remaining = self._works.of(action.demand, action.key)
        sharer = CoreSharer(action, self._scale, rates, remaining, min(action.submitted_at_s, now_s))
        self._room_of(sharer).add(sharer)
        self._sharers[action.id] = sharer
        return sharer

    def _room_of(self, sharer: CoreSharer) -> Room:
        return self._rooms[sharer.action.demand.elastic or 0]

    def _divide(self, room: Room, this: Round, wants: list[Want], *, halted: bool, growing: bool = False) -> None:
        now_s = this.now_s
        room.refresh(now_s)
        ledger, cpu, had = self._ledger, room.cpu, room.cores * self._scale
        capacity = ledger.target[cpu]
        held = ledger.used(cpu) - had
        spare = ledger.free[cpu] + had if growing else max(capacity - held, 0)
        for units in self._lending.wanted_back(cpu):
            if units > spare:
                break
            spare -= units
        started = frozenset([running.pending.id for running in this.decisions.started])
        cores = Cores(self._scale, capacity, held, spare, now_s, halted, started, growing)
        division = self._dividing.divide(room, cores, wants)
        stopping = [sharer for sharer, share in division.changes if not share]
        for sharer in stopping:
            self._asking.rank(sharer)
        self._apply(room, division, this)
        room.made_for = tuple(division.made_for)
        room.barred = division.barred
        room.changed = False
        times = division.look_again_s
        if room.idle and (overdue_s := room.next_overdue_s()) is not None:
            times.append(overdue_s)
        room.look_again_s = max(min(times), now_s + _SOON_S) if times else None
        room.rank_again_s = _rank_again_s(room, now_s)
        if self._asking.refused is not None and self._told is None:
            self._refused(this)

    def _apply(self, room: Room, division: Division, this: Round) -> None:
        """Carry out a division: first those that have less, then those that have more, then those that start."""
        less = [(sharer, share) for sharer, share in division.changes if share < sharer.cores]
        for sharer, share in less:
            self._ledger.lend(room.cpu, (sharer.cores - share) * self._scale)
            self._change(room, sharer, share, this)
        for sharer, share in division.changes:
            if sharer.running is not None and share > sharer.cores:
                self._ledger.regain(room.cpu, (share - sharer.cores) * self._scale)
                self._change(room, sharer, share, this)
        for sharer, share in division.changes:
            if sharer.running is None and share:
                action = self._queue.take_aside(sharer.id)
                self._ledger.take(action.demand, share * self._scale, this.now_s)
                self._starting.start(action, share * self._scale, this)

    def _change(self, room: Room, sharer: CoreSharer, share: int, this: Round) -> None:
        assert sharer.running is not None
        running = sharer.running._replace(units=share * self._scale)
        room.begin_change(sharer)
        sharer.count(this.now_s)
        sharer.change(running, share, this.now_s, self._switch_s)
        room.end_change(sharer)
        self._running[sharer.id] = running
        if (caller := self._nesting.callers.get(sharer.id)) is not None:
            caller.running = running
        this.decisions.resized.append(running)
        self._note(ActionResized(this.now_s, sharer.id, running.units))

    def _refused(self, this: Round) -> None:
        """Rank all anew, as there is another policy."""
        reason = self._told = self._asking.refused
        assert reason is not None
        this.decisions.refused_share = reason
        self._note(PolicyRefused(this.now_s, self._asking.given, reason, shares=True))
        for room in self._rooms.values():
            room.rank_all()
            room.changed = True


def _rank_again_s(room: Room, now_s: float) -> float | None:
    """Return when one that runs is to be ranked anew, if that could change anything."""
    if not room.idle and not any(len(sharer.admitted) > 1 for sharer in room.running.values()):
        return None
    times = [s.reaches_s(s.ask_at_s, now_s) for s in room.running.values() if s.ask_at_s < inf]
    return max(min(times), now_s + _SOON_S) if times else None
