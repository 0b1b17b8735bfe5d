"""Which of the free cores a grant takes, and which of its own it gives up, by NUMA node. Pure.

Nodes are lists of the numbers of cores. Two cores are near if they are on one node; how far nodes are from each other
does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence


def node_of(core: int, nodes: Sequence[Sequence[int]]) -> int:
    """Return the number of the node of a core."""
    return next(number for number, node in enumerate(nodes) if core in node)


def pick(free: Sequence[list[int]], count: int) -> list[int]:
    """Take free cores: from the smallest node that has room, else from the fullest nodes on.

    Args:
        free: the free cores of each node, ascending; those that are picked are removed.
        count: how many, from 0.

    Raises:
        ValueError: there are not so many; then none is taken.
    """
    if count > sum(map(len, free)):
        raise ValueError(f"{count} cores were asked, {sum(map(len, free))} are free")
    fitting = [node for node in free if len(node) >= count]
    sources = [min(fitting, key=len)] if fitting else sorted(free, key=len, reverse=True)
    picked: list[int] = []
    for node in sources:
        picked.extend(_take(node, count - len(picked)))
    return picked


def pick_near(
    free: Sequence[list[int]], count: int, held: Collection[int], nodes: Sequence[Sequence[int]]
) -> list[int]:
    """Take free cores for a grant that has some: from the nodes where it has most of them on, then as `pick` does.

    Args:
        free: the free cores of each node; those that are picked are removed.
        count: how many; none if it is below 1.
        held: the cores that the grant has.
        nodes: all cores of each node.

    Raises:
        ValueError: there are not so many; then none is taken.
    """
    if count > sum(map(len, free)):
        raise ValueError(f"{count} cores were asked, {sum(map(len, free))} are free")
    picked: list[int] = []
    for number, _ in Counter(node_of(core, nodes) for core in sorted(held)).most_common():
        picked.extend(_take(free[number], count - len(picked)))
    return [*picked, *pick(free, max(0, count - len(picked)))]


def near_first(held: Sequence[int], nodes: Sequence[Sequence[int]], away: Collection[int]) -> list[int]:
    """Return the cores of a grant, those to keep first: on the nodes where most of them are; last, those offline.

    Args:
        held: its cores.
        nodes: all cores of each node.
        away: cores that are offline.
    """
    online = Counter(node_of(core, nodes) for core in held if core not in away)

    def distance(core: int) -> tuple[bool, int, int, int]:
        node = node_of(core, nodes)
        return core in away, -online[node], node, core

    return sorted(held, key=distance)


def _take(node: list[int], count: int) -> list[int]:
    """Take the first cores of a node, as many as there are at most."""
    taken = node[: max(0, count)]
    del node[: len(taken)]
    return taken
