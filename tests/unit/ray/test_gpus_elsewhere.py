"""Bodies that have GPUs to themselves run on the machine of their caller: it has to be that of the GPUs."""

from __future__ import annotations

import pytest

import arl_tangram as tangram
from arl_tangram import InfeasibleError
from arl_tangram.action import invocable_of
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService
from shared_world import SharedWorld
from virtual_time import virtual


@tangram.action(gpu=1, isolate="process")
def train() -> None:
    raise AssertionError("here are no processes")


@tangram.action(service="judge")
async def judge(answer: str) -> int:
    return await tangram.current_service().call(answer)  # type: ignore[no-any-return]


@virtual
async def test_a_body_with_gpus_of_its_own_is_refused_on_another_machine() -> None:
    nodes = {"a": [FakePool(cores=2)], "g": [FakeGpuPool(FakeService("judge", gib=60, on_call=len))]}
    async with SharedWorld(nodes=nodes) as shared:
        for node_id in ("a", ""):
            async with shared.client(node_id=node_id) as tg:
                with pytest.raises(InfeasibleError, match=r"train.*gpu= .* on node 'g'"):
                    await tg.run(train)
                assert await tg.run(judge, "four") == 4
        async with shared.client(node_id="g") as tg:
            tg.invoke(invocable_of(train), (), {}).close()  # it is not refused
            assert await tg.run(judge, "four") == 4
        await shared.check_idle()
