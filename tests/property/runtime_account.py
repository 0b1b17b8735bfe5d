"""The account of one runtime: what was called, what runs, what each holds, and what each needs and may expect.

The account knows nothing of queues, ledgers or policies. Bodies report when they begin and end, callers report their
answers, and the rest is sums.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from arl_tangram import RunTimeout
from arl_tangram.model.quantities import GIB
from property.runtime_calls import Call
from property.runtime_fuse import Fuse
from property.runtime_kinds import BREAKER, FAILURES, KEYS, LIMITS, PAUSE_S, Limit, OwnError
from property.runtime_setup import Rollout, Setup, WatchedPool
from property.stepped_loop import SteppedLoop


class Account:
    """What is known of a runtime without asking it.

    Attributes:
        loop: where it lives.
        calls: all that have not both been answered and given back what they held.
        submitted: how many calls were ever made.
        again: those of them that have begun more than once and are not answered.
        capacity: what there is to be of each dimension.
        fuse: of the quota that has a breaker.
        halted_at_s: when it was told to start nothing new; infinite if it may.
        resized_at_s: when the capacity of anything was last changed.
    """

    def __init__(self, loop: SteppedLoop, setup: Setup) -> None:
        self.loop = loop
        self.setup = setup
        self.grace_s = setup.grace_s
        self.clean_s = setup.clean_s
        self.pool: WatchedPool = setup.pool()
        self.reserved = 1 if setup.policy == "reserved1" else 0
        self.state = "new"
        self.calls: dict[int, Call] = {}
        self.again: dict[int, Call] = {}
        self.rollouts: dict[int, Rollout] = {}
        self.submitted = 0
        self.faults: list[BaseException] = []
        self.limits = {limit.dimension.format(key=key): limit for limit, key in _limits()}
        self.capacity = {
            "cpu": float(setup.cores), "memory": float(setup.memory_gib), "threads": float(setup.threads),
            **{name: limit.most for name, limit in self.limits.items()},
        }  # fmt: skip
        self.windows: defaultdict[str, list[tuple[Call, list[tuple[float, float]]]]] = defaultdict(list)
        self.maybe: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.paused_until: dict[str, float] = {}
        self.fuse = Fuse(FAILURES, PAUSE_S)
        self.halted_at_s = math.inf
        self.resized_at_s = -math.inf

    @property
    def now_s(self) -> float:
        """The time."""
        return self.loop.time()

    @property
    def is_open(self) -> bool:
        """Whether it takes calls."""
        return self.state == "open"

    @property
    def is_halted(self) -> bool:
        """Whether it was told to start nothing new."""
        return self.halted_at_s < math.inf

    @property
    def may_be_down(self) -> bool:
        """Whether a call may be refused because of the breaker."""
        fuse, now_s = self.fuse, self.now_s
        if not fuse.certain or fuse.changed_at_s == now_s or fuse.state(now_s) == "down":
            return True
        if fuse.state(now_s) != "probing":
            return False
        # Those who wait hear of its end before its caller does.
        over = (c for c in self.calls.values() if BREAKER in c.cost.quota and c.began_at_s is not None and not c.ended)
        return any(c.body_ended_at_s == now_s or c.options.timeout is not None for c in over)

    # What a call needs.

    def needs(self, call: Call, keys: dict[str, str], cores: float) -> dict[str, float]:
        """Return what a call takes, by dimension, with these keys and cores."""
        cost, needs = call.cost, dict[str, float]()
        if cores and not (call.rollout is not None and self.reserved):
            needs["cpu"] = cores
        if cost.memory_gib and not (call.rollout is not None and call.rollout.memory_gib):
            needs["memory"] = cost.memory_gib
        if cost.thread:
            needs["threads"] = 1.0
        for name, (calls, tokens) in cost.quota.items():
            for limit in LIMITS[name]:
                needs[limit.dimension.format(key=keys.get(name, ""))] = tokens if limit.counts == "tokens" else calls
        return needs

    def places(self, call: Call) -> list[dict[str, float]]:
        """Return what it needs to start, in each of the ways in which it can."""
        if not call.places:
            cores = self._asked_cores(call)
            call.places = [self.needs(call, chosen, cores) for chosen in _keys(call)]
        return call.places

    def _asked_cores(self, call: Call) -> float:
        """Return how many cores the policy gives a call that is alone."""
        options = [units for units in call.cost.options if units <= min(self.capacity["cpu"], call.most_cores)]
        if not options:
            return min(call.cost.options, default=0.0)
        dop = {"fixed1": 1, "fixed2": 2, "reserved1": 1}.get(self.setup.policy, 0)
        return max((units for units in options if units <= dop), default=options[0])

    def is_infeasible(self, call: Call) -> bool:
        """Whether a call can never run here."""
        if call.infeasible is None:
            call.infeasible = self._never_fits(call)
        return call.infeasible

    def _never_fits(self, call: Call) -> bool:
        if call.rollout is not None and 0 < call.rollout.memory_gib < call.cost.memory_gib:
            return True
        least = min(call.cost.options, default=0.0)
        ways = [self.needs(call, chosen, least) for chosen in _keys(call)]
        return all(any(units > self.capacity[name] for name, units in needs.items()) for needs in ways)

    def is_too_large(self, rollout: Rollout) -> bool:
        """Whether a trajectory can never be admitted."""
        return rollout.memory_gib > self.capacity["memory"] or self.reserved > self.capacity["cpu"]

    def is_exhausted(self, call: Call) -> bool:
        """Whether too little is left for good of a total that a call needs."""
        for name, units in self.needs(call, {"keys": "#1"}, 0.0).items():
            limit = self.limits.get(name)
            if limit is not None and limit.window_s == math.inf:
                running = [charges for c, charges in self.windows[name] if charges is c.charges.get(name) and c.runs]
                spent = self.used_of_limit(name) + self.maybe_used(name)
                spent -= sum(units for charges in running for _, units in charges)
                if units > self.capacity[name] - spent:
                    return True
        return False

    def may_start(self, call: Call) -> bool:
        """Whether a call waits and has not been told to end, which its caller may not know yet."""
        queue_timeout = call.options.queue_timeout
        over = queue_timeout is not None and self.now_s >= call.queued_at_s + queue_timeout
        if not call.waits or call.rests or over or call.interrupts or call.infeasible_at_s:
            return False
        return not (self.is_infeasible(call) or self.is_exhausted(call))

    # What is held.

    def is_released(self, call: Call) -> bool:
        """Whether a call surely holds nothing any more, and does not wait either."""
        if call.began_at_s is None:
            return call.ended
        late_s = 2 * self.clean_s if call.cost.options else 0.0
        return call.body_ended_at_s is not None and self.now_s >= call.body_ended_at_s + late_s

    def may_be_released(self, call: Call) -> bool:
        """Whether a call may hold nothing any more."""
        if call.began_at_s is None:
            return call.ended
        if call.body_ended_at_s is None:
            return False
        lingered = call.answered_at_s is not None and call.answered_at_s <= call.body_ended_at_s  # cleaned up before
        early_s = self.clean_s if call.cost.options and not lingered else 0.0
        return self.now_s >= call.body_ended_at_s + early_s

    def held(self, name: str) -> tuple[float, float]:
        """Return the least and the most that are in use of what is held and given back."""
        begun = [call for call in self.calls.values() if call.began_at_s is not None]
        least = sum(_holds(call, name) for call in begun if not self.may_be_released(call))
        most = sum(_holds(call, name) for call in begun if not self.is_released(call))
        return least + self._held_by_rollouts(name, sure=True), most + self._held_by_rollouts(name, sure=False)

    def _held_by_rollouts(self, name: str, *, sure: bool) -> float:
        amounts: list[float] = []
        released = self.may_be_released if sure else self.is_released
        for rollout in self.rollouts.values():
            begun = [call for call in rollout.calls.values() if call.began_at_s is not None]
            held = rollout.state in {"open", "leaving"} or not all(map(released, begun))
            if held or (rollout.state == "entering" and rollout.is_given_up):  # it is being removed
                amounts.append({"memory": rollout.memory_gib, "cpu": float(self.reserved)}.get(name, 0.0))
        if name == "memory":
            amounts.append(sum(self.pool.creating) / GIB)
        if name == "cpu":
            amounts.append(self.reserved * len(self.pool.creating))
        return sum(amounts)

    def used_of_limit(self, name: str) -> float:
        """Return what is in use of what comes back by time, or never."""
        now_s = self.now_s
        return sum(units for _, charges in self.windows[name] for at_s, units in charges if at_s > now_s)

    def maybe_used(self, name: str) -> float:
        """Return what calls may have taken that were told to end between their grant and their body's first step."""
        return sum(units for at_s, units in self.maybe[name] if at_s > self.now_s)

    def comes_back_by_time(self, name: str) -> bool:
        """Whether units are used for a window from their grant on, or for ever, and can be overdrawn by who settles."""
        return name in self.limits and self.limits[name].window_s is not None

    def window_s(self, name: str) -> float:
        """Return for how long units are used of what comes back by time."""
        window_s = self.limits[name].window_s
        assert window_s is not None
        return window_s

    def probes(self) -> list[Call]:
        """Return the calls in flight that began after the last pause of the breaker."""
        return [
            call
            for call in self.calls.values()
            if BREAKER in call.cost.quota and call.began_at_s is not None and call.body_ended_at_s is None
            and self.fuse.is_probe(call.began_at_s)
        ]  # fmt: skip

    # What bodies say of their quotas.

    def retry_after(self, call: Call, name: str, for_s: float) -> None:
        """A body has said that its quota shall pause."""
        for dimension in [d for d in [*call.holds, *call.charges] if d.startswith(f"quota:{name}")]:
            until_s = self.now_s + for_s
            self.paused_until[dimension] = max(until_s, self.paused_until.get(dimension, 0.0))

    def settled(self, call: Call, name: str, calls: float, tokens: float) -> None:
        """A body has said what it used."""
        for dimension, charges in call.charges.items():
            if not dimension.startswith(f"quota:{name}"):
                continue
            more = (tokens if self.limits[dimension].counts == "tokens" else calls) - sum(u for _, u in charges)
            if more > 0:
                charges.append((self.now_s + self.window_s(dimension), more))
            while more < 0:
                at_s, units = charges.pop()
                less = min(units, -more)
                more += less
                if less < units:
                    charges.append((at_s, units - less))

    # How calls end.

    def tell_fuse(self, call: Call, error: BaseException | None) -> None:
        """Tell the fuse how a call has ended, or an attempt of it."""
        if BREAKER not in call.cost.quota:
            return
        if call.cancelled_at_s is not None:  # it may have ended by itself before its caller could see that
            over_s = math.inf if call.options.timeout is None or call.began_at_s is None else call.options.timeout
            ends_s = min(call.natural_at_s, (call.began_at_s or 0.0) + over_s)
            if call.calls_others or ends_s <= call.cancelled_at_s:
                self.fuse.certain = False
        counts = call.script.retry_after_s is None and (error is None or isinstance(error, (OwnError, RunTimeout)))
        if counts and call.began_at_s is not None:
            self.fuse.count(call.began_at_s, self.now_s, failed=error is not None)

    # Turns.

    def turn_is_unsure(self, call: Call) -> bool:
        """Whether it is hard to say whose turn it is."""
        if not call.takes_turn or call.rollout is None:
            return False
        return any(c.calls_others or c.options.retries or c.by_thread for c in call.rollout.calls.values())

    def has_turn(self, call: Call) -> bool:
        """Whether nobody else has the turn, or is the next to have it."""
        assert call.rollout is not None
        others = [c for c in call.rollout.calls.values() if c.takes_turn and c.began_at_s is not None]
        return call.rollout.turns[0] is call and all(map(self.is_released, others))

    def pass_turn(self, call: Call) -> None:
        """A call wants its turn no longer: the next one joins the queue now."""
        if call.rollout is None or not call.is_in_line:
            return
        turns: deque[Call] = call.rollout.turns
        if turns[0] is not call:
            turns.remove(call)
            return
        turns.popleft()
        if turns:
            turns[0].joined_at_s = self.now_s

    def forget(self) -> None:
        """Drop what is over from the account."""
        if not self.loop.is_quiet:
            return
        for name, parts in self.windows.items():
            self.windows[name] = [
                (call, charges)
                for call, charges in parts
                if call.body_ended_at_s is None or any(at_s > self.now_s for at_s, _ in charges)
            ]
        for name, maybe in self.maybe.items():
            self.maybe[name] = [(at_s, units) for at_s, units in maybe if at_s > self.now_s]
        for call in [c for c in self.calls.values() if c.ended and self.is_released(c)]:
            del self.calls[call.number]
            self.again.pop(call.number, None)
        for rollout in list(self.rollouts.values()):
            for call in [c for c in rollout.calls.values() if c.ended and self.is_released(c)]:
                del rollout.calls[call.number]
            if rollout.state == "gone" and not rollout.calls:
                del self.rollouts[rollout.number]


def _holds(call: Call, name: str) -> float:
    return 0.0 if name == "cpu" and call.lends_cores else call.holds.get(name, 0.0)


def _keys(call: Call) -> list[dict[str, str]]:
    """Return the keys of its quotas, as the ends of names, in each of the ways in which it can have them."""
    return [{"keys": f"#{n}"} for n in range(1, len(KEYS) + 1)] if "keys" in call.cost.quota else [{}]


def alike(account: Account, call: Call) -> tuple[Any, ...]:
    """Return what is the same for all calls that must start in the order in which they were made."""
    if account.setup.policy == "fixed1":
        (needs, *_) = account.places(call)
        return (*sorted(needs.items()), call.options.priority, BREAKER in call.cost.quota)
    return call.kind, call.options.priority


def _limits() -> Iterator[tuple[Limit, str]]:
    for name, limits in LIMITS.items():
        for limit in limits:
            for key in ("#1", "#2") if name == "keys" else ("",):
                yield limit, key
