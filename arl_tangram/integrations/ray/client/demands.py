"""The demands of a client, by numbers: each crosses once, whatever calls have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from arl_tangram.integrations.ray.wire import Declare
from arl_tangram.model.elasticity import Amdahl, Linear, Measured, PowerLaw, Speedup
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.quantities import MILLI

MOST = 10_000
_OURS = (Amdahl, Linear, Measured, PowerLaw)
_LEAST = 1e-6


class Demands:
    """Numbers of demands; those that nothing uses any more are given out again.

    Args:
        most: how many there are before those are looked for.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[int, tuple[int, Demand]] = {}  # it keeps the demand: the id stays its own
        self._free: list[int] = []
        self._last = 0

    def number(self, demand: Demand) -> int:
        """Return the number of a demand that was declared."""
        return self._known[id(demand)][0]

    def declare(self, demand: Demand, live: Callable[[], Iterable[Demand]]) -> Declare | None:
        """Give a demand a number; return what is to be said of it, or None if that was said.

        Args:
            demand: the demand.
            live: returns those that are in use, this one among them or not.
        """
        if id(demand) in self._known:
            return None
        if len(self._known) >= self._most:
            self._clear({id(one) for one in live()})
        if self._free:
            number = self._free.pop()
        else:
            self._last += 1
            number = self._last
        self._known[id(demand)] = (number, demand)
        return Declare(number, portable(demand))

    def declared(self, live: Iterable[Demand]) -> tuple[Declare, ...]:
        """Return those in use, as they were declared; all others are to be declared anew."""
        self._clear({id(one) for one in live})
        return tuple(Declare(number, portable(demand)) for number, demand in sorted(self._known.values(), key=_first))

    def _clear(self, live: set[int]) -> None:
        for key in [key for key in self._known if key not in live]:
            self._free.append(self._known.pop(key)[0])


def portable(demand: Demand) -> Demand:
    """Return a demand without anything of the user's: a speed-up of his own becomes what it says of the options."""
    if demand.places:
        demand = replace(demand, places=tuple(portable(place) for place in demand.places))
    if demand.speedup is None or type(demand.speedup) in _OURS:
        return demand
    return replace(demand, speedup=_measured(demand.speedup, demand.options))


def _measured(speedup: Speedup, options: tuple[int, ...]) -> Measured:
    """Return what a speed-up says of some units; what makes no sense becomes a very small one, or a very large one."""
    said = {units // MILLI: speedup(units // MILLI) for units in options}
    return Measured({units: min(max(faster, _LEAST), 1 / _LEAST) if faster == faster else _LEAST  # noqa: PLR0124 - NaN
                     for units, faster in said.items()})  # fmt: skip


def _first(pair: tuple[int, Demand]) -> int:
    return pair[0]
