"""The numbers of a step are those of its calls, not of the calls before."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram import Quota, Tangram
from arl_tangram.integrations.rollouts import Rollout, StepMetrics
from arl_tangram.testing import FakePool
from unit.rollouts import actions_here
from virtual_time import virtual

HANG = "tangram/unit.rollouts.actions_here.hang"


@virtual
async def test_each_step_has_its_own_numbers() -> None:
    async with Tangram(FakePool(cores=2), Quota("api", calls=3, period_s=60)) as tg:
        metrics = StepMetrics()
        async with Rollout(tg) as one, Rollout(tg) as two, Rollout(tg) as three:
            await asyncio.gather(*(rollout.call(actions_here.hang, 10.0) for rollout in (one, two, three)))
            first = metrics.since(tg.figures())
            assert first[f"{HANG}/calls"] == 3
            assert first[f"{HANG}/failures"] == 0
            assert first[f"{HANG}/queueing_s"] == pytest.approx(10 / 3)
            assert first[f"{HANG}/execution_s"] == pytest.approx(10)
            assert first[f"{HANG}/act_s"] == pytest.approx(40 / 3)
            assert first["tangram/cpu/held_share"] == pytest.approx(30 / 40)
            with pytest.raises(KeyError):
                await one.call(actions_here.fail, "x")
            await one.call(actions_here.hang, 4.0)
        second = metrics.since(tg.figures())
        assert second[f"{HANG}/calls"] == 1
        assert second[f"{HANG}/act_s"] == pytest.approx(4)
        assert second["tangram/unit.rollouts.actions_here.fail/failures"] == 1
        assert second["tangram/cpu/held_share"] == pytest.approx(1 / 2)
        assert "tangram/quota.api/calls/held_share" in second
        assert not any(":" in name for name in second)
        await asyncio.sleep(5)
        third = metrics.since(tg.figures())
        assert third[f"{HANG}/calls"] == 0
        assert f"{HANG}/act_s" not in third
        assert third["tangram/cpu/held_share"] == 0
        assert tg.figures().total.calls == 5
    assert tg.figures().total.calls == 5, "as the report, it can be asked for afterwards"


@virtual
async def test_figures_of_another_owner_begin_anew() -> None:
    metrics = StepMetrics("own")
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        await rollout.call(actions_here.hang, 10.0)
        metrics.since(tg.figures())
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        await rollout.call(actions_here.hang, 1.0)
        told = metrics.since(tg.figures())
    assert told["own/unit.rollouts.actions_here.hang/calls"] == 1
    assert told["own/unit.rollouts.actions_here.hang/act_s"] == pytest.approx(1)


@virtual
async def test_nor_are_numbers_negative_if_the_other_owner_is_older_by_now() -> None:
    metrics = StepMetrics()
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        for _ in range(2):
            await rollout.call(actions_here.hang, 1.0)
        metrics.since(tg.figures())
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        await rollout.call(actions_here.hang, 10.0)
        told = metrics.since(tg.figures())
    assert told[f"{HANG}/calls"] == 1
    assert told[f"{HANG}/act_s"] == pytest.approx(10)
    assert told["tangram/cpu/held_share"] > 0
