"""DPArrange over chunks: place the first of several that wait so that the sum of their costs is least.

The state is what is free: the largest free chunks, by size and by what they are worth to those who wait. Chunks that
are worth the same to everybody, and so are their halves, are of one kind, and the state counts how many there are of
each: where all devices of a node are alike, that is the tuple of free chunks per size and node. Then

    best[i][state] = min over chunks c that i could take of  best[i-1][state with c free] + cost_i(c)

and one table answers for every prefix. Taking a chunk of a kind out of a larger one is not tried where it is free by
itself: what is left then can do all that the other could.

It is exact, equal to brute force, for one node of eight devices, however unlike they are (a layer has at most 163
states), and for any number of nodes as long as their devices are alike. For many unlike nodes the work is bounded: in
each layer only the states with the least sums are kept.

Source: the dynamic programme of ARL-Tangram (arXiv 2603.13019) over the tuple of free chunks; kinds are this
project's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from arl_tangram.model.gpu import Chunk
from arl_tangram.scheduling.gpu.chunks import halves

_MOST_WORK = 24_576
"""Ways to go on from a state that one table looks at, over all layers."""

_FEWEST_STATES = 16

_State = tuple[int, ...]


class ChunkArrangement:
    """The best chunks for every prefix of the candidates.

    Args:
        candidates: for each, in order, the seconds that it costs on each chunk that it could have; finite.
        free: disjoint chunks that can be shared out, as `Chunks.free` returns them.
    """

    def __init__(self, candidates: Sequence[Mapping[Chunk, float]], free: Sequence[Chunk]) -> None:
        self._candidates = candidates
        self._free = free
        self._kinds = _Kinds(candidates, free)
        state = tuple(sorted([self._kinds.of[chunk] for chunk in free]))
        layers = max(1, min(len(candidates), sum([chunk.size for chunk in free])))
        self._most_states = max(_FEWEST_STATES, _MOST_WORK // (layers * max(1, self._kinds.count)))
        layer: dict[_State, float] = {state: 0.0}
        self._last: list[_State | None] = [state]
        self._costs: list[float] = [0.0]
        self._moves: list[dict[_State, _Move]] = []
        for index in range(len(candidates)):
            layer, moves = self._next(layer, index)
            self._moves.append(moves)
            least = min(layer, key=layer.__getitem__, default=None)
            self._last.append(least)
            self._costs.append(inf if least is None else layer[least])

    def cost_s(self, prefix: int) -> float:
        """Least sum of the costs of the first `prefix` candidates; infinite if they do not fit."""
        return self._costs[prefix]

    def chunks(self, prefix: int) -> tuple[Chunk, ...]:
        """Return the chunk of each of the first `prefix` candidates at that least sum.

        Raises:
            ValueError: they do not fit together.
        """
        state = self._last[prefix]
        if state is None:
            raise ValueError(f"{prefix} candidates do not fit in {len(self._free)} free chunks")
        carvings: list[_Carving] = []
        for moves in reversed(self._moves[:prefix]):
            state, carving = moves[state]
            carvings.append(carving)
        return self._kinds.carve(self._free, carvings[::-1])

    def _next(self, layer: Mapping[_State, float], index: int) -> tuple[dict[_State, float], dict[_State, _Move]]:
        costs: dict[_State, float] = {}
        moves: dict[_State, _Move] = {}
        for state, cost_s in layer.items():
            for carving in self._kinds.carvings(state):
                total_s = cost_s + self._kinds.cost_s[carving.taken][index]
                if total_s == inf:
                    continue
                left = list(state)
                left.remove(carving.source)
                after = tuple(sorted([*left, *carving.rest]))
                if total_s < costs.get(after, inf):
                    costs[after] = total_s
                    moves[after] = _Move(state, carving)
        if len(costs) > self._most_states:
            costs = dict(sorted(costs.items(), key=lambda item: (item[1], item[0]))[: self._most_states])
        return costs, moves


class _Carving(NamedTuple):
    """A way to take a chunk out of one of a kind.

    Attributes:
        source: the kind of the whole.
        taken: the kind of what is taken.
        rest: the kinds of what is left of the whole.
        path: the kinds of the halves on the way to it.
    """

    source: int
    taken: int
    rest: tuple[int, ...]
    path: tuple[int, ...]


class _Move(NamedTuple):
    """How a state was reached: from which one, and by taking what."""

    before: _State
    carving: _Carving


class _Kinds:
    """The chunks inside free ones by kind: of one kind are those that cost the same, as do their halves.

    Attributes:
        of: the kind of each chunk.
        cost_s: for each kind, what each candidate pays for it; infinite where it cannot have it.
    """

    def __init__(self, candidates: Sequence[Mapping[Chunk, float]], free: Sequence[Chunk]) -> None:
        self.of: dict[Chunk, int] = {}
        self.cost_s: list[tuple[float, ...]] = []
        self._candidates = candidates
        self._numbers: dict[tuple[int, tuple[float, ...], tuple[int, ...]], int] = {}
        self._sizes: list[int] = []
        self._carvings: list[list[_Carving]] = []
        self._ways: dict[_State, list[_Carving]] = {}
        for chunk in free:
            self._add(chunk)

    @property
    def count(self) -> int:
        """How many kinds there are."""
        return len(self._sizes)

    def carvings(self, state: _State) -> list[_Carving]:
        """Return all ways to take a chunk in a state that are worth trying."""
        ways = self._ways.get(state)
        if ways is None:
            smallest: dict[int, int] = {}
            distinct = list(dict.fromkeys(state))
            for source in distinct:
                for carving in self._carvings[source]:
                    size = self._sizes[source]
                    smallest[carving.taken] = min(size, smallest.get(carving.taken, size))
            ways = self._ways[state] = [
                carving
                for source in distinct
                for carving in self._carvings[source]
                if smallest[carving.taken] == self._sizes[source]
            ]
        return ways

    def carve(self, free: Sequence[Chunk], carvings: Sequence[_Carving]) -> tuple[Chunk, ...]:
        """Take chunks one after the other, and return which they are."""
        left = list(free)
        taken: list[Chunk] = []
        for carving in carvings:
            chunk = next(chunk for chunk in left if self.of[chunk] == carving.source)
            left.remove(chunk)
            for kind in carving.path:
                one, other = halves(chunk)
                if self.of[one] != kind:
                    one, other = other, one
                chunk = one
                left.append(other)
            taken.append(chunk)
        return tuple(taken)

    def _add(self, chunk: Chunk) -> int:
        parts = tuple([self._add(half) for half in halves(chunk)]) if chunk.size > 1 else ()
        costs = tuple([costs_s.get(chunk, inf) for costs_s in self._candidates])
        key = (chunk.size, costs, tuple(sorted(parts)))
        kind = self._numbers.get(key)
        if kind is None:
            kind = self._numbers[key] = len(self._sizes)
            self._sizes.append(chunk.size)
            self.cost_s.append(costs)
            self._carvings.append(self._ways_to_carve(kind, parts))
        self.of[chunk] = kind
        return kind

    def _ways_to_carve(self, kind: int, parts: tuple[int, ...]) -> list[_Carving]:
        ways: dict[tuple[int, _State], _Carving] = {}
        if any(cost_s < inf for cost_s in self.cost_s[kind]):
            ways[kind, ()] = _Carving(kind, kind, (), ())
        for part, other in zip(parts, reversed(parts), strict=True):
            for inner in self._carvings[part]:
                rest = tuple(sorted([*inner.rest, other]))
                ways.setdefault((inner.taken, rest), _Carving(kind, inner.taken, rest, (part, *inner.path)))
        return list(ways.values())
