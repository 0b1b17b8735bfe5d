"""Seeded workloads to compare policies with: every parameter is stated, and the same seed draws the same calls.

`open_calls` are calls that arrive by themselves, each unlike the others; `kinds_of_calls` are calls of a few
actions, of which something can be learned. The others are closed, trajectories that think between their calls:
`coding_rollouts`, `deepsearch_rollouts` and `mopd_rollouts`, with parameters whose sources their classes tell.
"""

from __future__ import annotations

from arl_tangram.simulate.workloads.coding import CODING_BATCH, Coding, coding_rollouts
from arl_tangram.simulate.workloads.declared import with_durations
from arl_tangram.simulate.workloads.deepsearch import DeepSearch, deepsearch_rollouts
from arl_tangram.simulate.workloads.mopd import Mopd, mopd_rollouts
from arl_tangram.simulate.workloads.open_loop import MEAN_WORK_S, OPTIONS, Kinds, Mix, kinds_of_calls, open_calls
from arl_tangram.simulate.workloads.pools import Testbed, pool
from arl_tangram.simulate.workloads.suites import suite_speedup

__all__ = [
    "CODING_BATCH",
    "MEAN_WORK_S",
    "OPTIONS",
    "Coding",
    "DeepSearch",
    "Kinds",
    "Mix",
    "Mopd",
    "Testbed",
    "coding_rollouts",
    "deepsearch_rollouts",
    "kinds_of_calls",
    "mopd_rollouts",
    "open_calls",
    "pool",
    "suite_speedup",
    "with_durations",
]
