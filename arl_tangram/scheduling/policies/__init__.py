"""The policies that come with the library: those of actions that start, and those of cores that running ones share."""

from __future__ import annotations

from arl_tangram.model.sharing import SharePolicy, Sharer
from arl_tangram.scheduling.policies.elastic import Elastic, elastic
from arl_tangram.scheduling.policies.fixed import Fixed, fixed
from arl_tangram.scheduling.policies.paper import Paper, paper
from arl_tangram.scheduling.policies.reserved import Reserved, reserved
from arl_tangram.scheduling.policy import Candidate, Group, Plan, Policy, Snapshot
from arl_tangram.scheduling.sharing.attained import LeastAttained, least_attained
from arl_tangram.scheduling.sharing.equal import EqualShares, equal_shares
from arl_tangram.scheduling.sharing.sized import SizeAware, size_aware

__all__ = [
    "Candidate",
    "Elastic",
    "EqualShares",
    "Fixed",
    "Group",
    "LeastAttained",
    "Paper",
    "Plan",
    "Policy",
    "Reserved",
    "SharePolicy",
    "Sharer",
    "SizeAware",
    "Snapshot",
    "elastic",
    "equal_shares",
    "fixed",
    "least_attained",
    "paper",
    "reserved",
    "size_aware",
]
