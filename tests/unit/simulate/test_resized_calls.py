"""Simulated calls whose cores change while they run."""

from __future__ import annotations

import math

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.lifecycle import ActionSpec, Outcome
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.scheduling.policies import elastic, equal_shares, least_attained, size_aware
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import Coding, coding_rollouts, pool

_WIDE = ActionSpec("wide", Cost(cpu=Elastic(1, 4, resizable=True)))
_ONE = ActionSpec("one", Cost(cpu=1000))


def _rollout(call: Call, at_s: float = 0.0) -> Rollout:
    return Rollout((Turn(0.0, (call,)),), at_s)


def test_a_call_that_is_resized_ends_when_its_work_is_done() -> None:
    workload = Workload(rollouts=(_rollout(Call(_WIDE, 8.0, Linear())), _rollout(Call(_WIDE, 8.0, Linear()), 1.0)))
    result = simulate(workload, pool(4), elastic(), known=True, sharing=Sharing(equal_shares(), 0.01))
    first, second = result.calls
    # 4 of 8 are done after 1 s on 4 cores; the rest takes 2 s on 2, after a change of 0.01 s.
    assert first.ended_at_s == pytest.approx(3.01)
    # 2 * 2.01 of 8 are done then; the rest takes 0.995 s on 4, after a change of 0.01 s.
    assert second.ended_at_s == pytest.approx(3.01 + 0.01 + 0.995)
    assert (first.switches, second.switches) == (1, 1)


def test_a_call_that_is_suspended_goes_on_where_it_was_and_its_timeout_stands_still() -> None:
    limited = ActionSpec("limited", Cost(cpu=1000), timeout=3.0)
    workload = Workload(rollouts=(_rollout(Call(limited, 2.9)), _rollout(Call(_ONE, 1.0), 1.0)))
    result = simulate(workload, pool(1), elastic(), known=True, sharing=Sharing(size_aware()))
    long, short = result.calls
    assert (short.started_at_s, short.ended_at_s) == (1.0, 2.0)
    assert long.outcome is Outcome.OK
    assert long.ended_at_s == pytest.approx(3.9)
    assert long.suspended_s == pytest.approx(1.0)
    assert long.switches == 2


@pytest.mark.parametrize("speedup", [math.nan, -1.0, 1e-320])
def test_what_takes_no_finite_time_on_its_new_cores_is_refused(speedup: float) -> None:
    odd = Call(_WIDE, 8.0, lambda cores: speedup if cores == 2 else 1.0)
    workload = Workload(rollouts=(_rollout(odd), _rollout(odd, 1.0)))
    with pytest.raises(ConfigurationError, match="on 2 cores"):
        simulate(workload, pool(4), elastic(), sharing=Sharing(equal_shares()))


@pytest.mark.parametrize("policy", [equal_shares(), least_attained(), size_aware()], ids=lambda p: p.name)
def test_the_same_workload_gives_the_same_run_and_every_call_ends(policy: SharePolicy) -> None:
    workload = coding_rollouts(Coding(rollouts=12), seed=3)
    sharing = Sharing(policy, 0.0002)
    first, second = (simulate(workload, pool(4), elastic(), record=True, sharing=sharing) for _ in range(2))
    assert first == second
    assert all(call.outcome is Outcome.OK for call in first.calls)
    assert first.refused is None
