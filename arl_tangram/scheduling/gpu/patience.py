"""How long one that has to be placed leaves an instance to those who wait for it, before it is evicted for that one.

Evicting it at once delays all who wait for it: by the restore of what takes its place, by the actions that wait for
that, and by its own restore afterwards. Leaving it delays those who wait for what takes its place, by the actions that
it serves meanwhile. Who waits is served in the least mean time if the smaller of the two sums is chosen, so

    most_s = waiting for what goes × (restores + what those take who wait for what comes) / waiting for what comes,

which is Smith's rule, of the shortest work by weight first, with a set-up time.

Source: Smith, Various optimizers for single-stage production (Naval Research Logistics Quarterly 3, 1956).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from arl_tangram.scheduling.gpu.request import SeatRequest


class Patience(NamedTuple):
    """How long an action lets others pass.

    Attributes:
        restores_s: the restores that it costs to place it: its own, and those of what goes.
        gone: the services of what goes.
        others: how many wait for these, among the next ones.
        most_s: how long it is worth it to leave that to them.
    """

    restores_s: float
    gone: Collection[str]
    others: int
    most_s: float


def patience_of(
    request: SeatRequest, restores_s: float, gone: Collection[str], upcoming: Sequence[str], places: int
) -> Patience:
    """Return how long an action lets others pass.

    Args:
        request: the action.
        restores_s: the restores that it costs to place it.
        gone: the services of what goes for it.
        upcoming: the services of those who wait behind it.
        places: how many of its own service can sit at once.
    """
    others = sum([1 for name in upcoming if name in gone and name != request.service])
    own = 1 + sum([1 for name in upcoming if name == request.service])
    takes_s = restores_s + math.ceil(own / places) * min(request.expected_s)
    return Patience(restores_s, gone, others, others * takes_s / own)
