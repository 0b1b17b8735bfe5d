"""The policies that come with the library."""

from __future__ import annotations

from arl_tangram.scheduling.policies.elastic import Elastic, elastic
from arl_tangram.scheduling.policies.fixed import Fixed, fixed
from arl_tangram.scheduling.policies.paper import Paper, paper
from arl_tangram.scheduling.policies.reserved import Reserved, reserved
from arl_tangram.scheduling.policy import Candidate, Group, Plan, Policy, Snapshot

__all__ = [
    "Candidate",
    "Elastic",
    "Fixed",
    "Group",
    "Paper",
    "Plan",
    "Policy",
    "Reserved",
    "Snapshot",
    "elastic",
    "fixed",
    "paper",
    "reserved",
]
