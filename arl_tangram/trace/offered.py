"""Integrate over time how much of each dimension there is: its capacity can change while a run goes on."""

from __future__ import annotations

from arl_tangram.model.topology import Topology


class Offered:
    """The capacity of each dimension now, and unit-seconds of what there was before; in integer units."""

    def __init__(self, topology: Topology) -> None:
        self.capacity = [dimension.capacity for dimension in topology.dimensions]
        self._since_s: list[float | None] = [None] * len(self.capacity)
        self._unit_s = [0.0] * len(self.capacity)

    def change(self, dimension: int, capacity: int, at_s: float, first_s: float) -> None:
        """A dimension has another capacity from now on.

        Args:
            dimension: its index.
            capacity: the new one.
            at_s: now.
            first_s: when the observed time began.
        """
        self._unit_s[dimension] = self.unit_s(dimension, at_s, first_s)
        self._since_s[dimension] = max(at_s, first_s)
        self.capacity[dimension] = capacity

    def unit_s(self, dimension: int, until_s: float, first_s: float) -> float:
        """Return capacity times seconds of the observed time up to `until_s`."""
        since_s = self._since_s[dimension]
        since_s = first_s if since_s is None else since_s
        return self._unit_s[dimension] + self.capacity[dimension] * max(0.0, until_s - since_s)
