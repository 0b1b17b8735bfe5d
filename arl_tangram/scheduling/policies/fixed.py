"""The baseline of a fixed degree of parallelism: every action runs at the same dop, in order."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import whole
from arl_tangram.scheduling.policy import Candidate, Group, Plan


@dataclass(frozen=True, slots=True)
class Fixed:
    """Everybody gets the same; see `fixed`."""

    dop: int

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"fixed({self.dop})"

    @property
    def reserved_cores(self) -> int:
        """Nothing is reserved."""
        return 0

    def planner(self) -> Plan:
        """Return `plan`: nothing is remembered."""
        return self.plan

    def plan(self, group: Group) -> list[int]:
        """Start candidates at the fixed dop, in order, until one does not fit."""
        left = group.free
        units: list[int] = []
        for candidate in group.candidates:
            wanted = self._wanted(candidate)
            if wanted > left:
                break
            units.append(wanted)
            left -= wanted
        return units

    def _wanted(self, candidate: Candidate) -> int:
        return max((u for u in candidate.units if u <= self.dop), default=candidate.units[0])


def fixed(dop: int) -> Fixed:
    """Return the policy that runs every elastic action at `dop` units, or the nearest admitted below.

    Raises:
        ConfigurationError: a dop below 1.
    """
    return Fixed(whole(dop, "fixed(dop)", ConfigurationError, least=1))
