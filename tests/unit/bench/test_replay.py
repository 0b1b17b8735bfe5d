"""`bench replay`: what it reads and refuses, the workload that it makes, its promises and what it prints."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from arl_tangram.bench import command as bench
from arl_tangram.bench.replay import command, runs, show
from arl_tangram.bench.replay.runs import FREE, IN_ORDER, RESERVED, SIZE_AWARE, Row
from arl_tangram.replay.recorded import Repairs, workload_of
from arl_tangram.replay.recording import Recorded, RecordedCall, of_group, read
from arl_tangram.replay.tables import RecordingError
from arl_tangram.scheduling.policies import reserved
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import pool

CALLS = "traj,group,idx,start_s,dur_s,tool\n1,a,0,2,1,Bash\n1,a,1,4,3,Read\n2,b,0,1,0.5,Bash\n"
TRAJECTORIES = "traj,group,span_s\n2,b,6\n1,a,10\n3,b,4\n"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    file = tmp_path / "calls.csv"
    file.write_text(CALLS)
    return file


@pytest.fixture
def trajectories(tmp_path: Path) -> Path:
    file = tmp_path / "trajectories.csv"
    file.write_text(TRAJECTORIES)
    return file


def recorded(*calls: tuple[float, float | None], span_s: float | None = None) -> Recorded:
    """Return a trajectory with calls of one tool: when each began, and how long it took."""
    return Recorded("1", "", span_s, [RecordedCall(start_s, duration_s, "Bash") for start_s, duration_s in calls])


class TestRead:
    def test_calls_alone(self, calls: Path) -> None:
        one, two = read([calls])
        assert one == Recorded("1", "a", None, [RecordedCall(2, 1, "Bash"), RecordedCall(4, 3, "Read")])
        assert two == Recorded("2", "b", None, [RecordedCall(1, 0.5, "Bash")])

    @pytest.mark.parametrize("calls_first", [True, False])
    def test_trajectories_are_in_the_order_of_their_file(
        self, calls: Path, trajectories: Path, *, calls_first: bool
    ) -> None:
        found = read([calls, trajectories] if calls_first else [trajectories, calls])
        assert [(one.name, one.span_s, len(one.calls)) for one in found] == [("2", 6, 1), ("1", 10, 2), ("3", 4, 0)]

    def test_calls_may_be_in_several_files(self, calls: Path, tmp_path: Path) -> None:
        more = tmp_path / "more.csv"
        more.write_text("group,traj,dur_s,start_s\na,1,,9\n")
        one, _ = read([calls, more])
        assert one.calls[-1] == RecordedCall(9, None, "")

    def test_the_same_name_in_another_group_is_another_trajectory(self, tmp_path: Path) -> None:
        file = tmp_path / "calls.csv"
        file.write_text("traj,group,start_s,dur_s\n1,a,0,1\n1,b,0,2\n")
        assert [(one.name, one.group) for one in read([file])] == [("1", "a"), ("1", "b")]

    def test_a_file_that_is_compressed_is_the_same(self, calls: Path, tmp_path: Path) -> None:
        packed = tmp_path / "calls.csv.gz"
        packed.write_bytes(gzip.compress(calls.read_bytes()))
        assert read([packed]) == read([calls])

    def test_a_byte_order_mark_is_no_part_of_a_column(self, tmp_path: Path) -> None:
        file = tmp_path / "calls.csv"
        file.write_bytes(b"\xef\xbb\xbf" + CALLS.encode())
        assert len(read([file])) == 2

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "calls.csv is empty"),
            ("traj,start_s,dur_s\n", "calls.csv has columns and no rows"),
            ("traj,start_s\n1,0\n", "line 1: calls have the columns traj, start_s and dur_s, .* has traj, start_s$"),
            ("traj,start_s,dur_s\n1,0,-1\n", "line 2: dur_s is -1; seconds are finite and not negative"),
            ("traj,start_s,dur_s\n1,0,1\n1,nan,1\n", "line 3: start_s is nan; seconds are finite"),
            ("traj,start_s,dur_s\n1,inf,1\n", "line 2: start_s is inf"),
            ("traj,start_s,dur_s\n1,,1\n", "line 2: start_s is '', which is no number"),
            ("traj,start_s,dur_s\n1,0,long\n", "line 2: dur_s is 'long', which is no number"),
            ("traj,start_s,dur_s\n1,0\n", "line 2: it does not have the 3 fields of line 1"),
            ("traj,start_s,dur_s\n1,0,1,2\n", "line 2: it does not have the 3 fields of line 1"),
            ("traj,start_s,dur_s\n,0,1\n", "line 2: traj is empty"),
            ('traj,start_s,dur_s\n1,0,"1"2\n', "line 2: this is not comma-separated: "),
            ("traj,span_s\n1,2\n", "no file of calls among .*calls.csv: none has traj, start_s and dur_s"),
        ],
    )
    def test_what_cannot_be_used_is_named_with_its_line(self, text: str, said: str, tmp_path: Path) -> None:
        file = tmp_path / "calls.csv"
        file.write_text(text)
        with pytest.raises(RecordingError, match=said) as refused:
            read([file])
        assert str(file) in str(refused.value)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"\xff\xfe", "line 1: this is not text in UTF-8"),
            (b"\x1f\x8b and no more", "cannot be decompressed"),
            (gzip.compress(CALLS.encode(), mtime=0)[:-9], "cannot be decompressed"),
            (gzip.compress(b"\xff\xfe", mtime=0), "line 1: this is not text in UTF-8"),
        ],
    )
    def test_what_is_no_text_is_told(self, content: bytes, said: str, tmp_path: Path) -> None:
        file = tmp_path / "calls.csv.gz"
        file.write_bytes(content)
        with pytest.raises(RecordingError, match=f"{file}.* {said}"):
            read([file])

    def test_a_call_of_a_trajectory_that_there_is_not(self, calls: Path, tmp_path: Path) -> None:
        file = tmp_path / "trajectories.csv"
        file.write_text("traj,group,span_s\n1,a,10\n2,a,5\n")
        with pytest.raises(
            RecordingError, match=r"calls.csv, line 4: no file of trajectories has a trajectory 2 of b$"
        ):
            read([calls, file])

    def test_a_trajectory_is_there_once(self, calls: Path, tmp_path: Path) -> None:
        file = tmp_path / "trajectories.csv"
        file.write_text("traj,span_s\n1,10\n2,5\n1,10\n")
        with pytest.raises(RecordingError, match=r"trajectories.csv, line 4: trajectory 1 is there twice"):
            read([calls, file])

    def test_a_group(self, calls: Path) -> None:
        found = read([calls])
        assert of_group(found, None) == found
        assert [one.name for one in of_group(found, "b")] == ["2"]
        with pytest.raises(RecordingError, match="no trajectory is of group c; the groups are: a, b"):
            of_group(found, "c")


class TestWorkload:
    def turns(self, one: Recorded) -> list[tuple[float, tuple[float, ...]]]:
        workload, self.repairs = workload_of([one])
        return [(turn.thinking_s, tuple(call.work_s for call in turn.calls)) for turn in workload.rollouts[0].turns]

    def test_thinking_times_are_kept(self) -> None:
        one = recorded((2, 1), (4, 3), span_s=10)
        assert self.turns(one) == [(2, (1,)), (1, (3,)), (3, ())]
        assert self.repairs == Repairs()

    def test_alone_it_takes_as_long_as_it_did(self) -> None:
        workload, _ = workload_of([recorded((2, 1), (4, 3), (7, 0), span_s=10)])
        assert simulate(workload, pool(1), reserved(1)).rollouts[0].span_s == 10

    def test_overlapping_calls_are_made_one_after_the_other(self) -> None:
        """The second begins within the first, and the third 2 s after the first, which ends last."""
        assert self.turns(recorded((0, 5), (1, 2), (7, 1))) == [(0, (5,)), (0, (2,)), (2, (1,))]
        assert self.repairs == Repairs(overlapping=1)

    def test_calls_are_made_in_the_order_of_time(self) -> None:
        assert self.turns(recorded((6, 1), (2, 1), (4, 1))) == [(2, (1,)), (1, (1,)), (1, (1,))]
        assert self.repairs == Repairs(unsorted=2)

    def test_a_call_without_an_end_is_left_out(self) -> None:
        assert self.turns(recorded((2, 1), (4, None), (6, 1))) == [(2, (1,)), (3, (1,))]
        assert self.repairs == Repairs(endless=1)

    def test_a_trajectory_is_as_long_as_its_calls_at_least(self) -> None:
        assert self.turns(recorded((2, 1), span_s=2.5)) == [(2, (1,)), (0, ())]
        assert self.repairs == Repairs(overrun=1)

    def test_without_any_call_there_is_nothing_to_replay(self) -> None:
        with pytest.raises(RecordingError, match="of 2 calls, none has a recorded end"):
            workload_of([recorded((2, None), (3, None))])

    def test_calls_of_a_tool_are_calls_of_an_action(self, calls: Path) -> None:
        workload, _ = workload_of(read([calls]))
        made = [call for rollout in workload.rollouts for turn in rollout.turns for call in turn.calls]
        assert [call.spec.name for call in made] == ["Bash", "Read", "Bash"]
        assert made[0].spec is made[2].spec


class TestRuns:
    def test_the_wait_for_a_reservation_counts_for_the_first_call(self) -> None:
        """On one core the second trajectory waits for the first one's 10 s, thinks for 2 s, and calls twice."""
        workload, _ = workload_of([recorded((2, 1), (4, 3), span_s=10)] * 2)
        result = simulate(workload, pool(1), reserved(1))
        assert sorted(runs.acts_with_reservations(result)) == [1, 3, 3, 11]

    def test_every_contender_runs_on_every_size(self) -> None:
        told: list[tuple[int, str]] = []
        long, short = recorded((0, 20), span_s=20), recorded((0.5, 0.05), (1, 0.05), (2, 0.05), span_s=4)
        workload, _ = workload_of([long] * 3 + [short] * 6)
        rows = runs.measure(workload, [1, 2], lambda cores, contender: told.append((cores, contender)))
        contenders = [RESERVED, IN_ORDER, FREE, SIZE_AWARE]
        assert told == [(row.cores, row.contender) for row in rows] == [(n, c) for n in (1, 2) for c in contenders]
        for row in rows:
            assert 0 < row.act_p50_s <= row.act_p99_s
            assert row.act_s < row.span_s <= row.step_s
            assert (row.switches > 0) is (row.contender in {FREE, SIZE_AWARE})
        by_place = {(row.cores, row.contender): row for row in rows}
        for cores in (1, 2):
            assert by_place[cores, FREE].act_s < by_place[cores, IN_ORDER].act_s < by_place[cores, RESERVED].act_s


