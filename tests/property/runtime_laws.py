"""What must hold of a runtime at any time, beside its account."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from arl_tangram import Statistics
from arl_tangram.model.quantities import GIB
from property.runtime_account import Account
from property.runtime_calls import Call
from property.runtime_kinds import BREAKER

_FUSE = "breaker"
"""How the breaker is called among the dimensions."""


class _Entry(NamedTuple):
    """Whoever waits for units: its place in the order, what it needs in each way, and the call if it is one."""

    place: tuple[int, float, int]
    ways: list[dict[str, float]]
    call: Call | None


def check_sums(account: Account, statistics: Statistics) -> None:
    """See that nothing is used twice, and that there is as much as there is to be."""
    for name, dimension in statistics.dimensions.items():
        assert dimension.free + dimension.used == dimension.capacity, name
        by_time = account.comes_back_by_time(name)
        assert dimension.free >= 0 or by_time, name
        if name in account.capacity:
            target = account.capacity[name]
            most = target if by_time else max(target, dimension.used)
            assert dimension.capacity == most, f"{name}: {dimension} is to be {target}"


def check_account(account: Account, statistics: Statistics) -> None:
    """See that as many wait, run and linger as the account says, and that as much is in use."""
    calls = account.calls.values()
    waiting = sum(call.waits and call.parent is None for call in calls)
    waiting += sum(r.state == "entering" and not r.is_given_up for r in account.rollouts.values())
    waiting -= len(account.pool.creating)
    children = sum(call.waits and call.parent is not None for call in calls)  # or have just ended
    assert waiting <= statistics.waiting <= waiting + children, told(account, statistics)
    begun = [call for call in calls if call.began_at_s is not None]
    sure = [call for call in begun if not account.may_be_released(call)]
    most_running = [call for call in begun if not account.is_released(call)]
    assert len(sure) <= statistics.running <= len(most_running), told(account, statistics)
    if not account.clean_s:
        ended = sum(call.ended for call in sure)
        children = sum(not call.ended and call.parent is not None for call in sure)
        assert ended <= len(statistics.lingering) <= ended + children, told(account, statistics)
    for name in account.capacity:
        used = statistics.dimensions[name].used
        if account.comes_back_by_time(name):
            least = account.used_of_limit(name)
            assert least <= used <= least + account.maybe_used(name), f"{name}: {used} in use, not {least}"
        else:
            least, most = account.held(name)
            assert least <= used <= most, f"{name}: {used} in use, and from {least} to {most} are held"
    if account.fuse.certain:
        state = account.fuse.state(account.now_s)
        assert statistics.breakers[BREAKER] == state, f"the breaker is {statistics.breakers[BREAKER]}, not {state}"


def check_nobody_waits_in_vain(account: Account) -> None:
    """Nobody waits whose time is over, who can never start, or whose backend is down."""
    for call in account.calls.values():
        if not call.waits or call.rests or call.parent is not None:
            continue
        assert not account.is_infeasible(call), f"{call} waits for more than there will ever be"
        if call.options.queue_timeout is not None:
            assert account.now_s < call.queued_at_s + call.options.queue_timeout, f"{call} waits for too long"
        if BREAKER in call.cost.quota and account.fuse.certain:
            assert account.fuse.state(account.now_s) != "down", f"{call} waits for what is down"
    creating = len(account.pool.creating)
    too_large = [
        rollout
        for rollout in account.rollouts.values()
        if rollout.state == "entering" and not rollout.is_given_up and account.is_too_large(rollout)
    ]
    assert len(too_large) <= creating, f"trajectories wait for more than there will ever be: {too_large}"


def check_nobody_is_lost(account: Account, statistics: Statistics) -> None:
    """Nobody waits that fits and has nobody before it in any of the dimensions that it needs."""
    seen: set[str] = set()
    for call in account.calls.values():  # those that have lent want all back before others get anything
        if call.waits_for:
            seen.add("cpu")
        if call.waits and not call.rests and (call.parent is not None or account.turn_is_unsure(call) or call.unsure):
            for needs in _ways(account, call):
                seen.update(needs)
    free = {name: dimension.free for name, dimension in statistics.dimensions.items()}
    free.update((name, -1.0) for name, until_s in account.paused_until.items() if until_s > account.now_s)
    free[_FUSE] = _free_of_the_fuse(account)
    for _, ways, call in _in_line(account):
        free_of_others = all(seen.isdisjoint(needs) for needs in ways)
        for needs in ways:
            seen.update(needs)
        fits = any(all(units <= free[name] for name, units in needs.items()) for needs in ways)
        if free_of_others and fits and not (call is not None and _may_hold_back(account, call)):
            raise AssertionError(f"{call or 'a trajectory'} fits and does not start: {ways}")


def check_breaker(account: Account, call: Call) -> None:
    """See that the breaker lets a call begin."""
    fuse = account.fuse
    if BREAKER not in call.cost.quota or not fuse.certain or fuse.changed_at_s == account.now_s:
        return
    state = fuse.state(account.now_s)
    assert state in {"closed", "probing"}, f"{call} began while the breaker was {state}"
    if state == "probing":
        others = [other for other in account.probes() if other is not call]
        assert not others, f"{call} began beside the probe {others}"


def told(account: Account, statistics: Statistics) -> str:
    """Return what there is, for whoever reads of a failure."""
    counts = f"{statistics.waiting} wait, {statistics.running} run, {statistics.lingering} linger"
    calls = [
        f"{c!r} began {c.began_at_s}, ended {c.body_ended_at_s}, answered {c.answered_at_s}"
        for c in account.calls.values()
    ]
    rollouts = [f"trajectory {r.number} {r.state} {r.memory_gib}" for r in account.rollouts.values()]
    return "\n".join([f"at {account.now_s}: {counts}", *calls, *rollouts])


def _free_of_the_fuse(account: Account) -> float:
    if not account.fuse.certain:
        return -1.0
    state = account.fuse.state(account.now_s)
    return {"closed": 1.0, "probing": 1.0 - len(account.probes())}.get(state, -1.0)


def _ways(account: Account, call: Call) -> list[dict[str, float]]:
    ways = account.places(call)
    return [needs | {_FUSE: 1.0} for needs in ways] if BREAKER in call.cost.quota else ways


def _in_line(account: Account) -> list[_Entry]:
    """Return who waits for units, in order."""
    line: list[_Entry] = []
    for call in account.calls.values():
        if call.parent is not None or call.rests or call.unsure or account.turn_is_unsure(call):
            continue
        if call.waits and (not call.takes_turn or account.has_turn(call)):
            line.append(_Entry((call.options.priority, call.joined_at_s, call.number), _ways(account, call), call))
    creating = list(account.pool.creating)
    for rollout in account.rollouts.values():
        if rollout.state == "entering" and not rollout.is_given_up:
            if (held := round(rollout.memory_gib * GIB)) in creating:
                creating.remove(held)
                continue
            needs = {"memory": rollout.memory_gib} if rollout.memory_gib else {}
            if account.reserved:
                needs["cpu"] = float(account.reserved)
            line.append(_Entry((0, rollout.joined_at_s, rollout.number), [needs], None))
    if account.setup.order == "fcfs" and not account.clean_s:
        return sorted(line, key=lambda entry: entry.place)
    # Whoever shares a dimension with another one may stand behind it.
    users: defaultdict[str, int] = defaultdict(int)
    for entry in line:
        for dimension in {d for needs in entry.ways for d in needs}:
            users[dimension] += 1
    return [entry for entry in line if all(users[d] == 1 for needs in entry.ways for d in needs)]


def _may_hold_back(account: Account, call: Call) -> bool:
    """Whether the policy may let a call wait for more than its least."""
    if account.setup.policy != "elastic" or len(call.cost.options) < 2:
        return False
    return any("cpu" in other.holds for other in account.calls.values())
