"""Chunks: neighbouring devices of one node, aligned to their number, as a buddy allocator makes them.

A node of eight devices has eight chunks of one, four of two, two of four and one of eight; a node of six has no chunk
of eight and one of four. Two chunks are disjoint, or one is inside the other: so free devices are always a set of
largest free chunks, and that set says what can still be placed.

Source: the binary buddy system, Knowlton (Communications of the ACM, 1965).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from arl_tangram.model.gpu import CHUNK_SIZES, Chunk, GpuNode, HostedService, chunks_of


def halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    """Return the two chunks that a chunk of at least two devices consists of."""
    half = chunk.size // 2
    return Chunk(chunk.first, half), Chunk(chunk.first + half, half)


def within(chunk: Chunk) -> Iterator[Chunk]:
    """Yield a chunk and all chunks inside it, larger ones before their halves."""
    yield chunk
    if chunk.size > 1:
        for half in halves(chunk):
            yield from within(half)


class Chunks:
    """The chunks of the nodes of a pool; devices are counted over all nodes, in their order.

    Attributes:
        capacities: bytes of each device, as declared.
    """

    __slots__ = ("_by_size", "_largest", "capacities")

    def __init__(self, nodes: Sequence[GpuNode]) -> None:
        self.capacities = tuple([device.capacity_bytes for node in nodes for device in node.devices])
        self._largest = tuple(_largest(nodes))
        self._by_size = {size: chunks_of(nodes, size) for size in CHUNK_SIZES}

    def of_size(self, size: int) -> tuple[Chunk, ...]:
        """Return all chunks of so many devices, ascending; none for a number that chunks cannot have."""
        return self._by_size.get(size, ())

    def of(self, service: HostedService, dop: int) -> tuple[Chunk, ...]:
        """Return where an instance of a service can be: its own place if it has one, else every chunk of its size."""
        return next(((chunk,) for of_dop, chunk in service.chunks if of_dop == dop), self.of_size(dop))

    def free(self, devices: Container[int]) -> tuple[Chunk, ...]:
        """Return the largest chunks that consist of these devices only, ascending."""
        found: list[Chunk] = []
        for largest in self._largest:
            found.extend(_whole(largest, devices))
        return tuple(found)


def _largest(nodes: Sequence[GpuNode]) -> Iterator[Chunk]:
    """Yield the chunks that are inside no other, ascending."""
    begin = 0
    for node in nodes:
        end = begin + len(node.devices)
        first = begin
        while first < end:
            size = next(size for size in reversed(CHUNK_SIZES) if (first - begin) % size == 0 and first + size <= end)
            yield Chunk(first, size)
            first += size
        begin = end


def _whole(chunk: Chunk, devices: Container[int]) -> Iterator[Chunk]:
    """Yield the largest chunks inside a chunk that consist of these devices only."""
    if all(device in devices for device in chunk.devices):
        yield chunk
    elif chunk.size > 1:
        for half in halves(chunk):
            yield from _whole(half, devices)
