"""A budget of a quota in virtual time: who asks for more than is left is refused, as in a run."""

from __future__ import annotations

from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import declare_cost
from arl_tangram.model.lifecycle import ActionSpec, Outcome
from arl_tangram.scheduling.policies import paper
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from unit.simulate.drawn import pools

CALL = Call(ActionSpec("call", declare_cost("call", quota={"api": 1})), 2.0, None)


def test_those_that_a_budget_refuses_end_and_their_rollouts_go_on() -> None:
    there = pools(4, 16, Quota("api", total_calls=2, concurrency=1))
    arrivals = tuple(Arrival(0.0, CALL) for _ in range(3))
    rollout = Rollout((Turn(1.0, (CALL,)), Turn(1.0, (CALL,))), at_s=0.0)
    result = simulate(Workload(arrivals, (rollout,)), there, paper())
    assert [(call.outcome, call.ended_at_s) for call in result.calls] == [
        (Outcome.OK, 2.0),
        (Outcome.OK, 4.0),
        (Outcome.ERROR, 4.0),
        (Outcome.ERROR, 4.0),
        (Outcome.ERROR, 5.0),
    ]
    assert [rolled.closed_at_s for rolled in result.rollouts] == [5.0]
