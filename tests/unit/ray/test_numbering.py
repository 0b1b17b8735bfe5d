"""Whatever becomes of frames on their way, what was put in comes out in order, each once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.integrations.ray.sessions.numbering import MOST_PER_FRAME, Receiver, Sender

STEPS = st.lists(
    st.one_of(
        st.integers(1, 4).map(lambda n: ("put", n)),
        st.just(("send", 0)),
        st.integers(0, 1 << 20).map(lambda n: ("deliver", n)),
        st.integers(0, 1 << 20).map(lambda n: ("deliver again", n)),
        st.integers(0, 1 << 20).map(lambda n: ("lose", n)),
        st.integers(0, 1 << 20).map(lambda n: ("acknowledge", n)),
        st.integers(0, 1 << 20).map(lambda n: ("lose acknowledgement", n)),
    ),
    max_size=80,
)


@given(steps=STEPS, most=st.integers(1, 5))
def test_what_goes_in_comes_out_in_order_each_once(steps: list[tuple[str, int]], most: int) -> None:
    sender, receiver = Sender[int](most), Receiver[int]()
    put = 0
    came: list[int] = []
    frames: list[tuple[int, tuple[int, ...]]] = []
    acknowledgements: list[int] = []

    def send() -> None:
        frames.append(sender.unacked())
        assert len(frames[-1][1]) <= most

    def deliver(frame: tuple[int, tuple[int, ...]]) -> None:
        came.extend(receiver.take(*frame))
        acknowledgements.append(receiver.upto)
        assert came == list(range(1, receiver.upto + 1))

    for what, which in steps:
        if what == "put":
            for _ in range(which):
                put += 1
                sender.put(put)
        elif what == "send":
            send()
        elif what == "acknowledge" and acknowledgements:
            sender.acked(acknowledgements.pop(which % len(acknowledgements)))
        elif what == "lose acknowledgement" and acknowledgements:
            acknowledgements.pop(which % len(acknowledgements))
        elif what == "deliver" and frames:
            deliver(frames.pop(which % len(frames)))
        elif what == "deliver again" and frames:
            deliver(frames[which % len(frames)])
        elif what == "lose" and frames:
            frames.pop(which % len(frames))
        assert sender.last == put
        assert sender.upto <= receiver.upto <= sender.last

    while sender.upto < put:  # a way that loses nothing any more
        send()
        deliver(frames.pop())
        sender.acked(acknowledgements.pop())
    assert came == list(range(1, put + 1))
    assert sender.unacked() == (put + 1, ())


def test_a_frame_has_room_for_so_many() -> None:
    sender = Sender[int]()
    for n in range(MOST_PER_FRAME + 1):
        sender.put(n)
    first, items = sender.unacked()
    assert (first, len(items)) == (1, MOST_PER_FRAME)
    sender.acked(MOST_PER_FRAME)
    assert sender.unacked() == (MOST_PER_FRAME + 1, (MOST_PER_FRAME,))


def test_what_comes_before_its_time_is_left_for_later() -> None:
    receiver = Receiver[str]()
    assert list(receiver.take(2, ("b",))) == []
    assert receiver.upto == 0
    assert list(receiver.take(1, ("a", "b"))) == ["a", "b"]
    assert list(receiver.take(2, ("b", "c"))) == ["c"]


def test_nothing_is_acknowledged_before_it_was_sent() -> None:
    sender = Sender[str]()
    sender.put("a")
    with pytest.raises(ValueError, match="item 2 is acknowledged, and 1 is the last"):
        sender.acked(2)
