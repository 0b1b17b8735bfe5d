"""Policies of shares that are wrong, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

from arl_tangram.model.sharing import SharePolicy, Sharer
from arl_tangram.scheduling.sharing.equal import equally

Share = Callable[[Sequence[Sharer], int], Any]


@dataclass(frozen=True)
class OwnShares:
    """A policy of three functions."""

    name: str
    answer: Share = equally
    ranked: Callable[[Sharer], Any] = lambda sharer: 0.0
    again: Callable[[Sharer], Any] = lambda sharer: inf

    def rank(self, sharer: Sharer) -> float:
        return self.ranked(sharer)

    def next_s(self, sharer: Sharer) -> float:
        return self.again(sharer)

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> Sequence[int]:
        return self.answer(sharers, cores)


def _raise(*_: object) -> Any:
    raise ZeroDivisionError("no idea")


WRONG: list[SharePolicy] = [
    OwnShares("raises", _raise),
    OwnShares("ranks raising", ranked=_raise),
    OwnShares("ranks nothing", ranked=lambda sharer: nan),
    OwnShares("ranks a word", ranked=lambda sharer: "first"),
    OwnShares("asks again at nonsense", again=lambda sharer: nan),
    OwnShares("asks again at once", again=lambda sharer: sharer.attained_s),
    OwnShares("asks again often", again=lambda sharer: sharer.attained_s + 1e-12),
    OwnShares("gives nothing", lambda sharers, cores: [0] * len(sharers)),
    OwnShares("gives too much", lambda sharers, cores: [sharer.sizes[-1] for sharer in sharers]),
    OwnShares("gives too few", lambda sharers, cores: equally(sharers, cores)[1:]),
    OwnShares("gives halves", lambda sharers, cores: [0.5] * len(sharers)),
    OwnShares("gives words", lambda sharers, cores: "1" * len(sharers)),
    OwnShares("gives none", lambda sharers, cores: None),
    OwnShares("goes on for ever", lambda sharers, cores: iter(int, 1)),
    OwnShares("takes from those who must keep it", lambda sharers, cores: [0, *equally(sharers[1:], cores)]),
    OwnShares("turns about", lambda sharers, cores: equally(sharers[::-1], cores)[::-1]),
]
