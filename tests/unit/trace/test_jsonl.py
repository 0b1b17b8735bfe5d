"""The file sink: nothing that the disk does reaches the event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.events import Event, UnitsReturned
from arl_tangram.model.topology import Topology
from arl_tangram.trace import jsonl
from arl_tangram.trace.format import Footer
from arl_tangram.trace.jsonl import JsonlSink, JsonlStatistics
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.sink import MemorySink, Sink


class Gate:
    """A disk that takes nothing until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, fd: int, data: bytes) -> None:
        self.reached.set()
        assert self.open.wait(60)
        os.write(fd, data)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(jsonl, "_write_all", gate)
    yield gate
    gate.open.set()


def returned(n: int) -> list[UnitsReturned]:
    return [UnitsReturned(float(i), i) for i in range(n)]


async def test_a_whole_run_is_read_back(tmp_path: Path, topology: Topology, events: Sequence[Event]) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    for event in events:
        sink.write(event)
    await sink.aclose()
    trace = read_trace(tmp_path / "run.jsonl")
    assert trace.events == tuple(events)
    assert (trace.header.policy, trace.header.version, trace.header.topology) == ("paper", 3, topology)
    assert trace.ending.footer == Footer(len(events), 0, 0)
    assert trace.ending.complete
    assert sink.statistics() == JsonlStatistics(len(events), 0, 0, 0)


async def test_a_run_without_events_has_header_and_footer(tmp_path: Path, topology: Topology) -> None:
    await JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper").aclose()
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 2
    assert read_trace(tmp_path / "run.jsonl").ending.complete


async def test_many_events_keep_their_order(tmp_path: Path, topology: Topology) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    for event in returned(30_000):
        sink.write(event)
    await sink.aclose()
    assert list(read_trace(tmp_path / "run.jsonl").events) == returned(30_000)


async def test_a_blocked_disk_neither_delays_nor_grows_the_queue(
    tmp_path: Path, topology: Topology, gate: Gate
) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper", queue_size=100)
    await asyncio.to_thread(gate.reached.wait, 60)  # the thread hangs in the header
    for event in returned(1000):
        sink.write(event)
    assert sink.statistics() == JsonlStatistics(written=0, queued=100, dropped=900, lost=0)
    gate.open.set()
    await sink.aclose()
    trace = read_trace(tmp_path / "run.jsonl")
    assert list(trace.events) == returned(100)
    assert trace.ending.footer == Footer(written=100, dropped=900, lost=0)
    assert not trace.ending.complete


