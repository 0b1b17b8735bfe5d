"""The waiting queue against a plain sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.scheduling.queue import WaitingQueue

DIMENSIONS = 3
DEMANDS = [
    Demand("d", fixed=tuple((d, 1) for d in range(DIMENSIONS) if mask >> d & 1), dimensions=mask, priority=priority)
    for mask in (0b001, 0b010, 0b011, 0b100)
    for priority in (0, 1)
]

STEPS = ["add", "add", "add late", "remove", "take"]


def order(action: PendingAction) -> tuple[int, int]:
    return action.demand.priority, action.id


def take_first(queue: WaitingQueue) -> PendingAction:
    (_, _, first), lane = queue.heads(~0)[0]
    found = queue.first(lane)
    assert found is not None
    assert found.id == first
    assert queue.take(lane) is found
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 1 << 16), st.booleans()),
        max_size=150,
    )
)
def test_lanes_tell_what_a_sorted_list_tells(steps: list[tuple[str, int, bool]]) -> None:
    queue, waiting, next_id, spared = WaitingQueue(DIMENSIONS), dict[int, PendingAction](), 1, list[int]()
    for step, draw, inside in steps:
        match step:
            case "add" | "add late":
                if step == "add late" and spared:  # a turn comes to who was submitted long ago
                    action_id = spared.pop(draw % len(spared))
                else:
                    action_id, next_id = next_id + 1, next_id + 2
                    spared.append(action_id - 1)
                action = PendingAction(action_id, DEMANDS[draw % len(DEMANDS)], 0.0, trajectory=1 if inside else None)
                queue.add(action)
                waiting[action.id] = action
            case "remove" if waiting:
                action_id = sorted(waiting)[draw % len(waiting)]
                queue.remove(action_id)
                del waiting[action_id]
            case "take" if waiting:
                taken = [take_first(queue) for _ in range(min(len(waiting), draw % 4 + 1))]
                assert taken == sorted(waiting.values(), key=order)[: len(taken)]
                for each in sorted(taken, key=lambda a: draw * a.id % 7):  # put back in any order
                    queue.put_back(each)
                assert take_first(queue) is taken[0]
                del waiting[taken[0].id]
        assert len(queue) == len(waiting)
        assert {a.id for a in queue} == set(waiting)
        assert sorted((p, i) for (p, _, i), _ in queue.heads(~0)) == sorted(
            {min(map(order, lane)) for lane in _lanes(list(waiting.values())).values()}
        )
        for dimension in range(DIMENSIONS):
            users = sorted((a for a in waiting.values() if a.demand.dimensions >> dimension & 1), key=order)
            assert queue.behind(dimension, 5) == users[:5]


def test_removed_actions_do_not_pile_up() -> None:
    queue = WaitingQueue(DIMENSIONS)
    for i in range(1, 10_001):
        queue.add(PendingAction(i, DEMANDS[0], 0.0))
        if i > 10:
            queue.remove(i)
    assert len(queue) == 10
    assert sum(len(lane.actions) for lane in queue._lanes.values()) < 200


def _mask(action: PendingAction) -> int:
    mask = action.demand.dimensions
    return mask if action.trajectory is not None else mask | mask << DIMENSIONS


def _lanes(actions: list[PendingAction]) -> dict[int, list[PendingAction]]:
    lanes: dict[int, list[PendingAction]] = {}
    for action in actions:
        lanes.setdefault(_mask(action), []).append(action)
    return lanes
