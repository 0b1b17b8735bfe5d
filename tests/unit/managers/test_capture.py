from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.capture import Capture

PIECE_BYTES = 1 << 16


@given(st.integers(1, 50), st.lists(st.binary(max_size=40), max_size=20))
def test_head_and_tail_are_those_of_the_whole(limit: int, pieces: list[bytes]) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)
    head = limit // 2
    expected = whole if len(whole) <= limit else whole[:head] + whole[-(limit - head) :]
    assert capture.content() == expected
    assert capture.is_truncated == (len(whole) > limit)
    assert capture.total == len(whole)


def test_a_long_stream_is_cut_while_it_streams() -> None:
    capture = Capture(10)
    for number in range(200):
        capture.add(b"%05d" % number * (PIECE_BYTES // 5))
        assert capture.held < 4 * PIECE_BYTES
    assert capture.content() == b"00000" + b"00199"


def test_the_content_of_a_short_stream_is_handed_out_without_a_copy() -> None:
    """A copy of 200 MiB would hold the event loop for a third of a second."""
    capture = Capture(64 << 20)
    tracemalloc.start()
    try:
        for _ in range(32):
            capture.add(bytes(1 << 20))
        tracemalloc.reset_peak()
        content = capture.content()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(content) == 32 << 20
    assert peak < 48 << 20


def test_what_is_kept_is_bounded_while_head_and_tail_grow() -> None:
    capture = Capture(1 << 20)
    for _ in range(64):
        capture.add(bytes(PIECE_BYTES // 2))
        assert capture.held <= (3 << 19) + 2 * PIECE_BYTES
