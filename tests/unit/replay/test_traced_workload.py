"""What is made of a trace: when calls are made again, how long they take on other cores, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import BodyKind
from arl_tangram.replay.source import Source, read_source
from arl_tangram.simulate.calls import Call
from unit.replay.traces import Trace

GIB = 1 << 30
ELASTIC: dict[str, Any] = {"options": [1000, 2000, 4000], "relative": [1.0, 0.5, 0.25]}
SEARCH = (
    {"name": "quota:search/calls", "capacity": 5000, "scale": 1000, "window_s": 1.0},
    {"name": "quota:search/concurrency", "capacity": 2000, "scale": 1000, "window_s": None},
    {"name": "quota:search/tokens", "capacity": 900_000, "scale": 1000, "window_s": 60.0},
)


def replayed(trace: Trace, folder: Path) -> Source:
    return read_source([trace.write(folder)])


def turns_of(source: Source, rollout: int = 0) -> list[tuple[float, tuple[float, ...]]]:
    found = source.workload.rollouts[rollout].turns
    return [(round(turn.thinking_s, 6), tuple(round(call.duration_s(1), 6) for call in turn.calls)) for turn in found]


def only_call(source: Source) -> Call:
    (arrival,) = source.workload.arrivals
    return arrival.call


class TestWhen:
    def test_trajectories_think_as_long_as_they_did(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 10.0, waited_s=3.0, memory=2 * GIB)
        trace.ran(7, 11.0, 13.0, 1)
        trace.ran(8, 16.0, 17.0, 1)
        trace.closed(1, 21.0)
        source = replayed(trace, tmp_path)
        (rollout,) = source.workload.rollouts
        assert turns_of(source) == [(1, (2,)), (3, (1,)), (4, ())]
        assert (rollout.at_s, rollout.memory_bytes) == (0, 2 * GIB)
        assert source.notes == ()

    def test_each_begins_when_it_wished_to(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 10.0)
        trace.closed(1, 15.0)
        trace.opened(2, 15.0, waited_s=4.0)
        trace.ran(7, 15.0, 16.0, 2)
        trace.closed(2, 16.0)
        assert [rollout.at_s for rollout in replayed(trace, tmp_path).workload.rollouts] == [0, 1]

    def test_what_is_outside_of_trajectories_is_made_when_it_was(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 5.0, 6.0)
        trace.ran(8, 7.5, 9.0)
        source = replayed(trace, tmp_path)
        assert [(one.at_s, one.call.duration_s(1)) for one in source.workload.arrivals] == [(0, 1), (2.5, 1.5)]

    def test_a_queue_is_no_work(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.submitted(7, 1.0)
        trace.started(7, 4.0)
        trace.ended(7, 6.0, 1.5, overhead_s=0.5)
        assert only_call(replayed(trace, tmp_path)).duration_s(1) == 2

    def test_overlapping_calls_are_made_at_once(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 0.0)
        trace.submitted(7, 1.0, 1)
        trace.started(7, 1.0)
        trace.submitted(8, 2.0, 1)
        trace.started(8, 2.0)
        trace.ended(7, 3.0, 2.0, trajectory=1)
        trace.ended(8, 6.0, 4.0, trajectory=1)
        trace.closed(1, 6.0)
        source = replayed(trace, tmp_path)
        assert turns_of(source) == [(1, (2, 4)), (0, ())]
        assert source.notes == (
            "Calls made while others of their trajectory ran, which are made together with these: 1.",
        )

    def test_nested_calls_are_made_after_their_callers(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 0.0)
        trace.submitted(7, 1.0, 1)
        trace.started(7, 1.0)
        trace.submitted(8, 2.0, 1, parent=7)
        trace.started(8, 2.0)
        trace.ended(8, 4.0, 2.0, trajectory=1)
        trace.ended(7, 6.0, 5.0, trajectory=1)
        trace.closed(1, 6.0)
        source = replayed(trace, tmp_path)
        assert turns_of(source) == [(1, (3,)), (0, (2,)), (0, ())]
        assert "Calls made by other calls" in source.notes[0]

    def test_who_never_ran_is_left_out_with_its_wait(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 0.0)
        trace.submitted(7, 1.0, 1)
        trace.ended(7, 9.0, 0.0, trajectory=1, outcome="queue_timeout")
        trace.ran(8, 10.0, 11.0, 1)
        trace.closed(1, 11.0)
        source = replayed(trace, tmp_path)
        assert turns_of(source) == [(1, ()), (1, (1,)), (0, ())]
        assert "gave up or were cancelled before they started, which are left out: 1." in source.notes[0]

    def test_a_run_that_was_killed(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.opened(1, 0.0)
        trace.ran(7, 1.0, 2.0, 1)
        trace.submitted(8, 3.0, 1)
        trace.started(8, 3.0)
        trace.ending = '{"type":"ended","at_s":4.0,"id'
        source = replayed(trace, tmp_path)
        assert turns_of(source) == [(1, (1,))]
        assert source.notes == (
            "The trace has no end: the run was killed or still goes on.",
            "The last line is cut off and left out: 1.",
            "Calls that had not ended when the trace does, which are left out: 1.",
            "Trajectories that had not closed when the trace ends, and close after their last call: 1.",
        )

    def test_lines_that_are_about_nothing_are_told(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 2.0, 5)
        trace.line("returned", 2.0, id=8)
        trace.line("deferred", 2.0, id=8)
        trace.closed(9, 2.0)
        del trace.lines[3]  # call 7 gives nothing back
        trace.lines[-1]["besides"] = 1
        trace.ending = '{"type":"footer","written":9,"dropped":0,"lost":0}\n'
        assert replayed(trace, tmp_path).notes[:4] == (
            "The last line counts 9 events and the file has 6: lines were taken out or put in.",
            "Fields that are not looked at: besides.",
            "Other lines about calls or trajectories whose beginning is not in the file, which are left out: 3.",
            "Calls that have ended and never gave back their units, which count as held in what was measured: 1.",
        )

    def test_events_that_were_dropped_are_told(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 2.0, 5)
        trace.started(9, 2.0)
        trace.lines.append({**trace.lines[-2], "id": 9})
        trace.ending = '{"type":"footer","written":%d,"dropped":3,"lost":1}\n'
        notes = replayed(trace, tmp_path).notes
        assert notes[0] == "4 events are not in the trace: what they tell of is not replayed."
        assert [note.rpartition(" ")[2] for note in notes[1:]] == ["1.", "1.", "1."]


class TestHowLong:
    def test_a_declared_speedup_gives_the_work_on_one_core(self, tmp_path: Path) -> None:
        """2.5 s of 3 s on two cores are 4 s on one, with 0.5 s of overhead at any."""
        trace = Trace()
        trace.submitted(7, 1.0, **ELASTIC, speedup={"1": 1.0, "2": 1.6, "4": 2.0})
        trace.started(7, 1.0, 2000)
        trace.ended(7, 4.0, 2.5, overhead_s=0.5)
        call = only_call(replayed(trace, tmp_path))
        assert [call.duration_s(cores) for cores in (1, 2, 4, 8)] == pytest.approx([4.5, 3.0, 2.5, 2.5])
        assert isinstance(call.spec.cost.cpu, Elastic)
        assert call.spec.cost.cpu.options == (1, 2, 4)
        assert call.spec.cost.cpu.speedup is not None

    def test_a_speedup_that_nobody_declared_is_learned_from_the_runs(self, tmp_path: Path) -> None:
        """They take 8 s on one core and 4 s on two, whatever is assumed beforehand."""
        trace = Trace()
        learns = {**ELASTIC, "speedup": {"1": 1.0, "2": 1.1, "4": 1.2}, "learns": True}
        for number in range(60):
            units, lasts_s = ((1000, 8.0), (2000, 4.0))[number % 2]
            trace.submitted(number, 10.0 * number, **learns)
            trace.started(number, 10.0 * number, units)
            trace.ended(number, 10.0 * number + lasts_s, lasts_s)
        source = replayed(trace, tmp_path)
        for arrival in source.workload.arrivals:
            assert arrival.call.duration_s(1) == pytest.approx(8, rel=0.1)
            assert arrival.call.duration_s(2) == pytest.approx(4, rel=0.1)
        assert isinstance(source.workload.arrivals[0].call.spec.cost.cpu, Elastic)
        assert source.workload.arrivals[0].call.spec.cost.cpu.speedup is None
        assert not any("n ** 0.8" in note for note in source.notes)

    def test_a_speedup_that_nobody_knows_is_assumed_and_told(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 3.0, **ELASTIC, speedup={"1": 1.0, "2": 2**0.8, "4": 4**0.8}, learns=True)
        source = replayed(trace, tmp_path)
        assert only_call(source).duration_s(2) == pytest.approx(2 / 2**0.8)
        assert source.notes == (
            "The recorded pool had 4 cores: the trace does not say whether elastic calls can use more, so they do not.",
            "How tool scales is neither declared nor told by its runs: taken to be n ** 0.8 times as fast on n cores.",
        )

    def test_a_call_that_was_resized_did_its_work_at_several_rates(self, tmp_path: Path) -> None:
        """1 s on one core, 2 s with none, 1 s on four (twice as fast): 3 s of work."""
        trace = Trace()
        trace.submitted(7, 1.0, **ELASTIC, speedup={"1": 1.0, "2": 1.6, "4": 2.0}, preemptible=True, resizable=True)
        trace.started(7, 1.0, 1000)
        trace.line("resized", 2.0, id=7, units=0)
        trace.line("resized", 4.0, id=7, units=4000)
        trace.ended(7, 5.0, 2.0, suspended_s=2.0, switches=2)
        source = replayed(trace, tmp_path)
        assert only_call(source).duration_s(1) == 3
        assert source.shared

    def test_what_was_ended_takes_as_long_on_any_cores(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.submitted(7, 1.0, **ELASTIC, speedup={"1": 1.0, "2": 1.6, "4": 2.0})
        trace.started(7, 1.0, 4000)
        trace.ended(7, 4.0, 3.0, outcome="run_timeout")
        call = only_call(replayed(trace, tmp_path))
        assert [call.duration_s(cores) for cores in (1, 4)] == [3, 3]

    def test_two_cores_are_more_than_one(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.submitted(7, 1.0, options=[2000])
        trace.started(7, 1.0, 2000)
        trace.ended(7, 4.0, 3.0)
        call = only_call(replayed(trace, tmp_path))
        assert [call.duration_s(cores) for cores in (1, 2, 4)] == pytest.approx([3 * 2**0.8, 3, 3])
        assert call.spec.cost.cpu == 2000


class TestWhatItTakes:
    def test_cores_of_a_reservation_are_its_own(self, tmp_path: Path) -> None:
        trace = Trace("reserved(2)")
        trace.opened(1, 0.0, cpu=2000)
        trace.ran(7, 1.0, 3.0, 1, elastic=None, options=[], relative=[], reserved=2000)
        trace.closed(1, 3.0)
        source = replayed(trace, tmp_path)
        (call,) = source.workload.rollouts[0].turns[0].calls
        assert call.spec.cost.cpu == 2000
        assert source.policy == "reserved(2)"
        (note,) = source.notes
        assert note.startswith("Recorded with 2 cores reserved for each trajectory: the trace does not say how many")

    def test_quotas_count_what_was_settled(self, tmp_path: Path) -> None:
        trace = Trace(dimensions=SEARCH)
        fixed = {"quota:search/calls": 1000, "quota:search/concurrency": 1000, "quota:search/tokens": 500_000}
        trace.submitted(7, 1.0, elastic=None, options=[], relative=[], fixed=fixed)
        trace.started(7, 1.0, 0)
        trace.line("settled", 2.0, id=7, dimension="quota:search/tokens", units=123_000)
        trace.ended(7, 2.0, 1.0)
        cost = only_call(replayed(trace, tmp_path)).spec.cost
        assert (cost.cpu, cost.quota, cost.tokens) == (0, (("search", 1000),), (("search", 123_000),))

    def test_threads_memory_and_what_is_declared(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 2.0, fixed={"threads": 1, "memory": GIB}, priority=3, queue_timeout_s=60.0, duration_s=2.0)
        spec = only_call(replayed(trace, tmp_path)).spec
        assert (spec.kind, spec.cost.memory_bytes) == (BodyKind.THREAD, GIB)
        assert (spec.priority, spec.queue_timeout, spec.duration_s, spec.preemptible) == (3, 60, 2, False)

    def test_a_fraction_stays_one(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.submitted(7, 1.0, elastic=None, options=[], relative=[], fixed={"cpu": 500})
        trace.started(7, 1.0, 0)
        trace.ended(7, 2.0, 1.0)
        assert only_call(replayed(trace, tmp_path)).spec.cost.cpu == 500

    def test_what_ran_on_reserved_cores_can_be_suspended_on_others(self, tmp_path: Path) -> None:
        trace = Trace("reserved(1)")
        trace.opened(1, 1.0, cpu=1000)
        trace.ran(7, 1.0, 2.0, 1, elastic=None, options=[], relative=[], reserved=1000)
        (call,) = replayed(trace, tmp_path).workload.rollouts[0].turns[0].calls
        assert call.spec.preemptible

    def test_earlier_formats_say_nothing_of_suspending(self, tmp_path: Path) -> None:
        trace = Trace(version=1)
        trace.ran(7, 1.0, 2.0)
        assert only_call(replayed(trace, tmp_path)).spec.preemptible

    def test_calls_with_gpus_wait_and_take_as_long_as_they_did(self, tmp_path: Path) -> None:
        seats = ({"name": "gpu", "capacity": 1, "scale": 1}, {"name": "service:judge", "capacity": 4, "scale": 1})
        trace = Trace(dimensions=tuple({**seat, "window_s": None} for seat in seats))
        seat: dict[str, Any] = {"service": "judge", "dops": [1]}
        trace.submitted(7, 1.0, elastic=None, options=[], relative=[], fixed={"service:judge": 1}, seat=seat)
        granted = {"service": "judge", "dop": 1, "first": 0, "restores": True, "evicts": []}
        trace.started(7, 3.0, 0, seat=granted)
        trace.ended(7, 6.0, 2.0, overhead_s=1.0)
        source = replayed(trace, tmp_path)
        assert only_call(source).duration_s(0) == 5
        assert source.topology is not None
        assert [dimension.name for dimension in source.topology.dimensions] == ["cpu", "memory", "threads"]
        assert "Calls with GPUs" in source.notes[0]

    def test_calls_of_one_action_are_of_one_object(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 2.0)
        trace.ran(8, 3.0, 4.0)
        one, other = replayed(trace, tmp_path).workload.arrivals
        assert one.call.spec is other.call.spec

    def test_pauses_and_capacities_that_change_are_told(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.ran(7, 1.0, 2.0)
        trace.line("paused", 3.0, paused=True)
        trace.line("paused", 4.0, paused=False)
        trace.line("capacity", 5.0, dimension="cpu", capacity=1000)
        notes = replayed(trace, tmp_path).notes
        assert [note.partition(",")[0] for note in notes] == ["Changes of a capacity", "Pauses"]
        assert [note.rpartition(" ")[2] for note in notes] == ["1.", "1."]
