"""Whose fault the end of a container is."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from arl_tangram.managers.docker.containers import Container
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.tenants import OOM_S, Tenants
from arl_tangram.managers.docker.watch import Death

pytestmark = pytest.mark.looptime

OUT_OF_MEMORY = Death(137, True, "ran out of memory (exit code 137)")
KILLED = Death(137, False, "was killed (exit code 137)")


class Box:
    """A sandbox, as far as its end is concerned."""

    def __init__(self) -> None:
        self.container = Container("c", 1, {}, "/")
        self.id = "s"
        self.lost: list[tuple[str, bool]] = []
        self.told: list[DockerSandbox] = []
        self.error: Exception | None = None
        self.is_closed = False

    def lose(self, reason: str, *, out_of_memory: bool) -> None:
        assert self.told == []
        self.lost.append((reason, out_of_memory))

    async def aclose(self) -> None:
        self.is_closed = True
        if self.error is not None:
            raise self.error


def tenants_with(box: Box) -> Tenants:
    tenants = Tenants(said="the host", on_lost=box.told.append, on_back=lambda: None)
    tenants.admit(cast(DockerSandbox, box))
    return tenants


@pytest.mark.parametrize(
    ("oom_s_before", "death", "own_fault"),
    [
        (None, KILLED, False),
        (None, OUT_OF_MEMORY, True),
        (0.0, OUT_OF_MEMORY, True),
        (OOM_S - 0.1, OUT_OF_MEMORY, True),
        (OOM_S + 0.1, OUT_OF_MEMORY, False),  # the daemon remembers the end of an earlier command
    ],
)
async def test_a_container_that_ran_out_of_memory_is_its_commands_fault_and_any_other_end_is_not(
    oom_s_before: float | None, death: Death, own_fault: Any
) -> None:
    box = Box()
    tenants = tenants_with(box)
    if oom_s_before is not None:
        tenants.on_oom("c")
        await asyncio.sleep(oom_s_before)
    tenants.on_death("c", death)
    assert box.lost == [(f"its container {death.reason}", own_fault)]
    assert box.told == [cast(Any, box)], "once it knows itself"


async def test_the_end_of_a_container_that_is_none_of_ours_any_more_is_no_news() -> None:
    box = Box()
    tenants_with(box).on_death("another", KILLED)
    assert box.lost == []


async def test_one_that_cannot_be_closed_does_not_keep_the_others_from_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Box(), Box()
    tenants = tenants_with(first)
    second.container = Container("d", 2, {}, "/")
    tenants.admit(cast(DockerSandbox, second))
    first.error = RuntimeError("a defect")
    await tenants.aclose()
    assert (first.is_closed, second.is_closed) == (True, True)
    assert "a defect" in caplog.text
