"""What it costs to evict: the policies that put a value on each idle resident, of which the least in sum goes.

`Loss` is the default. It counts seconds: an instance that is evicted has to be restored when it is wanted again, which
is worth the more the sooner that is. With the queue in sight much is known of that:

    value = restore_s × 1 / distance           for a service that waits as the distance-th of the queue,
    value = restore_s × min(rate, 1 / (q + 1))  for one that does not wait among the first q,

where q is at most `window`, and rate is the share of the requests that its uses have been, weighted so that one counts
half after `half_life` more. Both are the chance that the next request is for it: one that comes after n others has,
over those n, a rate of 1/n.

`Lru` is the rule of ARL-Tangram (arXiv 2603.13019) and the usual one: what was used least recently goes. `Gdsf` weighs
uses and restore time against size, and forgets by inflation.

Sources: `Gdsf` is GreedyDual-Size-Frequency (Cherkasova, HP Labs report HPL-98-69R1, 1998), with the credit of
Landlord (Young, Algorithmica 2002), which can be added up over a set. A victim set of least expected loss instead of
single victims in order of age, and the estimate by the place in the queue, are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from arl_tangram.model.gpu import Chunk, Instance

WINDOW = 32
"""How far into the queue `Loss` looks."""

HALF_LIFE = 128.0
"""Requests after which a use counts half for `Loss`."""

EvictionName = Literal["loss", "lru", "gdsf"]
"""The policies that a pool can have."""


@dataclass(frozen=True, slots=True)
class Resident:
    """An instance that is on its devices, as a policy sees it.

    Attributes:
        instance: which.
        chunk: where it is.
        freed_bytes: what evicting it frees on each of its devices.
        restore_s: what it is expected to take to restore it again.
    """

    instance: Instance
    chunk: Chunk
    freed_bytes: int
    restore_s: float


class Values(Protocol):
    """What residents are worth; added up over the members of a set, and the set with the least sum goes."""

    @property
    def in_seconds(self) -> bool:
        """Whether values are expected seconds lost, to be added to durations; else they only order sets."""
        ...

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return what each is worth, at least 0 and finite.

        Args:
            residents: those that could go.
            upcoming: the services of the requests that wait, in the order in which they are to be served; the one for
                which room is looked for is not among them.
        """
        ...


class Eviction(Values, Protocol):
    """A policy at work, for one pool: it sees uses and evictions, and puts values on idle residents.

    It draws nothing and reads no clock.
    """

    def used(self, resident: Resident) -> None:
        """An action takes a seat at an instance, which is resident or being restored for it: one request."""
        ...

    def left(self, instance: Instance) -> None:
        """An action that used an instance has ended."""
        ...

    def evicted(self, instance: Instance) -> None:
        """An instance was chosen to go."""
        ...


def make_eviction(name: EvictionName) -> Eviction:
    """Return a policy at its beginning.

    Raises:
        ValueError: there is none of this name.
    """
    policies: dict[str, type[Loss | Lru | Gdsf]] = {"loss": Loss, "lru": Lru, "gdsf": Gdsf}
    if name not in policies:
        raise ValueError(f"there is no eviction policy {name!r}; there are {', '.join(policies)}")
    return policies[name]()


class Loss:
    """The least expected seconds lost by restoring again; see the top of this module.

    Args:
        half_life: requests after which a use counts half.
    """

    in_seconds = True

    __slots__ = ("_kept", "_now", "_rates")

    def __init__(self, *, half_life: float = HALF_LIFE) -> None:
        self._kept = 0.5 ** (1 / half_life)
        self._now = 0
        self._rates: dict[Instance, tuple[float, int]] = {}

    def used(self, resident: Resident) -> None:
        """One request is this instance's, and none of the others'."""
        rate = self._rate(resident.instance)
        self._now += 1
        self._rates[resident.instance] = (rate * self._kept + (1 - self._kept), self._now)

    def left(self, instance: Instance) -> None:
        """It makes no difference."""

    def evicted(self, instance: Instance) -> None:
        """It makes no difference: how often it is wanted does not depend on where it is."""

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return expected seconds lost."""
        seen = upcoming[:WINDOW]
        distances: dict[str, int] = {}
        for distance, service in enumerate(seen, start=1):
            distances.setdefault(service, distance)
        most = 1 / (len(seen) + 1)
        values: list[float] = []
        for resident in residents:
            distance = distances.get(resident.instance.service, 0)
            chance = 1 / distance if distance else min(self._rate(resident.instance), most)
            values.append(resident.restore_s * chance)
        return values

    def _rate(self, instance: Instance) -> float:
        rate, at = self._rates.get(instance, (0.0, self._now))
        return rate * math.pow(self._kept, self._now - at)


class Lru:
    """What was used least recently goes: the set whose most recently used member is the oldest.

    An instance is in use until its last action has ended, so its age counts from then.
    """

    in_seconds = False

    __slots__ = ("_last", "_now")

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[Instance, int] = {}

    def used(self, resident: Resident) -> None:
        """It is the most recent one."""
        self._touch(resident.instance)

    def left(self, instance: Instance) -> None:
        """It is the most recent one."""
        self._touch(instance)

    def evicted(self, instance: Instance) -> None:
        """Its age is forgotten."""
        self._last.pop(instance, None)

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return powers of two by age, so that one that is more recent is worth more than all that are older."""
        by_age = sorted(range(len(residents)), key=lambda i: self._last.get(residents[i].instance, 0))
        values = [0.0] * len(residents)
        for rank, i in enumerate(by_age):
            values[i] = math.ldexp(1.0, rank - len(residents))
        return values

    def _touch(self, instance: Instance) -> None:
        self._now += 1
        self._last[instance] = self._now


class Gdsf:
    """What has the least credit goes: uses × restore time, less what each byte has lost since the last use."""

    in_seconds = False

    __slots__ = ("_inflation", "_priorities", "_uses")

    def __init__(self) -> None:
        self._inflation = 0.0
        self._uses: dict[Instance, int] = {}
        self._priorities: dict[Instance, float] = {}

    def used(self, resident: Resident) -> None:
        """Its credit is full again, and greater by one use."""
        uses = self._uses[resident.instance] = self._uses.get(resident.instance, 0) + 1
        self._priorities[resident.instance] = self._inflation + uses * resident.restore_s / _size(resident)

    def left(self, instance: Instance) -> None:
        """It makes no difference."""

    def evicted(self, instance: Instance) -> None:
        """Everybody else loses as much credit for each byte as this one had."""
        self._uses.pop(instance, None)
        self._inflation = max(self._inflation, self._priorities.pop(instance, 0.0))

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return the credit that is left."""
        return [
            max(0.0, self._priorities.get(resident.instance, 0.0) - self._inflation) * _size(resident)
            for resident in residents
        ]


def _size(resident: Resident) -> int:
    return max(1, resident.freed_bytes * resident.chunk.size)
