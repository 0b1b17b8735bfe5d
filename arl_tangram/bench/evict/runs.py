"""The runs of `bench evict`: every contender on the same requests for the same services, for every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.bench.evict.catalogue import Catalogue, make_catalogue
from arl_tangram.bench.evict.contenders import CONTENDERS, LRU
from arl_tangram.bench.evict.replay import Played, play
from arl_tangram.bench.evict.requests import STREAMS, names

ENGINES = (0.0, 1 / 3)
"""The shares of services that are servers of their own, and slower to restore."""


@dataclass(frozen=True, slots=True)
class Case:
    """What all contenders are given.

    Attributes:
        stream: the name of the kind of requests, or of the file that they come from.
        engines: the share of services that are servers of their own.
        crowding: how many times the memory of all devices the services need, mean of the seeds.
        played: for each contender, what became of it with each seed.
    """

    stream: str
    engines: float
    crowding: float
    played: Mapping[str, tuple[Played, ...]]

    def per_request_s(self, contender: str) -> float:
        """Seconds of restoring for each request, over all seeds."""
        played = self.played[contender]
        return sum(one.restore_s for one in played) / sum(one.requests for one in played)

    def hit_rate(self, contender: str) -> float:
        """The share of requests that found their service resident, over all seeds."""
        played = self.played[contender]
        return 1 - sum(one.restores for one in played) / sum(one.requests for one in played)

    def ratio(self, contender: str) -> float | None:
        """How many times the restoring of LRU that is; None where LRU restores nothing."""
        base_s = self.per_request_s(LRU)
        return self.per_request_s(contender) / base_s if base_s else None


def drawn_cases(count: int, seeds: Sequence[int]) -> Iterator[Case]:
    """Play all kinds of streams, each with so many requests; with one seed all of them are for the same services."""
    for engines in ENGINES:
        for stream, draw in STREAMS.items():
            rngs = [np.random.default_rng(seed) for seed in seeds]
            services = [make_catalogue(names(), rng, engines=engines) for rng in rngs]
            drawn = [draw(count, rng) for rng in rngs]
            yield _case(stream, engines, list(zip(services, drawn, strict=True)))


def real_cases(stream: str, requests: Sequence[str], seeds: Sequence[int]) -> Iterator[Case]:
    """Play requests as they were made; what their services need is drawn, because nothing tells."""
    asked = tuple(sorted(set(requests)))
    for engines in ENGINES:
        services = [make_catalogue(asked, np.random.default_rng(seed), engines=engines) for seed in seeds]
        yield _case(stream, engines, [(catalogue, requests) for catalogue in services])


def _case(stream: str, engines: float, inputs: Sequence[tuple[Catalogue, Sequence[str]]]) -> Case:
    played: dict[str, list[Played]] = {contender.name: [] for contender in CONTENDERS}
    for catalogue, requests in inputs:
        for contender in CONTENDERS:
            played[contender.name].append(play(catalogue, requests, contender.make(requests), contender.queue))
    crowding = sum([catalogue.crowding for catalogue, _ in inputs]) / len(inputs)
    return Case(stream, engines, crowding, {name: tuple(own) for name, own in played.items()})
