"""The command `bench inflight`: what it measures, with few actions, and what it makes of made-up figures."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arl_tangram.bench import command
from arl_tangram.bench.inflight import command as inflight
from arl_tangram.bench.inflight.command import gates, median_run
from arl_tangram.bench.inflight.lag import EVERY_S, Collection, Crowd, Lag, bodies_s, lag_of, measure_lag
from arl_tangram.bench.inflight.memory import Memory, Meter, Waiting, measure_memory
from arl_tangram.bench.inflight.show import lag_table, memory_table, record


def memories(bytes_each: float = 2000.0) -> list[Memory]:
    task = [Memory(Waiting.TASK, meter, 50_000, 900.0, 0.05) for meter in Meter]
    return task + [
        Memory(who, meter, 50_000, bytes_each, 0.1) for who in Waiting if who is not Waiting.TASK for meter in Meter
    ]


def lag(crowd: Crowd = Crowd.MAP, p99_ms: float = 5.0, longest_ms: float = 150.0) -> Lag:
    turns = [(float(i), i + 0.001) for i in range(980)]
    turns += [(1000.0 + i, 1000.0 + i + p99_ms / 1e3) for i in range(19)]
    turns.append((2000.0, 2000.0 + longest_ms / 1e3))
    return lag_of(crowd, 50_000, 10.0, turns, [Collection(2000.0, 2000.0 + longest_ms / 2e3, full=True)])


@pytest.mark.parametrize("who", Waiting)
def test_what_waits_takes_memory(who: Waiting) -> None:
    measured = measure_memory(who, Meter.ALLOCATED, 300)
    assert (measured.who, measured.in_flight) == (who, 300)
    assert 500 < measured.bytes_each < 4096
    assert measured.collect_s > 0


RESIDENT = """
from arl_tangram.bench.inflight import command as inflight
from arl_tangram.bench.inflight.memory import Meter, Waiting, measure_memory

if __name__ == "__main__":
    print(inflight.in_fresh_process(measure_memory, Waiting.MAP, Meter.RESIDENT, 2000).bytes_each)
"""


def test_resident_memory_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "resident.py"
    script.write_text(RESIDENT)
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, timeout=60)
    assert 0 < float(done.stdout) < 16_384


@pytest.mark.parametrize("crowd", Crowd)
def test_a_ticking_task_notices_how_late_it_is(crowd: Crowd) -> None:
    measured = measure_lag(crowd, 300, 0.02)
    assert measured.elapsed_s >= 0.02
    assert len(measured.late_s) > 1
    assert all(late_s >= 0 for late_s in measured.late_s)
    assert len(measured.weighted_late_s) >= len(measured.late_s)


def test_every_moment_that_was_slept_through_counts_in_the_weighted_lag() -> None:
    measured = lag_of(Crowd.MAP, 10, 1.0, [(1.0, 1.0), (1.005, 1.005 + 4.5 * EVERY_S)], [])
    assert measured.late_s == pytest.approx((0.0, 4.5 * EVERY_S))
    assert measured.weighted_late_s == pytest.approx((0.0, *((4.5 - missed) * EVERY_S for missed in range(5))))


def test_the_share_of_the_collector_is_what_it_took_of_a_lag() -> None:
    collections = [
        Collection(0.9, 1.01, full=False),
        Collection(1.02, 1.06, full=True),
        Collection(3.0, 9.0, full=True),
    ]
    measured = lag_of(Crowd.MAP, 10, 1.0, [(1.0, 1.1), (2.0, 2.025), (2.5, 2.501)], collections)
    assert measured.collected_of_longest_s == pytest.approx(0.01 + 0.04)
    assert measured.late_sum_s == pytest.approx(0.125)
    assert measured.collected_of_late_s == pytest.approx(0.05)
    assert (measured.full_collections, measured.longest_collection_s) == (2, 6.0)


def test_bodies_do_not_end_in_step() -> None:
    lengths_s = bodies_s(1000, 2.0)
    assert 1.0 <= min(lengths_s) < max(lengths_s) <= 3.0
    assert sum(lengths_s) / 1000 == pytest.approx(2.0, rel=0.01)
    assert len(set(lengths_s)) == 1000


@pytest.mark.parametrize(
    ("bytes_each", "p99_ms", "broken"),
    [(2000.0, 5.0, []), (4096.0, 20.0, []), (4097.0, 5.0, [0]), (2000.0, 21.0, [1])],
)
def test_each_promise(bytes_each: float, p99_ms: float, broken: list[int]) -> None:
    lags = [lag(p99_ms=p99_ms), lag(Crowd.GATHER, p99_ms=500.0), lag(Crowd.ASYNCIO, p99_ms=500.0)]
    judged = gates(memories(bytes_each), lags)
    assert [number for number, gate in enumerate(judged) if gate.passed is False] == broken


def test_the_task_of_the_caller_alone_is_not_judged() -> None:
    task = [replace(one, bytes_each=9000.0) for one in memories() if one.who is Waiting.TASK]
    others = [one for one in memories() if one.who is not Waiting.TASK]
    assert gates([*task, *others], [lag()])[0].passed


def test_the_median_run_counts() -> None:
    runs = [lag(p99_ms=40.0), lag(p99_ms=3.0), lag(p99_ms=6.0)]
    assert median_run(runs) is runs[2]


def test_the_tables_have_a_row_for_each() -> None:
    rows = memory_table(memories()).splitlines()
    assert len(rows) == 1 + len(Waiting)
    assert rows[2].split()[-5:] == ["2,000", "2,000", "1,100", "1,100", "100"]
    lags = [lag(crowd) for crowd in Crowd]
    rows = lag_table(lags).splitlines()
    assert len(rows) == 2 + len(Crowd)
    assert rows[1].split()[-9:] == ["10.0", "1.0", "5.0", "99", "150", "(75)", "0.15", "(0.08)", "1"]
    assert record(lags[0])["longest_ms"] == pytest.approx(150.0)


def test_a_quick_run_judges_nothing_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_up(measure, *args):
        if measure is measure_lag:
            return lag(args[0])
        return next(one for one in memories() if (one.who, one.meter) == args[:2])

    monkeypatch.setattr(inflight, "in_fresh_process", made_up)
    path = tmp_path / "figures.json"
    assert command.main(["inflight", "--quick", "--json", str(path)]) == 0
    assert "no promises" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert len(figures["memory"]) == len(Waiting) * len(Meter)
    assert [one["crowd"] for one in figures["lag"]] == list(Crowd)
