"""For any damage to a file: an error that names file and line, or the same replay, or what is told of in a note."""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arl_tangram.errors import TangramError
from arl_tangram.replay.source import Source, read_source
from arl_tangram.replay.variants import predict, variant_named
from arl_tangram.simulate.workloads import pool
from unit.replay.traces import Trace

Lines = list[dict[str, Any]]
IMPOSSIBLE: list[Any] = [-1, -0.5, -1e300, 1e13, 1e308, float("nan"), float("inf"), 10**30, "x", True, [], {}, [None]]
ANY_WILL_DO = {"key", "library", "clock", "created_unix_s", "expected_s", "cores", "error", "policy", "reason", "tool"}
"""Fields on which no figure depends."""
MAY_BE_ANY: dict[str, list[Any]] = {
    "priority": [-1, 10**30],  # who comes first
    "at_s": [-1, -0.5],  # of the first line: a clock may begin anywhere
    "since_s": [-1, -0.5],
    "trajectory": [],
    "name": ["x"],
    "group": ["x"],
    "traj": [-1, -0.5, -1e300, 1e13, 1e308, "x"],
    "dimension": [],
    "parent": [-1],
    "held": [{}],
    "fixed": [{}],
}

OF_THE_WHOLE = ("is empty", "cannot be decompressed", "no file of calls", "none has run to its end", "recorded end")
"""What is said of a file in which no line is wrong."""


def quota(counted: str, **fields: Any) -> dict[str, Any]:
    return {"name": f"quota:search/{counted}", "capacity": 50_000, "scale": 1000, "window_s": 1.0, **fields}


def trace() -> Lines:
    """Two trajectories whose calls are elastic, suspended, or of a quota, and one call beside them."""
    run = Trace(dimensions=(quota("calls"), quota("tokens"), quota("breaker", capacity=1, scale=1, window_s=None)))
    run.opened(1, 1.0, 0.5, memory=1 << 30)
    run.opened(2, 1.0, memory=1 << 30)
    choice: dict[str, Any] = {"options": [1000, 2000], "relative": [1.0, 0.6]}
    run.submitted(7, 2.0, 1, speedup={"1": 1.0, "2": 1.7}, preemptible=True, resizable=True, **choice)
    run.started(7, 2.0, 2000)
    run.submitted(8, 2.5, 2, learns=True, name="suite", **choice)
    run.started(8, 2.5)
    run.line("resized", 3.0, id=7, units=0)
    run.line("resized", 3.5, id=7, units=1000)
    run.ended(7, 4.0, 1.5, trajectory=1, suspended_s=0.5, switches=2, cpu_s=1.5)
    run.ended(8, 5.0, 2.5, trajectory=2, name="suite")
    asks: dict[str, Any] = {"elastic": None, "options": [], "relative": []}
    fixed = {"quota:search/calls": 1000, "quota:search/tokens": 5000, "threads": 1}
    run.submitted(9, 5.5, 1, fixed=fixed, name="ask", queue_timeout_s=30.0, duration_s=1.0, **asks)
    run.line("deferred", 5.5, id=9)
    run.started(9, 6.0, 0)
    run.line("settled", 6.5, id=9, dimension="quota:search/tokens", units=3000)
    run.ended(9, 7.0, 0.9, trajectory=1, name="ask", overhead_s=0.1)
    run.closed(1, 8.0)
    run.submitted(10, 8.0, fixed={"memory": 1 << 30})
    run.started(10, 8.0)
    run.ended(10, 9.0, 1.0)
    run.closed(2, 9.0)
    return [*run.lines, {"type": "footer", "written": len(run.lines) - 1, "dropped": 0, "lost": 0}]


def recording() -> Lines:
    calls: Lines = [
        {"traj": traj, "start_s": start_s, "dur_s": duration_s, "tool": tool, "group": "g"}
        for traj, start_s, duration_s, tool in (("a", 0, 2.0, "bash"), ("a", 3.0, 1.0, "read"), ("b", 0.5, 2.5, "bash"))
    ]
    return [*calls, *({"traj": traj, "span_s": span_s, "group": "g"} for traj, span_s in (("a", 6.0), ("b", 4.0)))]


WHOLE: dict[str, Callable[[], Lines]] = {"trace": trace, "recording": recording}


