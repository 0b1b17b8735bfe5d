"""Which devices an engine is on."""

from __future__ import annotations

from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import Chunk
from arl_tangram.services.engine.placing import chunk


class Card:
    """As much of a device as is asked for here."""

    def __init__(self, name: str, torch_name: str = "cuda:0") -> None:
        self.name = name
        self.torch_name = torch_name


CARDS: Any = [Card(f"GPU-{number}") for number in range(8)]


@pytest.mark.parametrize(
    ("dop", "asked", "devices", "found"),
    [
        (1, [3], CARDS, Chunk(3, 1)),
        (2, [2, 3], CARDS, Chunk(2, 2)),
        (2, [3, 2], CARDS, Chunk(2, 2)),
        (4, ["GPU-4", "GPU-5", 6, 7], CARDS, Chunk(4, 4)),
        (8, None, CARDS, Chunk(0, 8)),
        (1, None, CARDS[:1], Chunk(0, 1)),
    ],
)
def test_devices_are_found_by_number_and_by_name(dop: int, asked: Any, devices: Any, found: Chunk) -> None:
    assert chunk("judge", dop, asked, devices) == found


@pytest.mark.parametrize(
    ("dop", "asked", "said"),
    [
        (1, None, "which devices is it on"),
        (2, [1, 2], "the first at a multiple of 2"),
        (2, [0, 2], "must stand beside each other"),
        (2, [0, "GPU-0"], "must stand beside each other"),
        (1, [8], "there is no device 8"),
        (1, [-1], "there is no device -1"),
        (1, [True], "there is no device True"),
        (1, ["GPU-9"], "there is no device 'GPU-9'"),
    ],
)
def test_others_are_refused_with_what_there_is(dop: int, asked: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        chunk("judge", dop, asked, CARDS)
    assert "0: GPU-0, 1: GPU-1" in str(caught.value)
