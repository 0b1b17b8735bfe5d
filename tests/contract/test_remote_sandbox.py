"""The contract of sandboxes, kept by those of a node whose agent is called: at once, and with calls that overtake."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable

import pytest

from agent_lines import remote_cores
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.managers.local.pool import LocalPool
from contract.sandbox_contract import SandboxContract


def at_once() -> Callable[[str], float]:
    return lambda _what: 0.0


def overtaking() -> Callable[[str], float]:
    chance = random.Random(7)
    return lambda _what: chance.choice((0.0, 0.0, 0.001, 0.004))


@pytest.mark.parametrize("way", [at_once, overtaking])
class TestRemoteSandbox(SandboxContract):
    @pytest.fixture
    async def manager(self, way: Callable[[], Callable[[str], float]]) -> AsyncIterator[RemoteCores]:
        async with remote_cores(LocalPool(cores=2, memory_gib=1), delay_s=way()) as cores:
            yield cores
