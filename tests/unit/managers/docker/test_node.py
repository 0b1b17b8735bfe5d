"""Whose fault the end of a container is."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest

from arl_tangram.managers.docker import DockerPool
from arl_tangram.managers.docker.labels import Mark
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.docker.node import OOM_S, DockerNode
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.watch import Death

pytestmark = pytest.mark.looptime

OUT_OF_MEMORY = Death(137, True, "ran out of memory (exit code 137)")
KILLED = Death(137, False, "was killed (exit code 137)")


class Box:
    """A sandbox, as far as its end is concerned."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, bool]] = []

    def lose(self, reason: str, *, out_of_memory: bool) -> None:
        self.lost.append((reason, out_of_memory))


def node_with(box: Box) -> DockerNode:
    manager = DockerPool(url="unix:///nowhere").manager()
    assert isinstance(manager, DockerManager)
    node = DockerNode(
        0, manager._hosts[0], manager._settings, owner="me", mark=Mark("h", "b", "n"), numbers=itertools.count()
    )
    node._sandboxes["c"] = cast(DockerSandbox, box)
    return node


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
    node = node_with(box)
    if oom_s_before is not None:
        node._on_oom("c")
        await asyncio.sleep(oom_s_before)
    node._on_death("c", death)
    assert box.lost == [(f"its container {death.reason}", own_fault)]


async def test_the_end_of_a_container_that_is_none_of_ours_any_more_is_no_news() -> None:
    box = Box()
    node_with(box)._on_death("another", KILLED)
    assert box.lost == []