def row(cores: int, contender: str, act_s: float, step_s: float = 100.0) -> Row:
    return Row(cores, contender, act_s, 0.04, 50.0, 60.0, step_s, 1.5)


@pytest.mark.parametrize(
    ("act_s", "step_s", "passed"),
    [(10.5, 105.0, [True, True]), (10.6, 90.0, [False, True]), (9.0, 106.0, [True, False])],
)
def test_each_promise(act_s: float, step_s: float, passed: list[bool]) -> None:
    rows = [row(8, FREE, 10.0), row(8, SIZE_AWARE, 10.0), row(16, FREE, 10.0), row(16, SIZE_AWARE, act_s, step_s)]
    judged = runs.gates(rows)
    assert [gate.passed for gate in judged] == passed
    assert all(gate.where == "16 cores" for gate in judged if gate.passed is False)


def test_what_was_changed_is_told() -> None:
    workload, repairs = workload_of([recorded((6, 1), (2, 9), (8, None), span_s=3)])
    assert show.introduction(workload, repairs).splitlines()[3:7] == [
        "Calls that began before one before them had ended, and are made when it has: 1.",
        "Calls behind one that began later, which are made in the order of time: 1.",
        "Calls without a recorded end, which are left out: 1.",
        "Trajectories that are shorter than their calls, and end with the last of these: 1.",
    ]


