"""The room on the devices of a pool: as it is now, and as it is once those who sit have risen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.eviction import Resident, Values
from arl_tangram.scheduling.gpu.residency import Copy, Residency
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """A `covering.Room` of plain values."""

    capacity: Sequence[int]
    used: Sequence[int]
    held: Sequence[int]
    idle: Sequence[Sequence[Resident]]


def resident(copy: Copy, residency: Residency, restores: RestoreTimes) -> Resident:
    """Return a copy as an eviction policy sees it."""
    return Resident(copy.instance, copy.chunk, residency.gives(copy), restores.expected_s(copy.instance))


def room_now(residency: Residency, restores: RestoreTimes, spared: Collection[Instance] = ()) -> DeviceRoom:
    """Return the room that there is, where what is idle can go, but for what is spared."""
    held, idle = _empty(residency)
    for copy in residency.copies.values():
        goes = copy.idle and copy.instance not in spared
        _put(copy.chunk, resident(copy, residency, restores) if goes else None, held, idle)
    for device in residency.holders:
        held[device] += 1
    return DeviceRoom(residency.target, residency.used, held, idle)


def room_to_be(residency: Residency, restores: RestoreTimes, kept: Collection[int], sizes: Sequence[int]) -> DeviceRoom:
    """Return the room that there is to be: all but these actions have risen, and what they do not use can go.

    Args:
        residency: what is where.
        restores: what restores take.
        kept: the actions.
        sizes: the bytes that each device has then.
    """
    held, idle = _empty(residency)
    used = list(residency.used)
    for copy in residency.copies.values():
        stays = copy.is_used_by(kept)
        _put(copy.chunk, None if stays else resident(copy, residency, restores), held, idle)
    for action_id in residency.holding():
        sitting = residency.sittings[action_id]
        for device, size in zip(sitting.seat.chunk.devices, sitting.held, strict=True):
            if action_id in kept:
                held[device] += 1
            else:
                used[device] -= size
    return DeviceRoom(sizes, used, held, idle)


class Waiting:
    """The values of what can go once it is not used any more: with the seconds until then, if anybody waits for that.

    Args:
        values: of the policy.
        left_s: for each instance that is used, until when it is expected to be.
    """

    in_seconds = True

    def __init__(self, values: Values, left_s: Mapping[Instance, float]) -> None:
        self._values = values
        self._left_s = left_s

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return expected seconds: lost, and waited for."""
        if self._values.in_seconds:
            lost_s = self._values.values(residents, upcoming)
        else:
            lost_s = [one.restore_s for one in residents]
        return [s + self._left_s.get(one.instance, 0.0) for s, one in zip(lost_s, residents, strict=True)]


def _empty(residency: Residency) -> tuple[list[int], list[list[Resident]]]:
    return [0] * len(residency.target), [[] for _ in residency.target]


def _put(chunk: Chunk, one: Resident | None, held: list[int], idle: list[list[Resident]]) -> None:
    for device in chunk.devices:
        if one is None:
            held[device] += 1
        else:
            idle[device].append(one)
