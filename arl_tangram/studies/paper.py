"""The table of what was published: its sections, large as published or small enough to be tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arl_tangram.progress import Tell
from arl_tangram.simulate.workloads import CODING_BATCH, Coding, DeepSearch, Mopd, Testbed
from arl_tangram.studies.ablation import AblationSection
from arl_tangram.studies.coding import CodingSection
from arl_tangram.studies.deepsearch import DeepSearchSection
from arl_tangram.studies.mopd import MopdSection
from arl_tangram.studies.rows import Row, Section
from arl_tangram.studies.tasks import Outcomes

SEEDS = (6, 7, 8, 9, 10)
"""Those on which results are published; 1 to 3 were looked at before."""

WORKERS_OF_TRAINER = 8
"""How many workers VeRL's agent loops have unless told otherwise: so many parts a quota is split into."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large it all is.

    Attributes:
        coding: the batch of AI coding.
        batches: sizes of the curve; that of `coding` is one of them.
        cores: what the baseline reserves for a trajectory.
        steps: of a training.
        dops: fixed numbers of cores.
        deepsearch: the batch of DeepSearch.
        mopd: the batch of MOPD.
        machines: what it is served on.
    """

    coding: Coding
    batches: tuple[int, ...]
    cores: tuple[int, ...]
    steps: int
    dops: tuple[int, ...]
    deepsearch: DeepSearch
    mopd: Mopd
    machines: Testbed


PUBLISHED = Sizes(
    coding=CODING_BATCH,
    batches=(256, 512, 768, 1024, 1280, 1536),
    cores=(1, 2, 3, 4, 8, 16),
    steps=5,
    dops=(4, 16),
    deepsearch=DeepSearch(),
    mopd=Mopd(),
    machines=Testbed(),
)

QUICK = Sizes(
    coding=replace(CODING_BATCH, rollouts=16, turns=4, group=4),
    batches=(8, 16),
    cores=(1, 2, 4),
    steps=2,
    dops=(4, 16),
    deepsearch=DeepSearch(rollouts=32, turns=3, searches_per_s=16, pages_at_once=16),
    mopd=Mopd(rollouts=32, shares=(0.5, 0.3, 0.2)),
    machines=Testbed(nodes=2, cores=16, gpu_nodes=2),
)
"""Small enough for tests: it says nothing about what was published."""


def sections(sizes: Sizes, seeds: tuple[int, ...]) -> list[Section]:
    """Return the parts of the table, in order."""
    return [
        CodingSection(sizes.coding, sizes.machines, sizes.batches, sizes.cores, seeds),
        AblationSection(sizes.coding, sizes.machines, sizes.steps, sizes.dops, seeds),
        DeepSearchSection(sizes.deepsearch, sizes.machines, (f"static({WORKERS_OF_TRAINER})", "reserved"), seeds),
        MopdSection(sizes.mopd, sizes.machines, seeds),
    ]


def compute(parts: Sequence[Section], workers: int, tell: Tell) -> tuple[list[Row], Outcomes]:
    """Run all that the sections need; return their rows and what they were made of.

    Args:
        parts: the sections.
        workers: processes at once.
        tell: hears how far it is, of what is to be run first, and then again of what is to be run with that known.
    """
    outcomes = Outcomes()
    outcomes.run([task for part in parts for task in part.tasks()], workers, tell)
    outcomes.run([task for part in parts for task in part.further(outcomes)], workers, tell)
    return [row for part in parts for row in part.rows(outcomes)], outcomes
