"""Whose turn it is in the sandbox of each trajectory: one action at a time, in the order of their calls."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from arl_tangram.model.lifecycle import Demand, PendingAction


@dataclass(slots=True)
class TrajectoryState:
    """An opened or opening trajectory.

    Attributes:
        group: what the user calls the group that it belongs to.
        held: its request, placed; None until it is admitted.
        original: what it asked for before it was placed.
        admitted_at_s: when that was.
        attained_s: seconds that its actions have run so far.
        running: how many of its actions hold units.
        closing: whether it ends when none does any more.
        turn: the action that has the turn, or None.
        turns_waiting: those that want it, in order.
    """

    group: str | None
    held: PendingAction | None = None
    original: Demand | None = None
    admitted_at_s: float = 0.0
    attained_s: float = 0.0
    running: int = 0
    closing: bool = False
    turn: int | None = None
    turns_waiting: deque[PendingAction] = field(default_factory=deque[PendingAction])


class Trajectories:
    """The trajectories of a core, and who waits for a turn in one of them."""

    def __init__(self) -> None:
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

    def __getitem__(self, trajectory: int) -> TrajectoryState:
        """Return a trajectory."""
        return self._states[trajectory]

    def admit(self, state: TrajectoryState, request: PendingAction, original: Demand, now_s: float) -> None:
        """A trajectory holds what it asked for from now on."""
        state.held = request
        state.original = original
        state.admitted_at_s = now_s
        self.open += 1

    def end(self, trajectory: int) -> PendingAction:
        """An admitted trajectory has ended: return the request whose units it held."""
        held = self._states.pop(trajectory).held
        assert held is not None
        self.open -= 1
        return held

    def forget(self, trajectory: int) -> bool:
        """A trajectory that waits to be admitted is not wanted any more; return whether it was one."""
        return self._states.pop(trajectory, None) is not None

    def take_turn(self, action: PendingAction, state: TrajectoryState) -> bool:
        """Give an action the turn, or let it wait for it; return whether it has it."""
        if state.turn is None:
            state.turn = action.id
            return True
        state.turns_waiting.append(action)
        self._waiting[action.id] = action
        return False

    def pass_turn(self, action: PendingAction) -> PendingAction | None:
        """An action needs its turn no longer: return who has it next, if anybody."""
        if not action.turn or action.trajectory is None:
            return None
        state = self._states[action.trajectory]
        state.turn = None
        if not state.turns_waiting:
            return None
        following = state.turns_waiting.popleft()
        del self._waiting[following.id]
        state.turn = following.id
        return following

    def stop_waiting(self, action_id: int) -> bool:
        """Forget an action that waits for a turn; return whether it was one."""
        action = self._waiting.pop(action_id, None)
        if action is None:
            return False
        assert action.trajectory is not None
        self._states[action.trajectory].turns_waiting.remove(action)
        return True

    def is_waiting(self, action_id: int) -> bool:
        """Whether an action waits for a turn."""
        return action_id in self._waiting
