"""Reports are found in a stream however it is cut, and nothing of the output is lost, added or moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.docker.script import MARK
from arl_tangram.managers.docker.sentinel import Report, ReportFinder

SECRET = "0123456789abcdef"
FULL = MARK + SECRET.encode() + b" "
TIMES = ("0m0.010s 0m0.000s", "0m1.500s 0m0.250s")

outputs = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.integers(1, len(FULL) - 1).map(lambda size: FULL[:size]),  # what could become a mark
        st.just(MARK + b"fedcba9876543210 E 0 1 1\n"),  # somebody else's
        st.just(b"\n"),
    ),
    max_size=4,
).map(b"".join)
reports = st.one_of(
    st.tuples(st.sampled_from("CRTUSFeZX"), st.lists(st.integers(0, 9999).map(str), max_size=5)).map(
        lambda drawn: Report(drawn[0], tuple(drawn[1]))
    ),
    st.integers(0, 255).map(lambda code: Report("E", (str(code), "12.34"), TIMES)),
)


def text(report: Report) -> bytes:
    lines = [" ".join((report.kind, *report.words)), *report.times]
    return FULL + "".join(f"{line}\n" for line in lines).encode()


def joined(parts: list[bytes | Report]) -> list[bytes | Report]:
    """Put output together that nothing stands between."""
    found: list[bytes | Report] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(last := found[-1], bytes):
            found[-1] = last + part
        elif part:
            found.append(part)
    return found


@given(st.lists(st.one_of(outputs, reports), max_size=8), st.data())
def test_any_cutting_gives_the_same(parts: list[bytes | Report], data: st.DataObject) -> None:
    # Output that ends like a mark and is followed by the rest of one would be one.
    whole = b"".join(part if isinstance(part, bytes) else text(part) for part in parts)
    expected = joined([*(once := ReportFinder(SECRET)).feed(whole), once.finish()])
    assert [part for part in expected if isinstance(part, Report)] == [
        part for part in parts if isinstance(part, Report)
    ]
    assert b"".join(part if isinstance(part, bytes) else text(part) for part in expected) == whole
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=12).map(sorted))
    finder = ReportFinder(SECRET)
    found: list[bytes | Report] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += finder.feed(whole[start:end])
    assert joined([*found, finder.finish()]) == expected


@given(outputs)
def test_output_is_held_back_only_where_a_report_may_begin(output: bytes) -> None:
    finder = ReportFinder(SECRET)
    passed = b"".join(part for part in finder.feed(output) if isinstance(part, bytes))
    held = finder.finish()
    assert passed + held == output
    assert len(held) < len(FULL)
    assert FULL.startswith(held)


def test_output_without_a_mark_is_handed_on_uncopied() -> None:
    output = bytes(range(30)) * 100 + b"\xff"
    assert ReportFinder(SECRET).feed(output)[0] is output


def test_the_end_of_a_command_is_complete_only_with_its_times() -> None:
    finder = ReportFinder(SECRET)
    first, second, third = text(Report("E", ("3", "12.34", "?"), TIMES)).splitlines(keepends=True)
    assert finder.feed(b"out" + first) == [b"out"]
    assert finder.feed(second) == []
    assert finder.feed(third + b"more") == [Report("E", ("3", "12.34", "?"), TIMES), b"more"]
