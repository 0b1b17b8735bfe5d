"""Rooms of made-up devices with residents at random, for the laws about victims and places."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from arl_tangram.model.gpu import GpuDevice, GpuNode, Instance
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.eviction import Resident

CAPACITY = 100


def nodes_of(*sizes: int, capacity: int = CAPACITY) -> tuple[GpuNode, ...]:
    """Return nodes with so many devices each."""
    return tuple(
        GpuNode(f"node{number}", tuple(GpuDevice(f"{number}:{i}", capacity) for i in range(size)))
        for number, size in enumerate(sizes)
    )


@dataclass
class MadeRoom:
    """A `Room`: what is on each device, and who could go."""

    capacity: list[int]
    used: list[int]
    held: list[int]
    idle: list[list[Resident]]


def empty_room(chunks: Chunks) -> MadeRoom:
    """Return a room in which there is nothing."""
    devices = len(chunks.capacities)
    return MadeRoom(list(chunks.capacities), [0] * devices, [0] * devices, [[] for _ in range(devices)])


def put(room: MadeRoom, resident: Resident) -> None:
    """Let a resident be there, idle."""
    for device in resident.chunk.devices:
        room.used[device] += resident.freed_bytes
        room.idle[device].append(resident)


@st.composite
def rooms(draw: st.DrawFn, chunks: Chunks, most: int = 9) -> tuple[MadeRoom, dict[Instance, float]]:
    """Draw what is in a room, within its capacity, and what each resident is worth."""
    room = empty_room(chunks)
    everywhere = [chunk for size in (1, 2, 4, 8) for chunk in chunks.of_size(size)]
    worth: dict[Instance, float] = {}
    for device in range(len(room.used)):
        if draw(st.booleans()):
            room.used[device] += draw(st.integers(0, 60))
            room.held[device] += draw(st.integers(0, 1))
    for number in range(draw(st.integers(0, most))):
        chunk = draw(st.sampled_from(everywhere))
        left = min(room.capacity[device] - room.used[device] for device in chunk.devices)
        if left <= 0:
            continue
        resident = Resident(Instance(f"s{number}", chunk.size), chunk, draw(st.integers(1, left)), 1.0)
        worth[resident.instance] = draw(st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0, 100))
        put(room, resident)
    return room, worth


def freed_by(room: MadeRoom, victims: tuple[Instance, ...]) -> list[int]:
    """Return the bytes that are free on each device when these have gone."""
    gone = [sum(r.freed_bytes for r in room.idle[d] if r.instance in victims) for d in range(len(room.used))]
    return [room.capacity[d] - room.used[d] + gone[d] for d in range(len(room.used))]


def chunks_of(size: int, *, nodes: int = 1) -> Chunks:
    """Return the chunks of so many equal nodes."""
    return Chunks(nodes_of(*[size] * nodes))
