"""What a grant costs by itself: the limits of a container changed, directly and through the daemon, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from arl_tangram.bench.aoe.place import Place, capacity_of
from arl_tangram.bench.aoe.plan import GrantKind
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.model.quantities import MILLI

DIRECT_PER_API = 3
"""A direct grant is so short that one of them says little."""


@dataclass(frozen=True, slots=True)
class GrantTimes:
    """How long grants took until they were in effect and read back.

    Attributes:
        grants: how they were applied.
        seconds: of each.
    """

    grants: GrantKind
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median."""
        return sorted(self.seconds)[len(self.seconds) // 2]

    def quantile_s(self, share: float) -> float:
        """Return a quantile."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


async def time_grants(
    place: Place, kinds: Sequence[GrantKind], number: int, tell: Callable[[str], None]
) -> list[GrantTimes]:
    """Time that many grants of each kind, one of each in turn; each one moves the container to other cores."""
    seconds: dict[GrantKind, list[float]] = {kind: [] for kind in kinds}
    async with AsyncExitStack() as stack:
        limits: list[tuple[GrantKind, Limits, tuple[Placement, Placement]]] = []
        for kind in kinds:
            manager, box = await stack.enter_async_context(place.sandbox(kind))
            limits.append((kind, box.limits, _placements(manager, box)))
        tell("grants by themselves")
        for turn in range(number):
            for kind, own, placements in limits:
                for again in range(DIRECT_PER_API if kind == "direct" else 1):
                    begun_s = time.perf_counter()
                    own.want(placements[(turn + again) % 2])
                    await own.settled()
                    seconds[kind].append(time.perf_counter() - begun_s)
    return [GrantTimes(kind, tuple(times)) for kind, times in seconds.items()]


def _placements(manager: DockerManager, box: DockerSandbox) -> tuple[Placement, Placement]:
    """Return two grants of which each changes something after the other."""
    lease = manager.lease(capacity_of(manager), box)
    first, *others = lease.core_ids
    lease.release()
    whole = Placement((first,), MILLI)
    return whole, Placement((others[0],), MILLI) if others else Placement((first,), MILLI // 2)