def made_up(act_s: float) -> list[Row]:
    rest = [row(8, RESERVED, 40.0), row(8, IN_ORDER, 30.0), row(8, FREE, 10.0)]
    return [*rest, row(8, SIZE_AWARE, act_s)]


def test_the_table_lines_up() -> None:
    lines = show.table(made_up(10.0)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [line.split()[1] for line in lines[1:]] == ["reserved(1)", "elastic", "least_attained,", "size_aware"]


@pytest.mark.parametrize(("act_s", "code"), [(10.0, 0), (11.0, 1)])
def test_a_broken_promise_is_the_exit_code(
    act_s: float,
    code: int,
    calls: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "measure", lambda *args: made_up(act_s))
    file = tmp_path / "figures.json"
    assert bench.main(["replay", str(calls), "--json", str(file)]) == code
    assert capsys.readouterr().out.count("FAIL  ") == code
    record = json.loads(file.read_text())
    assert [gate["passed"] for gate in record["gates"]] == [code == 0, True]
    assert len(record["runs"]) == 4


def test_groups_and_sizes_can_be_chosen(calls: Path, trajectories: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["replay", str(calls), str(trajectories), "--cores", "2", "--group", "a"]) == 0
    printed = capsys.readouterr()
    assert "1 recorded trajectories with 2 calls" in printed.out
    assert printed.err.splitlines() == [f"2 cores: {name}" for name in (RESERVED, IN_ORDER, FREE, SIZE_AWARE)]


@pytest.mark.parametrize("named", ["nothing.csv", "calls.csv"])
def test_what_cannot_be_replayed_is_told(
    named: str, calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.write_text("traj,start_s\n1,2\n")
    assert bench.main(["replay", str(tmp_path / named)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert named in printed.err


@pytest.mark.parametrize("argv", [[], ["x.csv", "--cores", "0"], ["x.csv", "--cores", "some"]])
def test_wrong_options_are_told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["replay", *argv])
    assert ended.value.code == 2
    assert ("--cores" if argv else "FILE") in capsys.readouterr().err
