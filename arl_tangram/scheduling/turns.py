"""Whose turn it is in the sandbox of each trajectory: one action at a time, in the order of their calls.

Who has lent its turn and wants it back comes before the others, and then those that a running action has called. They
do not wait for an action that has the turn and still waits for its units: it gives the turn up and has it next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from arl_tangram.model.lifecycle import Demand, PendingAction


class Line(IntEnum):
    """Where an action waits for a turn; the first line comes first."""

    RETURNING = 0
    CALLED = 1
    LAST = 2


@dataclass(slots=True)
class TrajectoryState:
    """An opened or opening trajectory.

    Attributes:
        group: what the user calls the group that it belongs to.
        held: its request, placed; None until it is admitted.
        admitted_at_s: when that was.
        attained_s: seconds that its actions have run so far.
        running: how many of its actions hold units.
        waiting: those of its actions that wait for units or for the turn, by id.
        lent: how many of its actions have lent something.
        closing: whether it ends when none does any more.
        turn: the action that has the turn, or None.
        urgent: those that want it and are not in the last line, each with its line and id.
        turns_waiting: those in the last line, by id.
    """

    group: str | None
    held: PendingAction | None = None
    admitted_at_s: float = 0.0
    attained_s: float = 0.0
    running: int = 0
    waiting: dict[int, PendingAction] = field(default_factory=dict[int, PendingAction])
    lent: int = 0
    closing: bool = False
    turn: int | None = None
    urgent: list[tuple[Line, int, PendingAction]] = field(default_factory=list[tuple[Line, int, PendingAction]])
    turns_waiting: deque[PendingAction] = field(default_factory=deque[PendingAction])


class Trajectories:
    """The trajectories of a core, and who waits for a turn in one of them.

    Args:
        dimensions: how many there are.

    Attributes:
        tied: units of each dimension of trajectories in which an action waits or has lent: they close later than it
            ends.
    """

    def __init__(self, dimensions: int) -> None:
        self.tied = [0] * dimensions
        self._states: dict[int, TrajectoryState] = {}
        self._waiting: dict[int, PendingAction] = {}
        self.open = 0

    @property
    def waiting(self) -> int:
        """How many actions wait for a turn."""
        return len(self._waiting)

    def add(self, trajectory: int, group: str | None) -> None:
        """A trajectory wants to be admitted."""
        self._states[trajectory] = TrajectoryState(group)

    def get(self, trajectory: int) -> TrajectoryState | None:
        """Return a trajectory, or None if there is none of this id."""
        return self._states.get(trajectory)

    def __contains__(self, trajectory: int) -> bool:
        """Whether a trajectory of this id is open, or waits to be."""
        return trajectory in self._states

    def __getitem__(self, trajectory: int) -> TrajectoryState:
        """Return a trajectory."""
        return self._states[trajectory]

    def admit(self, state: TrajectoryState, request: PendingAction, now_s: float) -> None:
        """A trajectory holds what it asked for from now on."""
        state.held = request
        state.admitted_at_s = now_s
        self.open += 1

    def end(self, trajectory: int) -> PendingAction:
        """An admitted trajectory has ended: return the request whose units it held."""
        held = self._states.pop(trajectory).held
        assert held is not None
        self.open -= 1
        return held

    def begin_waiting(self, action: PendingAction, state: TrajectoryState) -> None:
        """An action of a trajectory waits from now on."""
        if not state.waiting and not state.lent:
            self._tie(state, 1)
        state.waiting[action.id] = action

    def end_waiting(self, action_id: int, state: TrajectoryState) -> None:
        """An action of a trajectory has started, or is not wanted any more."""
        del state.waiting[action_id]
        if not state.waiting and not state.lent:
            self._tie(state, -1)

    def lend(self, state: TrajectoryState, more: int) -> None:
        """So many more actions of a trajectory have lent something, or (below 0) fewer."""
        if not state.waiting and not state.lent:
            self._tie(state, 1)
        state.lent += more
        if not state.waiting and not state.lent:
            self._tie(state, -1)

    def tied_ones(self) -> Iterator[tuple[int, TrajectoryState, Demand]]:
        """Yield the trajectories that hold something which is tied, with what they hold."""
        for trajectory, state in self._states.items():
            if (state.waiting or state.lent) and state.held is not None and state.held.demand.fixed:
                yield trajectory, state, state.held.demand

    def _tie(self, state: TrajectoryState, sign: int) -> None:
        if state.held is not None:
            for dimension, units in state.held.demand.fixed:
                self.tied[dimension] += sign * units

    def forget(self, trajectory: int) -> bool:
        """A trajectory that waits to be admitted is not wanted any more; return whether it was one."""
        return self._states.pop(trajectory, None) is not None

    def take_turn(self, action: PendingAction, state: TrajectoryState, line: Line = Line.LAST) -> bool:
        """Give an action the turn, or let it wait for it in one of the lines; return whether it has it."""
        if state.turn is None:
            state.turn = action.id
            return True
        self._wait(action, state, line)
        return False

    def pass_turn(self, action: PendingAction) -> PendingAction | None:
        """An action needs its turn no longer: return who has it next, if anybody."""
        if not action.turn or action.trajectory is None:
            return None
        state = self._states[action.trajectory]
        state.turn = None
        if state.urgent:
            following = state.urgent.pop(0)[2]
        elif state.turns_waiting:
            following = state.turns_waiting.popleft()
        else:
            return None
        self._waiting.pop(following.id, None)
        state.turn = following.id
        return following

    def yield_turn(self, action: PendingAction, line: Line, to: PendingAction) -> None:
        """An action that has the turn and has not started gives it to one that waits for it, and waits in `line`."""
        assert action.trajectory is not None
        state = self._states[action.trajectory]
        self._forget_urgent(to.id, state)
        self._waiting.pop(to.id, None)
        state.turn = to.id
        self._wait(action, state, line)

    def move_last(self, action_id: int) -> PendingAction | None:
        """Let an action that waits for a turn wait in the last line, and return it; None if it does not wait."""
        action = self._waiting.get(action_id)
        if action is not None and action.trajectory is not None:
            state = self._states[action.trajectory]
            if self._forget_urgent(action_id, state):
                self._wait(action, state, Line.LAST)
        return action

    def stop_waiting(self, action_id: int) -> PendingAction | None:
        """Forget an action that waits for a turn, and return it; None if it does not."""
        action = self._waiting.pop(action_id, None)
        if action is None:
            return None
        assert action.trajectory is not None
        state = self._states[action.trajectory]
        if not self._forget_urgent(action_id, state):
            state.turns_waiting.remove(action)
        return action

    def stop_returning(self, action: PendingAction) -> None:
        """An action that runs does not want its turn back."""
        assert action.trajectory is not None
        self._forget_urgent(action.id, self._states[action.trajectory])

    def is_waiting(self, action_id: int) -> bool:
        """Whether an action waits for a turn."""
        return action_id in self._waiting

    def waiting_actions(self) -> Iterable[PendingAction]:
        """Return those that wait for a turn."""
        return self._waiting.values()

    def _wait(self, action: PendingAction, state: TrajectoryState, line: Line) -> None:
        """Let an action wait for a turn: in each line by id, as actions that are tried again have their old place."""
        if line is not Line.RETURNING:
            self._waiting[action.id] = action
        if line is not Line.LAST:
            insort(state.urgent, (line, action.id, action))
            return
        last = state.turns_waiting
        if not last or last[-1].id < action.id:
            last.append(action)
        else:
            last.insert(bisect_left(last, action.id, key=lambda waiting: waiting.id), action)

    @staticmethod
    def _forget_urgent(action_id: int, state: TrajectoryState) -> bool:
        """Take an action out of those that want the turn first; return whether it was among them."""
        for at, (_, other, _) in enumerate(state.urgent):
            if other == action_id:
                del state.urgent[at]
                return True
        return False