def text_of(lines: Lines) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def replayed(content: bytes) -> tuple[tuple[str, ...], object] | str:
    """Return the notes and the figures of a file, or why it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.jsonl"
        file.write_bytes(content)
        try:
            source = read_source([file])
        except TangramError as error:
            return str(error)
        return source.notes, (source.measured, *predictions(source))


def predictions(source: Source) -> list[object]:
    variants = [variant_named(name) for name in ("elastic", "elastic, resize", "reserved(1)")]
    topology = source.topology or pool(2)
    return [predict(source.workload, topology, variant, host=source.host).figures for variant in variants]


@cache
def undamaged(kind: str) -> tuple[tuple[str, ...], object] | str:
    return replayed(text_of(WHOLE[kind]()))


def holds(kind: str, content: bytes) -> None:
    """Check that a damaged file is refused with its line, or told of, or replayed as the whole one."""
    whole, found = undamaged(kind), replayed(content)
    assert not isinstance(whole, str)
    if isinstance(found, str):
        assert "run.jsonl" in found
        assert any(words in found for words in ("line ", *OF_THE_WHOLE))
    else:
        assert found[1] == whole[1] or set(found[0]) - set(whole[0]), "another result, and not a word about it"


@pytest.mark.parametrize("kind", list(WHOLE))
@given(data=st.data())
def test_a_field_that_cannot_be_so(kind: str, data: st.DataObject) -> None:
    lines = copy.deepcopy(WHOLE[kind]())
    line = data.draw(st.sampled_from(lines))
    field = data.draw(st.sampled_from(sorted(set(line) - ANY_WILL_DO)))
    allowed = MAY_BE_ANY.get(field, [])
    line[field] = data.draw(st.sampled_from([value for value in IMPOSSIBLE if repr(value) not in map(repr, allowed)]))
    holds(kind, text_of(lines))


@pytest.mark.parametrize("kind", list(WHOLE))
@given(data=st.data())
def test_a_field_too_few_or_too_many(kind: str, data: st.DataObject) -> None:
    lines = copy.deepcopy(WHOLE[kind]())
    line = data.draw(st.sampled_from(lines))
    if data.draw(st.booleans()):
        line["besides"] = data.draw(st.sampled_from(IMPOSSIBLE))
    else:
        optional = {"preemptible", "resizable", "suspended_s", "switches", "tool"}
        del line[data.draw(st.sampled_from(sorted(set(line) - optional)))]
    holds(kind, text_of(lines))


@given(data=st.data())
def test_lines_taken_out_put_in_or_exchanged(data: st.DataObject) -> None:
    """Only of a trace: what a recording had besides, nobody can know."""
    lines = trace()
    one, other = (data.draw(st.integers(1, len(lines) - 1)) for _ in range(2))
    match data.draw(st.sampled_from(["out", "in", "twice", "exchanged"])):
        case "out":
            del lines[one]
        case "in":
            lines.insert(one, lines.pop(other))
        case "twice":
            lines.insert(one, lines[other])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    holds("trace", text_of(lines))


@pytest.mark.parametrize("kind", list(WHOLE))
@given(data=st.data())
def test_bytes_that_are_lost(kind: str, data: st.DataObject) -> None:
    """Anywhere; but what a recording has lost behind a whole line nobody can know, nor which of two digits it was."""
    content = text_of(WHOLE[kind]())
    cut = data.draw(st.integers(0, len(content) - 1))
    if kind == "trace" or not content[:cut].endswith((b"\n", b"}")):
        holds(kind, content[:cut])
    packed = gzip.compress(content, mtime=0)
    holds(kind, packed[: data.draw(st.integers(3, len(packed) - 1))])


@given(content=st.binary(max_size=400), kind=st.sampled_from(list(WHOLE)), at=st.integers(0, 10_000))
@example(content=b"\xef\xbb\xbf", kind="trace", at=0)
@example(content=b"[" * 5000, kind="trace", at=0)
@example(content=b'{"traj":' * 5000, kind="recording", at=0)
@example(content=b"9" * 5000, kind="recording", at=0)
def test_bytes_that_are_put_in(content: bytes, kind: str, at: int) -> None:
    """Between two lines; an empty one says nothing."""
    lines = text_of(WHOLE[kind]()).splitlines(keepends=True)
    place = at % len(lines)
    damaged = b"".join([*lines[:place], content, b"\n" if place else b"", *lines[place:]])
    holds(kind, damaged)
