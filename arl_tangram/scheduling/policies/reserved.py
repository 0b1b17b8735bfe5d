"""The baseline of per-trajectory reservation: a trajectory waits for its cores and keeps them to its end."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import whole
from arl_tangram.scheduling.policies.fixed import Fixed
from arl_tangram.scheduling.policy import Group, Plan


@dataclass(frozen=True, slots=True)
class Reserved:
    """Cores per trajectory; see `reserved`."""

    cores: int

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"reserved({self.cores})"

    @property
    def reserved_cores(self) -> int:
        """Whole cores that each trajectory holds."""
        return self.cores

    def planner(self) -> Plan:
        """Return `plan`: nothing is remembered."""
        return self.plan

    def plan(self, group: Group) -> list[int]:
        """Run actions outside any trajectory at the same dop, in order."""
        return Fixed(self.cores).plan(group)


def reserved(cores: int) -> Reserved:
    """Return the policy under which each trajectory holds `cores` whole cores from its first to its last turn.

    All its actions with a `cpu` cost run on those, whatever they declare; quotas are shared as usual.

    Raises:
        ConfigurationError: less than one core.
    """
    return Reserved(whole(cores, "reserved(cores)", ConfigurationError, least=1))
