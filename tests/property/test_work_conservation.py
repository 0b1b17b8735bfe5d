"""No free capacity beside a first waiter that fits, and nobody waits without a reason.

What a world at rest must show (at rest: `decide` was repeated at one moment until nothing happened):

- Whoever is the first waiter in each of its dimensions does not fit at the units that its policy asks for: the least
  under `paper`, those of the dop under `fixed` and `reserved`. `World.settle` checks that after every step.
- Whoever fits waits behind somebody who lacks one of its dimensions. Nobody waits for a dimension that it does not
  use. This holds as long as nobody has lost chances, so here at the first decisions of a world.

What a policy may hold back: `paper` defers candidates so that those before them get more units. The deferred are never
all: the head of a group starts, so what is held back is bounded by what was started in the same decision.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.scheduling.policies import Policy, fixed, paper
from property.worlds import World, make_demand, make_topology

COSTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([0.5, 1, 2, 3, Elastic(1, 4), Elastic(2, 6), Elastic.of(1, 3)]),
        "memory_gib": st.sampled_from([1, 5, 9]),
        "search": st.sampled_from([0.5, 1, 2]),
        "thread": st.just(True),
        "priority": st.sampled_from([0, 0, 1]),
    },
)
PAPERS: list[Policy] = [paper(), paper(best_prefix=True), paper(best_prefix=True, depth=3)]
POLICIES = st.sampled_from([*PAPERS, fixed(1), fixed(2), fixed(3)])


@given(
    st.lists(COSTS, min_size=1, max_size=25), st.lists(COSTS, max_size=10), POLICIES, st.sampled_from([2, 4, 5.5, 8])
)
def test_whoever_fits_waits_behind_somebody_who_lacks_what_it_needs(
    first: list[dict[str, object]], then: list[dict[str, object]], policy: Policy, cores: float
) -> None:
    topology = make_topology(cores=cores)
    world = World(topology, policy)
    for batch in (first, then):
        for cost in batch:
            try:
                world.submit(make_demand(topology, "a", **cost))  # type: ignore[arg-type]
            except InfeasibleError:
                continue
        world.settle()
        lacked: set[int] = set()
        for action in world.in_queue():
            needs = world.needs(action.demand)
            if lacked.isdisjoint(needs):
                lacking = {d for d, units in needs.items() if units > world.free(d)}
                assert lacking, f"{action} fits, and nobody before it lacks what it needs"
                lacked |= lacking


@given(st.lists(COSTS, min_size=2, max_size=30), st.sampled_from(PAPERS), st.sampled_from([3, 4, 8]))
def test_the_first_of_those_who_compete_starts_at_once(
    costs: list[dict[str, object]], policy: Policy, cores: float
) -> None:
    topology = make_topology(cores=cores)
    world = World(topology, policy)
    for cost in costs:
        world.submit(make_demand(topology, "a", **({"cpu": 1} | cost)))  # type: ignore[arg-type]
    first = world.in_queue()[0]
    world.decide()
    assert first.id in world.running


@given(st.integers(1, 40), st.sampled_from(PAPERS), st.sampled_from([1, 4, 8]))
def test_what_paper_defers_is_held_back_for_those_that_it_starts(waiting: int, policy: Policy, cores: int) -> None:
    """With one kind of work that scales, no core stays idle while somebody waits."""
    topology = make_topology(cores=cores)
    world = World(topology, policy)
    demand = make_demand(topology, "a", cpu=Elastic(1, 8))
    for _ in range(waiting):
        world.submit(demand)
    world.decide()
    assert world.free(0) == 0 or not world.waiting
