"""The course of an engine: one transition at a time, wishes in order, nothing forgotten."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arl_tangram.services.engine.states import Course, State, Step, Wish

AWAKE, ASLEEP, LOST = State.AWAKE, State.ASLEEP, State.LOST


def test_what_is_wanted_and_there_takes_no_step() -> None:
    course = Course(AWAKE)
    wish = course.want(AWAKE)
    assert course.next() is None
    assert wish.is_over
    assert wish.error is None


def test_those_who_want_the_same_share_a_transition() -> None:
    course = Course(ASLEEP)
    first = course.want(AWAKE)
    assert course.next() is Step.WAKE
    assert course.want(AWAKE) is first
    assert course.next() is None
    course.ended(AWAKE)
    assert first.is_over


def test_it_drains_before_it_sleeps_and_lets_nobody_in_meanwhile() -> None:
    course = Course(AWAKE)
    assert course.enter()
    wish = course.want(ASLEEP)
    assert course.next() is None
    assert course.state is State.DRAINING
    assert not course.enter()
    course.leave()
    assert course.next() is Step.SLEEP
    course.ended(ASLEEP)
    assert wish.error is None


def test_a_drain_that_is_given_up_leaves_it_awake() -> None:
    course = Course(AWAKE)
    course.enter()
    course.want(ASLEEP)
    course.next()
    course.give_up(OSError())
    course.next()
    assert course.state is AWAKE
    assert course.enter()


def test_a_wake_that_was_given_up_is_undone_if_nobody_wants_it() -> None:
    course = Course(ASLEEP)
    wish = course.want(AWAKE)
    course.next()
    error = OSError("too late")
    course.give_up(error)
    assert wish.error is error
    assert course.is_overdue
    course.ended(AWAKE)
    assert course.next() is Step.SLEEP
    course.ended(ASLEEP)
    assert course.next() is None


def test_those_who_have_given_up_by_then_do_not_keep_it_awake() -> None:
    course = Course(ASLEEP)
    course.want(AWAKE)
    course.next()
    course.give_up(OSError())
    course.want(AWAKE).end(OSError())
    course.want(ASLEEP).end(OSError())
    course.ended(AWAKE)
    assert course.next() is Step.SLEEP


def test_a_wake_that_was_given_up_serves_who_wants_it_later() -> None:
    course = Course(ASLEEP)
    course.want(AWAKE)
    course.next()
    course.give_up(OSError())
    later = course.want(AWAKE)
    course.ended(AWAKE)
    assert course.next() is None
    assert later.is_over
    assert later.error is None
    assert course.state is AWAKE


def test_a_lost_one_takes_a_step_in_either_direction() -> None:
    for state, step in ((AWAKE, Step.WAKE), (ASLEEP, Step.SLEEP)):
        course = Course()
        course.want(state)
        assert course.next() is step


def test_death_while_it_drains_is_found_out_by_the_sleep() -> None:
    course = Course(AWAKE)
    course.enter()
    course.want(ASLEEP)
    course.next()
    assert not course.died()
    assert course.next() is None  # its last call has not left yet
    course.leave()
    assert course.next() is Step.SLEEP


@given(st.lists(st.sampled_from([AWAKE, ASLEEP]), max_size=8), st.sampled_from([AWAKE, ASLEEP]))
def test_steps_alternate_and_the_last_wish_decides(wishes: list[State], first: State) -> None:
    course = Course(first)
    for state in wishes:
        course.want(state)
    steps: list[Step] = []
    while (step := course.next()) is not None:
        steps.append(step)
        course.ended(AWAKE if step is Step.WAKE else ASLEEP)
    assert course.state is (wishes[-1] if wishes else first)
    assert all(a is not b for a, b in itertools.pairwise(steps))


class CourseMachine(RuleBasedStateMachine):
    """Any sequence of wishes, calls, ends, failures, deaths and limits."""

    @initialize(state=st.sampled_from([AWAKE, ASLEEP, LOST]))
    def begin(self, state: State) -> None:
        self.course = Course(state)
        self.step: Step | None = None
        self.wishes: list[Wish] = []

    def _advance(self) -> None:
        step = self.course.next()
        if step is not None:
            assert self.step is None, "two transitions at once"
            assert step is Step.WAKE or not self.course.users, "told to sleep while it is used"
            self.step = step

    @rule(state=st.sampled_from([AWAKE, ASLEEP]))
    def want(self, state: State) -> None:
        self.wishes.append(self.course.want(state))
        self._advance()

    @rule()
    def enter(self) -> None:
        state = self.course.state
        assert self.course.enter() is (state is AWAKE)

    @precondition(lambda self: self.course.users)
    @rule()
    def leave(self) -> None:
        self.course.leave()
        self._advance()

    @precondition(lambda self: self.step is not None)
    @rule(state=st.sampled_from([AWAKE, ASLEEP, LOST]), fails=st.booleans())
    def ends(self, state: State, fails: bool) -> None:
        self.step = None
        self.course.ended(state, OSError() if fails else None)
        self._advance()

    @precondition(lambda self: self.step is not None and not self.course.is_overdue)
    @rule()
    def limit_passes(self) -> None:
        self.course.give_up(OSError())

    @precondition(lambda self: self.step is None)
    @rule()
    def dies(self) -> None:
        self.course.died()
        self._advance()

    @invariant()
    def a_step_is_under_way_if_and_only_if_the_state_says_so(self) -> None:
        assert self.course.is_under_way is (self.step is not None)

    def teardown(self) -> None:
        """Every wish is answered, once calls leave and transitions end."""
        for _ in range(self.course.users):
            self.leave()
        while self.step is not None:
            state = AWAKE if self.step is Step.WAKE else ASLEEP
            self.step = None
            self.course.ended(state)
            self._advance()
        assert all(wish.is_over for wish in self.wishes)


TestCourse = CourseMachine.TestCase