async def test_closing_is_bounded_and_says_that_it_gave_up(
    tmp_path: Path, topology: Topology, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper", close_timeout_s=0.05)
    await asyncio.to_thread(gate.reached.wait, 60)
    sink.write(UnitsReturned(1.0, 1))
    with caplog.at_level(logging.WARNING):
        await sink.aclose()
    assert "not written to its end within 0.05 s" in caplog.text
    gate.open.set()
    await sink.aclose()  # waits again; the thread has gone on
    assert read_trace(tmp_path / "run.jsonl").ending.complete


async def test_a_cancelled_close_lets_the_writing_end(tmp_path: Path, topology: Topology, gate: Gate) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    sink.write(UnitsReturned(1.0, 1))
    closing = asyncio.create_task(sink.aclose())
    await asyncio.to_thread(gate.reached.wait, 60)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    gate.open.set()
    await sink.aclose()
    assert read_trace(tmp_path / "run.jsonl").events == (UnitsReturned(1.0, 1),)


async def test_what_comes_after_closing_is_counted_and_left_out(tmp_path: Path, topology: Topology) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    await sink.aclose()
    sink.write(UnitsReturned(1.0, 1))
    await sink.aclose()
    assert sink.statistics() == JsonlStatistics(0, 0, 1, 0)
    assert read_trace(tmp_path / "run.jsonl").events == ()


async def test_a_full_disk_is_counted_and_logged_once(
    topology: Topology, events: Sequence[Event], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sink = JsonlSink("/dev/full", topology=topology, policy="paper")
        for event in events:
            sink.write(event)
        await sink.aclose()
    assert sink.statistics() == JsonlStatistics(written=0, queued=0, dropped=0, lost=len(events))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text


async def test_after_a_full_disk_the_trace_goes_on_where_it_was_whole(
    tmp_path: Path, topology: Topology, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def fails_once_halfway(fd: int, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first batch after the header
            os.write(fd, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        os.write(fd, data)

    monkeypatch.setattr(jsonl, "_write_all", fails_once_halfway)
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    for event in returned(jsonl._SMALL_BATCH + 10):
        sink.write(event)
    await sink.aclose()
    trace = read_trace(tmp_path / "run.jsonl")
    assert list(trace.events) == returned(jsonl._SMALL_BATCH + 10)[jsonl._SMALL_BATCH :]
    assert trace.ending.footer == Footer(written=10, dropped=0, lost=jsonl._SMALL_BATCH)
    assert caplog.text.count("events are being lost") == 1


async def test_an_event_that_cannot_be_encoded_is_lost_alone(
    tmp_path: Path, topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    sink.write("no event")  # type: ignore[arg-type]
    sink.write(UnitsReturned(1.0, 1))
    await sink.aclose()
    assert read_trace(tmp_path / "run.jsonl").ending.footer == Footer(written=1, dropped=0, lost=1)
    assert "no event" in caplog.text


async def test_an_existing_file_is_overwritten(tmp_path: Path, topology: Topology) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("old\n" * 10_000)
    await JsonlSink(str(path), topology=topology, policy="paper").aclose()
    assert read_trace(path).events == ()


async def test_two_runs_cannot_write_one_file(tmp_path: Path, topology: Topology) -> None:
    path = tmp_path / "run.jsonl"
    first = JsonlSink(path, topology=topology, policy="paper")
    first.write(UnitsReturned(1.0, 1))
    with pytest.raises(ConfigurationError, match="another run is writing"):
        JsonlSink(path, topology=topology, policy="paper")
    await first.aclose()
    assert len(read_trace(path).events) == 1
    await JsonlSink(path, topology=topology, policy="paper").aclose()


def named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (lambda folder: folder / "missing" / "run.jsonl", "No such file or directory"),
        (lambda folder: folder, "Is a directory"),
        (named_pipe, "pipe"),
        (lambda _: "", "No such file"),
        (lambda _: "a\0b", "null"),
        (lambda _: 1, "takes the path of a file, not 1"),
    ],
    ids=["no folder", "a folder", "a pipe", "empty", "null", "a number"],
)
def test_a_path_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, topology: Topology, path: Callable[[Path], Path], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        JsonlSink(path(tmp_path), topology=topology, policy="paper")


def test_a_queue_without_room_is_refused(tmp_path: Path, topology: Topology) -> None:
    with pytest.raises(ConfigurationError, match="queue_size"):
        JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper", queue_size=0)
    assert not (tmp_path / "run.jsonl").exists()


FORKING = """
import asyncio, os, sys
from arl_tangram.model.events import UnitsReturned
from arl_tangram.model.topology import Topology
from arl_tangram.trace.jsonl import JsonlSink

sink = JsonlSink(sys.argv[1], topology=Topology([]), policy="paper")
sink.write(UnitsReturned(1.0, 1))
child = os.fork()
if child == 0:
    for i in range(1000):
        sink.write(UnitsReturned(9.0, i))
    asyncio.run(sink.aclose())
    sys.exit(7)  # the ordinary way, with everything that runs at exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sink.write(UnitsReturned(2.0, 2))
asyncio.run(sink.aclose())
"""

OUTLIVED = """
import asyncio, os, sys
from arl_tangram.model.topology import Topology
from arl_tangram.trace.jsonl import JsonlSink

sink = JsonlSink(sys.argv[1], topology=Topology([]), policy="paper")
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(writing)
    os.read(reading, 1)  # lives until its parent lets go
    os._exit(7)
asyncio.run(sink.aclose())
asyncio.run(JsonlSink(sys.argv[1], topology=Topology([]), policy="next").aclose())
os.close(writing)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, path], check=True, timeout=60)
    trace = read_trace(path)
    assert trace.events == (UnitsReturned(1.0, 1), UnitsReturned(2.0, 2))
    assert trace.ending.complete


def test_a_forked_child_does_not_keep_the_file_from_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    subprocess.run([sys.executable, "-W", "ignore", "-c", OUTLIVED, path], check=True, timeout=60)
    assert read_trace(path).header.policy == "next"


KILLED = """
import os, signal, sys, time
from arl_tangram.model.events import UnitsReturned
from arl_tangram.model.topology import Topology
from arl_tangram.trace.jsonl import JsonlSink

sink = JsonlSink(sys.argv[1], topology=Topology([]), policy="paper")
for i in range(20_000):
    sink.write(UnitsReturned(float(i), i))
while sink.statistics().queued > 1000:
    time.sleep(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_a_readable_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False, timeout=60)
    assert killed.returncode == -9
    trace = read_trace(path)
    assert len(trace.events) > 10_000
    assert list(trace.events) == returned(len(trace.events))
    assert trace.ending.footer is None


async def test_no_line_holds_more_than_the_format_says(
    tmp_path: Path, topology: Topology, events: Sequence[Event]
) -> None:
    """The fields are a closed list, so that arguments, outputs and secrets cannot slip in unseen."""
    sink = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    for event in events:
        sink.write(event)
    await sink.aclose()
    fields: dict[str, set[str]] = {}
    for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]:
        record = json.loads(line)
        fields.setdefault(record["type"], set()).update(record)
    assert fields["ended"] == {
        "type", "at_s", "id", "submitted_at_s", "name", "key", "trajectory", "outcome", "error", "queueing_s",
        "execution_s", "overhead_s", "cpu_s", "cores",
    }  # fmt: skip
    assert fields["submitted"] == {
        "type", "at_s", "id", "submitted_at_s", "name", "key", "trajectory", "turn", "parent", "since_s",
        "priority", "queue_timeout_s", "duration_s", "fixed", "elastic", "options", "speedup", "relative", "reserved",
        "learns",
    }  # fmt: skip


async def test_both_sinks_are_sinks(tmp_path: Path, topology: Topology, events: Sequence[Event]) -> None:
    memory = MemorySink()
    file = JsonlSink(tmp_path / "run.jsonl", topology=topology, policy="paper")
    for sink in (memory, file):
        assert isinstance(sink, Sink)
        for event in events:
            sink.write(event)
        await sink.aclose()
    assert tuple(memory.events) == read_trace(tmp_path / "run.jsonl").events
