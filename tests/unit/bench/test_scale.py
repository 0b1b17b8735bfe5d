"""The command `bench scale`: what it runs, on small clusters, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arl_tangram.bench.scale.clusters import Cluster, Figures, run_cluster
from arl_tangram.bench.scale.command import clusters, header, row

SMALL = Cluster(nodes=4, cores=4, rollouts=24, turns=2.0)


def test_groups_make_the_calls_of_one_scheduler_and_each_decides_less() -> None:
    one = run_cluster(SMALL)
    grouped = [run_cluster(replace(SMALL, groups=2, assign=assign)) for assign in ("fewest", "random")]
    assert {found.calls for found in grouped} == {one.calls}
    for found in (one, *grouped):
        assert 0 < found.median_s <= found.p99_s <= found.longest_s
        assert found.busiest_s <= found.decisions * found.longest_s
        assert found.busy == found.busiest_s / found.step_s
    assert one.act_s == run_cluster(SMALL).act_s, "virtual time does not depend on the clock"


def test_a_group_for_each_node_has_one_scheduler_for_each() -> None:
    crowded = replace(SMALL, cores=1)
    fewest = run_cluster(replace(crowded, groups=4))
    random = run_cluster(replace(crowded, groups=4, assign="random"))
    assert fewest.act_s != random.act_s


def test_the_clusters_grow_to_a_hundred_thousand_cores() -> None:
    cases = clusters()
    assert max(cluster.nodes * cluster.cores for cluster in cases) >= 100_000
    assert max(cluster.rollouts for cluster in cases) >= 50_000
    assert len({cluster.name for cluster in cases}) == len(cases)


@pytest.mark.parametrize(("groups", "name"), [(1, "1 scheduler"), (2, "2 schedulers, fewest")])
def test_a_row_of_the_table(groups: int, name: str) -> None:
    figures = Figures(replace(SMALL, groups=groups), 1_000, 2.0, 10.0, 3_000, 1.0, 1e-4, 5e-4, 2e-3)
    told = row(figures)
    assert len(told) == len(header())
    assert told.startswith(f"24 on 4 x 4: {name}")
    assert told.split()[-7:] == ["1,000", "3,000", "100", "500", "2.0", "10.0%", "2.000"]
